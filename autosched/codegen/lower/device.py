"""The lowering of a function that is scheduled for a GPU: launches, buffers, barriers, shared memory.

What a schedule may use (what templates are written with):

- `bind` to blockIdx.x/y/z, threadIdx.x/y/z and vthread.x/y/z; each nest at the top of the function is one launch. Loops
  bound to one thread axis are the same threads: the largest extent counts, smaller ones leave threads idle. Extents of
  loops bound to threads are constants; those of blocks may be symbols of the arguments' shapes, whose values come with
  the call. What a tile has beyond such a size is guarded.
- `bind` to clusterCtaIdx.x/y/z, from sm_90 on: the blocks of a cluster. A loop bound to blockIdx.x then counts
  clusters; the launch has as many blocks as both loops together. Products of warpgroups copy once what they share.
- scopes: "local" (registers of a thread), "shared" and "shared.dyn" (a block's memory; buffers that do not live at one
  time share bytes; more than 48 KiB become dynamic memory by itself), "global" (what one launch hands to another; what
  only one thread uses becomes local).
- `cache_read(block, i, "shared")` + `compute_at` + `fuse`, `split`, `bind` to threadIdx: a cooperative copy. Barriers
  are placed by analysis. They cannot stand under conditions or in loops that depend on threadIdx.
- `cache_write(block, 0, "local")` + `reverse_compute_at`: a register tile. Loops that index it are unrolled by
  themselves; `decompose_reduction` is not needed (start values are placed before the reduction).
- `vectorize`: at most 128 bits at once; an access is one instruction where its address is proven to be aligned, else
  several (arguments are at multiples of 16 bytes). Conditions that split a vector run its lanes one by one.
- `storage_swizzle` of a shared buffer whose rows are a power of two of 16 bytes: no eight rows meet in one bank.
- `storage_align`, `unroll`, `compute_at`, `reverse_compute_at`, `rfactor` as on a CPU. Sizes that a tile does not
  divide are guarded; guards that would only spare unused registers are dropped.
- scope "wgmma.accumulator" with the annotation "warp_specialized_stages" of a loop, on sm_90a: products of warpgroups,
  fed by a warp that only copies; see `warpgroups.py`. With the annotation "warp_copied_stages" instead: several
  products that follow on each other, with the scope "wgmma.matrix_a"; see `warpgroup_chain.py`.
- scopes "wmma.matrix_a", "wmma.matrix_b" and "wmma.accumulator": tensor cores; see `fragments.py`.
- annotation "launched_each_time" of a loop at the top of the function: the nests inside are launched in each of its
  iterations, whose number may be an expression of sizes. Every launch is given its turn.
- annotations "software_pipeline_stage", "software_pipeline_order" and "software_pipeline_async_stages" of a loop: its
  statements work on different iterations; copies of 4, 8 or 16 bytes are asynchronous; see `software_pipeline.py`.
- `T.ptx_*`, `T.tvm_warp_shuffle*`, `T.tvm_storage_sync` in a script; see `ptx.py`.
- `B[i] = T.atomic_add(B[i], x)` on device and shared memory, where threads meet at an element.
- all dtypes: sums of float16 and bfloat16 in "local" buffers are float32; bfloat16 is computed as float32.
- a reduction loop bound to threadIdx.x/y/z: its threads combine their sums with shuffles and shared memory; see
  `cross_thread.py`. Every thread of the block must come there, so that no other nest may have more threads.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from autosched.codegen.lower.align import Alignments, buffer_alignments
from autosched.codegen.lower.asserts import lower_asserts
from autosched.codegen.lower.barriers import guarded_by_mbarriers, place_barriers
from autosched.codegen.lower.compact import Sharing, compact_buffers
from autosched.codegen.lower.cross_thread import lower_cross_thread
from autosched.codegen.lower.dissolve import dissolve_blocks
from autosched.codegen.lower.flops import count_flops
from autosched.codegen.lower.fragments import is_fragment, lower_fragments, without_instructions
from autosched.codegen.lower.guards import guard_reductions
from autosched.codegen.lower.half import lower_halves, widen_sums
from autosched.codegen.lower.inits import lower_inits
from autosched.codegen.lower.launches import (
    LAUNCHED,
    LoweredLaunch,
    Repeated,
    nests,
    repeats_of,
    split_launches,
    with_turns,
)  # fmt: skip
from autosched.codegen.lower.loops import WARP_STAGES
from autosched.codegen.lower.merge_dimensions import merge_dimensions
from autosched.codegen.lower.narrow import INDEX, MOST_OWN, largest_sizes, narrow_indices
from autosched.codegen.lower.partition import MOST_ON_DEVICES, partition_loops
from autosched.codegen.lower.ptx import lower_ptx
from autosched.codegen.lower.races import check_races
from autosched.codegen.lower.register_tiles import (
    IN_REGISTERS,
    drop_register_guards,
    fix_register_indices,
    unroll_register_loops,
)
from autosched.codegen.lower.shared_memory import SCOPES, buffer_size, is_shared, plan_shared
from autosched.codegen.lower.software_pipeline import pipeline_loops
from autosched.codegen.lower.swizzle import buffers_to_swizzle, swizzle, swizzled
from autosched.codegen.lower.tidy import tidy
from autosched.codegen.lower.vthreads import lower_vthreads
from autosched.codegen.lower.warpgroup_chain import lower_warpgroup_chain
from autosched.codegen.lower.warpgroups import lower_warpgroups
from autosched.codegen.lower.zero_fill import zero_fill
from autosched.errors import CodegenError
from autosched.ir.node import preorder
from autosched.tir.atomic import store_atomics
from autosched.tir.buffer import Buffer, BufferData, BufferLoad
from autosched.tir.dtypes import item_bytes
from autosched.tir.expr import PrimExpr, Var, const_int
from autosched.tir.extrema import from_infinity, keep_nans
from autosched.tir.function import PrimFunc, make_root, shape_vars
from autosched.tir.functor import free_vars, replace_buffers
from autosched.tir.share import bind_shared_values
from autosched.tir.simplify import Analyzer
from autosched.tir.size_expr import MAY_BE_EMPTY, named_sizes
from autosched.tir.stmt import Allocate, BlockRealize, BufferStore, For, SeqStmt, Stmt

MOST_REGISTER_BYTES = 1024  # of one buffer: a thread has 255 registers of 4 bytes
STATIC_SHARED_BYTES = 48 * 1024  # a block's shared memory that needs no size at the launch


@dataclass(slots=True)
class LoweredDevice:
    """The launches of a function in order, its arguments, and what one launch leaves in device memory for another.

    sizes    the symbols that a launch is given, those of the arguments' shapes first: (the least, how many values)
    repeats  launches that are made again and again; each launch is then given its turn behind the sizes: `turn`
    """

    launches: list[LoweredLaunch]
    arguments: tuple[Buffer, ...]
    scratch: list[Buffer] = field(default_factory=list)
    sizes: dict[Var, tuple[int, int]] = field(default_factory=dict)
    repeats: tuple[Repeated, ...] = ()
    turn: Var | None = None

    @property
    def n_numbers(self) -> int:
        """How many numbers each launch is given behind the addresses."""
        return len(self.sizes) + bool(self.repeats)


def lower_device(func: PrimFunc, instructions: bool = True) -> LoweredDevice:
    """The launches of a function that is scheduled for a GPU. Raises CodegenError for what no thread can run.

    instructions   use those that other machines lack; without, every lane computes the tile of its warp by itself
    """
    func = store_atomics(func)
    if any(isinstance(n, For) and WARP_STAGES in n.annotations for n in preorder(func.body)):
        func = merge_dimensions(func)
    root, turn = with_turns(_root(func))
    func = func.with_body(root)
    outside = frozenset(func.buffers) | used_by_nests(root)
    root = lower_cross_thread(lower_asserts(keep_nans(from_infinity(bind_shared_values(root)))), outside)
    body, inner = dissolve_blocks(lower_inits(root))
    lowered = lower_ptx(body)
    inner = (*inner, *lowered.mbarriers)
    code = _Code(lowered.body, {b: b for b in (*func.buffers, *inner)}, lowered.addressed)
    sizes, turn = _choose_types(code, func, turn)
    marked = buffers_to_swizzle(func.body)
    alignments = buffer_alignments(func.body)
    _swizzle(code, marked, alignments)
    repeats = repeats_of(code.body)
    given = {**sizes, **({} if turn is None else {turn: (1, _most_turns(repeats, sizes))})}
    launches = split_launches(code.body, frozenset(map(code.now, outside)), given)
    for launch, nest in zip(launches, nests(code.body), strict=True):
        if any(is_fragment(b) for b in _used(nest)):
            launch.tensor_flops = count_flops(nest)
    arguments, buffers = tuple(map(code.now, func.buffers)), tuple(map(code.now, inner))
    users = _users(launches)
    scratch = _scratch(buffers, users, repeats)
    alignments = {code.now(b): found for b, found in alignments.items()}
    for i, launch in enumerate(launches):
        mine = [b for b in buffers if users.get(b) == [i] and b not in scratch]
        scratch += _lower_launch(
            launch, mine, [*arguments, *scratch], code.addressed, alignments, bool(marked), instructions
        )
    return LoweredDevice(launches, arguments, scratch, sizes, repeats, turn)


def _root(func: PrimFunc) -> BlockRealize:
    """The root block of a function; a script without blocks gets one."""
    if isinstance(func.body, BlockRealize):
        return func.body
    if any(isinstance(n, Allocate) for n in preorder(func.body)):
        raise CodegenError("the function has been lowered already", hint="pass the scheduled function")
    return make_root(func.body)


@dataclass(slots=True)
class _Code:
    """The statements of a function while its buffers change.

    became     what each buffer of the scheduled function is now
    addressed  the buffers that instructions take by their pointers
    """

    body: Stmt
    became: dict[Buffer, Buffer]
    addressed: frozenset[Buffer]

    def now(self, buffer: Buffer) -> Buffer:
        return self.became.get(buffer, buffer)

    def take(self, body: Stmt, new: Mapping[Buffer, Buffer]) -> None:
        """Go on with a body in which some buffers are others."""
        self.body = body
        self.became = {old: new.get(b, b) for old, b in self.became.items()}
        self.addressed = frozenset(new.get(b, b) for b in self.addressed)


def _choose_types(code: _Code, func: PrimFunc, turn: Var | None) -> tuple[dict[Var, tuple[int, int]], Var | None]:
    """Narrow indices, widen sums, lower 16-bit floats; gives (least, count) of sizes by new symbols, and the turn's."""
    most = largest_sizes(tuple(code.became))
    own = [v for v in named_sizes(func) if v not in shape_vars(func)]  # which no argument has as a dimension
    symbols = {v: Var(v.name, INDEX) for v in (*shape_vars(func), *own)}
    empty = func.attrs.get(MAY_BE_EMPTY, ())
    sizes = {}
    for v, new in symbols.items():
        largest = most[v] if v not in own else min(most.get(v, MOST_OWN), MOST_OWN)
        sizes[new] = (0, largest + 1) if v.name in empty else (1, largest)
    if turn is not None:
        symbols[turn] = Var(turn.name, INDEX)
    code.take(*narrow_indices(code.body, list(code.became.values()), symbols, frozenset(own)))
    code.take(*widen_sums(code.body, [b for b in code.became.values() if b not in code.addressed]))
    code.take(*lower_halves(code.body, list(code.became.values())))
    is_wide = any(free_vars(s) - sizes.keys() for b in func.buffers for s in code.now(b).shape)
    if is_wide or any(v in free_vars(code.body) for v in own):
        raise CodegenError(
            "sizes that come with the call are indices of 32 bits, and the function has more elements than these count",
            hint="build it for known sizes",
        )
    return sizes, None if turn is None else symbols[turn]


def _swizzle(code: _Code, marked: Iterable[Buffer], alignments: Iterable[Buffer]) -> None:
    """Mark the buffers whose rows are to be swizzled."""
    new = {code.now(b): swizzled(code.now(b)) for b in marked}
    if moved := code.addressed & {*new, *map(code.now, alignments)}:
        raise CodegenError(
            f"'{next(iter(moved)).name}' is addressed by its pointer and has storage_swizzle or storage_align",
            hint="write the places into the offsets",
        )
    code.take(replace_buffers(code.body, new), new)


def _users(launches: Sequence[LoweredLaunch]) -> dict[Buffer, list[int]]:
    """The launches that use each buffer."""
    users: dict[Buffer, list[int]] = {}
    for i, launch in enumerate(launches):
        for buffer in dict.fromkeys(_used(launch.body)):
            users.setdefault(buffer, []).append(i)
    return users


def _scratch(
    buffers: Iterable[Buffer], users: Mapping[Buffer, Sequence[int]], repeats: Sequence[Repeated]
) -> list[Buffer]:
    """The buffers that outlive a launch, in device memory."""
    again = {i for r in repeats for i in range(r.first, r.end)}  # what these leave is there in their next turn
    found = [b for b in buffers if len(users.get(b, ())) > 1 or (b.scope == "global" and again & {*users.get(b, ())})]
    for buffer in found:
        if buffer.scope != "global":
            raise CodegenError(
                f"buffer '{buffer.name}' of scope \"{buffer.scope}\" is used by {len(users[buffer])} launches",
                hint='only buffers of scope "global" outlive a launch: compute_at its block, or set_scope it',
            )
    return found


def _lower_launch(
    launch: LoweredLaunch, mine: list[Buffer], outside: list[Buffer], addressed: frozenset[Buffer],
    alignments: Mapping[Buffer, Alignments], is_swizzled: bool, instructions: bool,
) -> list[Buffer]:  # fmt: skip
    """Lower the body of one launch; gives what it leaves in device memory beyond `outside`.

    mine       buffers of this launch alone
    outside    arguments, and what launches leave to others
    addressed  buffers that the code takes by their pointers
    """
    sharing = DeviceSharing(launch)
    local = frozenset(b for b in mine if b.scope == IN_REGISTERS or is_fragment(b))
    whole, mine, local = lower_vthreads(launch.body, mine, local)
    check_races(launch, whole, frozenset(outside) - addressed, frozenset(filter(is_shared, mine)) - addressed)
    whole, sharing.unguarded = drop_register_guards(whole, launch.block_vars | launch.thread_vars, local - addressed)
    whole = tidy(guard_reductions(whole), launch.analyzer())
    whole = compact_buffers(whole, [b for b in mine if b not in addressed], alignments, sharing)
    for buffer in (b for b in mine if b in addressed and not sharing.whole(b, b.shape, False)):
        sharing.scope(buffer, buffer.shape, (), True)  # refuses what does not fit
        whole = Allocate(buffer, whole)
    whole = fix_register_indices(tidy(whole, launch.analyzer()), launch.analyzer())
    whole = zero_fill(whole, launch.analyzer(), {a.var: a.extent for a in launch.axes if a.var in launch.thread_vars})
    whole = pipeline_loops(whole, {b.dtype: item_bytes(b.dtype) for b in _used(whole)}, instructions)
    if instructions:
        outside = [*outside, *sharing.left]
        whole = lower_warpgroups(whole, launch, outside)
        whole = lower_warpgroup_chain(whole, launch, outside)
        whole = lower_fragments(whole, launch)
    else:
        whole = without_instructions(whole)
    if is_swizzled:
        whole = swizzle(whole, launch.analyzer(), {b.dtype: item_bytes(b.dtype) for b in _used(whole)})
    whole = partition_loops(whole, launch.analyzer(), launch.thread_vars, MOST_ON_DEVICES)
    whole = unroll_register_loops(whole)
    _check_scratch(whole, sharing.left, launch)
    _finish(launch, whole)
    return sharing.left


def _most_turns(repeats: Sequence[Repeated], sizes: Mapping[Var, tuple[int, int]]) -> int:
    known = Analyzer(sizes)
    most = [known.bound(known.simplify(r.times))[1] for r in repeats]
    if any(n is None or r.first == r.end for n, r in zip(most, repeats, strict=True)) or not most:
        raise CodegenError("how often launches are repeated is to follow from the sizes of arguments")
    return max(1, *(n for n in most if n is not None))


def used_by_nests(root: BlockRealize) -> frozenset[Buffer]:
    """The buffers that more than one nest at the top of a function uses."""
    users = Counter(b for s in _parts(root.block.body) for b in set(_used(s)))
    return frozenset(b for b, count in users.items() if count > 1)


def _parts(stmt: Stmt) -> Iterator[Stmt]:
    """The nests at the top of a function with blocks, those of loops that launch them again and again among them."""
    if isinstance(stmt, For) and LAUNCHED in stmt.annotations:
        yield from _parts(stmt.body)
    elif isinstance(stmt, SeqStmt):
        for s in stmt.seq:
            yield from _parts(s)
    else:
        yield stmt


def _used(stmt: Stmt) -> list[Buffer]:
    return [n.buffer for n in preorder(stmt) if isinstance(n, BufferLoad | BufferStore | BufferData)]


def _finish(launch: LoweredLaunch, body: Stmt) -> None:
    """Place shared memory and barriers."""
    shared = {b for b in _used(body) if is_shared(b)}
    if launch.by_mbarrier and shared != launch.by_mbarrier:
        raise CodegenError(
            f"'{next(iter(shared - launch.by_mbarrier)).name}' is shared memory beside that of a loop whose copies a "
            "warp of its own makes",
            hint="compute what follows the product in registers",
        )
    sizes = {b.dtype: item_bytes(b.dtype) for b in shared}
    alone = frozenset() if launch.by_mbarrier else guarded_by_mbarriers(body)
    body, offsets, total = plan_shared(body, sizes, alone)
    ranges = {b: ("shared", at, at + buffer_size(b, sizes[b.dtype])) for b, at in offsets.items()}
    if not launch.by_mbarrier:  # else whole warps part where one of them copies, and what they share is guarded
        body = place_barriers(body, ranges, launch.thread_vars, launch.threads)
    launch.body = body
    launch.shared, launch.shared_bytes = offsets, total
    launch.wants_dynamic = total > STATIC_SHARED_BYTES


class DeviceSharing(Sharing):
    """Every thread has its own registers, every block its own shared memory."""

    def __init__(self, launch: LoweredLaunch):
        self.launch = launch
        self.ranges = launch.ranges
        self.apart = frozenset(a.var for a in launch.axes)
        self.unguarded: frozenset[Var] = frozenset()
        self.left: list[Buffer] = []  # buffers that stay in device memory

    def fixed(self, buffer: Buffer) -> frozenset[Var]:
        return self.launch.block_vars if is_shared(buffer) else self.launch.block_vars | self.launch.thread_vars

    def whole(self, buffer: Buffer, shape: Sequence[PrimExpr], is_own: bool) -> bool:
        """Whether the buffer stays as it is, in device memory."""
        if buffer.scope != "global":
            return False
        if (
            is_own
            and all(const_int(s) is not None for s in shape)
            and _bytes(shape, buffer.dtype) <= MOST_REGISTER_BYTES
        ):
            return False
        self.left.append(buffer)
        return True

    def scope(self, buffer: Buffer, shape: Sequence[PrimExpr], path: tuple[Stmt, ...], is_own: bool) -> str:
        if buffer.scope in SCOPES:
            return str(buffer.scope)
        if is_fragment(buffer) and is_own:
            return str(buffer.scope)
        if buffer.scope not in ("global", IN_REGISTERS) and not is_fragment(buffer):
            raise CodegenError(f"buffer '{buffer.name}' has scope \"{buffer.scope}\", which no code exists for")
        if any(const_int(s) is None for s in shape):
            raise CodegenError(f"the register buffer '{buffer.name}' has a symbolic shape")
        if not is_own:
            raise CodegenError(
                f"a thread reads elements of the register buffer '{buffer.name}' that it does not write itself",
                hint='set its scope to "shared", or compute_at the block that writes it below the thread loops',
            )
        size = _bytes(shape, buffer.dtype)
        if size > MOST_REGISTER_BYTES:
            raise CodegenError(
                f"the register buffer '{buffer.name}' needs {size} bytes in each thread, which has "
                f"{MOST_REGISTER_BYTES} in registers",
                hint="split its loops further over threads",
            )
        return IN_REGISTERS


def _bytes(shape: Sequence[PrimExpr], dtype: str) -> int:
    return int(np.prod([const_int(s) or 1 for s in shape], dtype=np.int64)) * item_bytes(dtype)


def _check_scratch(body: Stmt, left: list[Buffer], launch: LoweredLaunch) -> None:
    """Refuse a launch that reads what other threads of it leave in device memory: they do not wait for each other."""
    loaded = {n.buffer for n in preorder(body) if isinstance(n, BufferLoad)}
    for buffer in left:
        if buffer in loaded:
            raise CodegenError(
                f"buffer '{buffer.name}' is written and read by different threads of one launch",
                hint='set its scope to "shared", compute_at its block, or give the block a nest of its own',
            )
