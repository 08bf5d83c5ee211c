"""Writes the numba.cuda source of a kernel: a function for each launch, whose work is done by tiles.

# dense, float32 [128, 784] x [784, 256] | cuda sm_90a | default | autosched 0.1
def dense_l0(A, B, C, scratch):  # 8 x 2 blocks of 16 x 16 threads, 8192 bytes of shared memory
    by = cuda.blockIdx.y
    …
    # for k_0 in range(98): …
    C_8x8(A, B, C, by, bx, ty, tx)
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from autosched.codegen.cpu.cut import outside_buffers, outside_vars
from autosched.codegen.cpu.source import Bytes, Writer, widen
from autosched.codegen.cpu.text import loop_lines
from autosched.codegen.cuda.tile import DeviceTile
from autosched.codegen.lower.asserts import ASSERT
from autosched.codegen.lower.barriers import SYNC, is_barrier
from autosched.codegen.lower.cross_thread import LANES
from autosched.codegen.lower.instructions import (
    BULK,
    COMMIT,
    COPY,
    LDMATRIX,
    MMA,
    SHUFFLE,
    TURN_WORDS,
    WAIT,
    WARP_SYNC,
)
from autosched.codegen.lower.launches import LoweredLaunch
from autosched.codegen.lower.shared_memory import is_shared
from autosched.codegen.lower.warpgroup_chain import CHAIN_OPERATIONS
from autosched.codegen.lower.warpgroups import OPERATIONS
from autosched.errors import CodegenError
from autosched.ir.node import preorder
from autosched.ir.structural import structural_key
from autosched.tir.buffer import Buffer, BufferLoad
from autosched.tir.expr import Call, PrimExpr
from autosched.tir.functor import free_vars
from autosched.tir.simplify import Analyzer
from autosched.tir.stmt import BufferStore, Stmt

SCRATCH = "scratch"
CHECKS = "checks"
TOGETHER = frozenset(
    {SYNC, WARP_SYNC, SHUFFLE, LANES, MMA, LDMATRIX, TURN_WORDS, COPY, COMMIT, WAIT, BULK}
    | {*OPERATIONS, *CHAIN_OPERATIONS}
)


@dataclass(slots=True)
class LaunchWriter(Writer):
    """Collects the lines and tiles of a kernel's launches."""

    launch: LoweredLaunch | None = None
    memory: str = ""
    left: Mapping[Buffer, Bytes] = field(default_factory=dict)  # offsets of buffers that live between launches
    reports: bool = False  # the kernel has checks: each launch takes the address of their words

    @property
    def device_tiles(self) -> list[DeviceTile]:
        """The tiles of all launches."""
        return [tile for tile in self.tiles.values() if isinstance(tile, DeviceTile)]

    def write(self, launch: LoweredLaunch, symbol: str, memory: str, left: Mapping[Buffer, Bytes]) -> None:
        """A function that does what one thread does."""
        self.launch, self.memory, self.left = launch, memory, left
        grid, block = (" x ".join(map(str, _trimmed(size))) for size in (launch.grid_sizes, launch.block))
        shared = f", {launch.shared_bytes} bytes of shared memory" if launch.shared_bytes else ""
        maps = [self.name_of(b) for b in launch.tensor_maps]
        parameters = [*(self.name_of(b) for b in self.slots), SCRATCH, *([CHECKS] if self.reports else []), *maps]
        parameters += [self.name_of(v) for v in launch.sizes]
        if launch.cluster != (1, 1, 1):
            shared += f", clusters of {' x '.join(map(str, _trimmed(launch.cluster)))} blocks"
        self.line(0, f"def {symbol}({', '.join(parameters)}):  # {grid} blocks of {block} threads{shared}")
        used = outside_vars(launch.body)
        for axis in launch.axes:
            if axis.var in used:
                self.line(1, f"{self.name_of(axis.var)} = {_index(axis.tag, launch.cluster)}")
        outside = outside_buffers(launch.body)
        for buffer, at in left.items():
            if buffer in outside:
                self.line(1, f"{self.name_of(buffer)} = offset({SCRATCH}, {self.show(at)})")
        for buffer, at in launch.shared.items():
            sizes = ", ".join(map(str, buffer.shape))
            self.line(1, f"# {self.name_of(buffer)} = {buffer.dtype}[{sizes}] in shared memory from byte {at}")
        self.stmt(launch.body, 1, launch.analyzer())
        self.line(0, "")

    def stmt(self, stmt: Stmt, depth: int, a: Analyzer) -> None:
        if is_barrier(stmt):
            self.line(depth, "cuda.syncthreads()")
        else:
            Writer.stmt(self, stmt, depth, a)

    def tile(self, stmt: Stmt, depth: int, a: Analyzer) -> None:
        """A call of a tile, below its loop nest as a comment; tiles of one form share their code."""
        assert self.launch is not None, "tiles are part of a launch"
        used = outside_buffers(stmt)
        strides = {v for b in used for extent in b.shape[1:] for v in free_vars(extent)}
        addressed = [v for v in self.launch.sizes if v in strides]
        variables = tuple(dict.fromkeys((*outside_vars(stmt), *addressed)))
        buffers = tuple(b for b in used if not is_shared(b))
        shared = {b: self.launch.shared[b] for b in used if is_shared(b)}
        aliased = self.aliased(buffers)
        form = structural_key((buffers, variables, tuple(shared), stmt))
        key = f"{self.memory} {sorted(aliased)} {[*shared.values()]} {form}"
        checks = self.checks.of(stmt)
        if self.checks.guards:
            accesses = (n for n in preorder(stmt) if isinstance(n, BufferLoad | BufferStore))
            key = f"{key} {[self.checks.guards_of(n) for n in accesses]}"
        if checks:
            self._can_stop(stmt)
        name = self.keys.get(key)
        if name is None:
            name = self.keys[key] = self.tile_name(stmt)
            static_bytes = 0 if self.launch.wants_dynamic else self.launch.shared_bytes
            self.tiles[name] = DeviceTile(
                name,
                stmt,
                buffers,
                variables,
                a.copy(),
                self.no_alias,
                aliased,
                shared,
                self.memory,
                static_bytes,
                self.launch.block,
                checks=checks,
                guards=self.checks.guards,
            )
        else:
            widen(self.tiles[name], variables, a)
        for text in loop_lines(stmt):
            self.line(depth, f"# {text}")
        arguments = [self.name_of(b) for b in buffers] + [self.name_of(v) for v in variables]
        if self.tiles[name].checks:
            arguments.append(CHECKS)
        self.line(depth, f"{name}({', '.join(arguments)})")

    def _can_stop(self, stmt: Stmt) -> None:
        """Refuse what may end a thread's tile beside what the threads of a warp or block do together."""
        guarded = any(self.checks.guards_of(n) for n in preorder(stmt) if isinstance(n, BufferLoad | BufferStore))
        guarded = guarded or any(isinstance(n, Call) and n.op == ASSERT for n in preorder(stmt))
        together = [n.op for n in preorder(stmt) if isinstance(n, Call) and n.op in TOGETHER]
        if guarded and together:
            raise CodegenError(
                f"no assertion, and no check of an access that is not proved, can stand beside '{together[0]}', which "
                "threads do together",
                hint="build without checks=True, or with another schedule",
            )


def _index(tag: str, cluster: tuple[int, int, int]) -> str:
    """The value of a thread axis: a block's place in its cluster, or which block, thread or cluster it is."""
    kind, axis = tag.split(".")
    size = cluster["xyz".index(axis)]
    if kind == "clusterCtaIdx":
        return f"cuda.blockIdx.{axis} % {size}"
    return f"cuda.{tag} // {size}" if kind == "blockIdx" and size > 1 else f"cuda.{tag}"


def _trimmed(size: Sequence[PrimExpr | int]) -> tuple[PrimExpr | int, ...]:
    x, y, z = size
    is_one = [isinstance(extent, int) and extent == 1 for extent in (y, z)]
    return (x, y, z) if not is_one[1] else (x, y) if not is_one[0] else (x,)
