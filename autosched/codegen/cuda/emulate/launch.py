"""Run a kernel's LLVM IR on the CPU as a GPU would, thread by thread, and stop at the first fault."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np

from autosched.codegen.cuda.emulate import faults, schedule
from autosched.codegen.cuda.emulate import layout as at
from autosched.codegen.cuda.emulate import machine as host
from autosched.codegen.cuda.emulate.faults import Allocation, EmulationError, Fault, Place
from autosched.codegen.cuda.emulate.mbarrier import N_MBARRIERS
from autosched.codegen.cuda.emulate.program import Program, program_of
from autosched.codegen.cuda.emulate.trace import Trace
from autosched.errors import InvalidValueError
from autosched.runtime.cuda.kernel import TensorMap

Order = Literal["late", "ahead"]
Words = np.ndarray[tuple[int, ...], np.dtype[np.int64]]
_STACK_BYTES = 128 * 1024
_MAX_THREADS = 1024
_SEEN_BLOCKS = 16384  # grids up to this size are checked for races between blocks


@dataclass(frozen=True)
class Checks:
    """What is looked for beside accesses out of bounds.

    races    accesses of one place by two threads without a synchronisation between them
    unset    reads of shared memory that nobody wrote
    """

    races: bool = True
    unset: bool = True


ALL_CHECKS = Checks()


def run_launch(
    llvm_text: str,
    symbol: str,
    grid: Sequence[int],
    block: Sequence[int],
    shared_bytes: int,
    arrays: Sequence[np.ndarray | int | float],
    *,
    order: Order = "late",
    trace: Trace | None = None,
    cluster: Sequence[int] = (1, 1, 1),
    checks: Checks = ALL_CHECKS,
    tensor_maps: Sequence[TensorMap] = (),
) -> None:
    """Run one launch; the arrays are the device's memory and change in place.

    grid, block    up to 3 sizes; block 1024 threads at most
    shared_bytes   dynamic shared memory of a block
    arrays         an array, C-contiguous, for each pointer, a number for each scalar; not writable arrays are read-only
    order          "late": warps go on in turn, asynchronous copies happen when they are waited for; "ahead": the first
                   warp runs as far as it can, copies happen at once. A missing barrier or wait shows in one of them
    trace          collects accesses, for `Trace.report`
    tensor_maps    further parameters, behind the arrays

    Raises EmulationError at the first fault, CodegenError for code that the emulator does not know.
    """
    program = program_of(llvm_text, symbol)
    Launch(program, grid, block, shared_bytes, arrays, order, trace, cluster, checks, tensor_maps).run()


def _three(sizes: Sequence[int], name: str) -> tuple[int, int, int]:
    filled = (*sizes, 1, 1)[:3]
    if len(sizes) > 3 or min(filled) < 1:
        raise InvalidValueError(f"{name} is up to three sizes of at least 1, not {tuple(sizes)}")
    return filled[0], filled[1], filled[2]


def _address(array: np.ndarray) -> int:
    return int(array.ctypes.data)


@dataclass
class Launch:
    """One launch while it runs."""

    program: Program
    grid_sizes: Sequence[int]
    block_sizes: Sequence[int]
    dynamic_bytes: int
    arrays: Sequence[np.ndarray | int | float]
    order: Order
    trace: Trace | None
    cluster_sizes: Sequence[int]
    checks: Checks
    tensor_maps: Sequence[TensorMap] = ()
    allocations: list[Allocation] = field(default_factory=list)
    kept: list[object] = field(default_factory=list)  # arrays whose addresses the machine has

    def __post_init__(self) -> None:
        if self.order not in ("late", "ahead"):
            raise InvalidValueError(f"order is 'late' or 'ahead', not {self.order!r}")
        self.grid = _three(self.grid_sizes, "grid")
        self.block = _three(self.block_sizes, "block")
        self.cluster = _three(self.cluster_sizes, "cluster")
        self.n_threads = self.block[0] * self.block[1] * self.block[2]
        if self.n_threads > _MAX_THREADS:
            raise InvalidValueError(f"a block has {self.n_threads} threads; {_MAX_THREADS} is the most")
        if any(size % part for size, part in zip(self.grid, self.cluster)):
            raise InvalidValueError(f"the grid {self.grid} is not a multiple of the cluster {self.cluster}")
        self.n_padded = -(-self.n_threads // 32) * 32
        self.n_ctas = self.cluster[0] * self.cluster[1] * self.cluster[2]
        self.total_threads = self.n_ctas * self.n_padded
        if self.total_threads >= 1 << (32 - at.CLOCK_BITS):
            raise InvalidValueError(f"a cluster of {self.total_threads} threads is more than the emulator can number")
        self.shared_bytes = self.program.dynamic_offset + self.dynamic_bytes
        self.machine = host.machine()
        self._parameters()
        self._memory()

    def _keep(self, n_words: int) -> Words:
        made = np.zeros(max(n_words, 1), np.int64)
        self.kept.append(made)
        return made

    def _parameters(self) -> None:
        """The table of arrays, and the words that the kernel takes for its parameters."""
        parameters = self.program.parameters
        if len(self.arrays) + len(self.tensor_maps) != len(parameters):
            raise InvalidValueError(
                f"kernel {self.program.symbol} takes {len(parameters)} arguments, not {len(self.arrays)} and "
                f"{len(self.tensor_maps)} tensor maps"
            )
        records: list[list[int]] = []
        words: list[int] = []
        base = at.ARRAY_START
        seen: dict[int, int] = {}
        for k, parameter in enumerate(parameters):
            is_map = k >= len(self.arrays)
            value = self._tensor_map(self.tensor_maps[k - len(self.arrays)], words) if is_map else self.arrays[k]
            if not isinstance(value, np.ndarray):
                words.append(_scalar_bits(value, parameter.type))
                continue
            if not parameter.type.startswith("ptr"):
                raise InvalidValueError(f"argument {k} is an array, the kernel takes {parameter.type}")
            if not value.flags.c_contiguous:
                raise InvalidValueError(f"argument {k} is not C-contiguous")
            if value.nbytes and _address(value) in seen:  # one array twice
                words.append(seen[_address(value)])
                if value.nbytes > next(a.size_bytes for a in self.allocations if a.base == words[-1]):
                    raise InvalidValueError(f"argument {k} begins where a shorter argument before it does")
                record = next(record for record in records if record[0] == words[-1])
                record[at.ARRAY_FLAGS] |= at.WRITE if value.flags.writeable else 0
                continue
            seen[_address(value)] = base
            words.append(base)
            name = f"argument {k} ({parameter.value.strip('%')})"
            self.allocations.append(Allocation(name, base, value.nbytes))
            shift = {1: 0, 2: 1, 4: 2, 8: 3}.get(value.dtype.itemsize, 0)
            shadow = 0
            if self.checks.races and value.nbytes:
                cells = np.zeros(((value.nbytes + (1 << shift) - 1) >> shift) * 2, np.int64)
                self.kept.append(cells)
                shadow = _address(cells)
            records.append(
                [base, value.nbytes, _address(value), shadow, shift, at.WRITE if value.flags.writeable else 0]
            )
            base += -(-(value.nbytes + 1) // at.ARRAY_SPACING) * at.ARRAY_SPACING
        for address, size, name in self.program.constants:
            self.allocations.append(Allocation(f"constant {name}", address, size))
            records.append([address, size, address, 0, 0, 0])
        self.records = np.array(records, np.int64).reshape(-1, at.ARRAY_WORDS)
        self.words = np.array([word - (1 << 64) if word >= 1 << 63 else word for word in words], np.int64)
        self.kept += [self.records, self.words]

    def _tensor_map(self, wanted: TensorMap, words: Sequence[int]) -> Words:
        """What stands for a tensor map: 128 bytes and more that `mbarrier.tensor_copy` reads."""
        array = self.arrays[wanted.argument]
        rank, item = len(wanted.shape), wanted.item_bytes
        end = wanted.offset_bytes + item * math.prod(wanted.shape)
        if not isinstance(array, np.ndarray) or array.nbytes < end:
            raise InvalidValueError(f"argument {wanted.argument} is no array of {wanted.shape}, as its tensor map says")
        if any(step % 16 for step in wanted.strides_bytes) or wanted.box[-1] * item != at.MAP_ROW_BYTES:
            raise InvalidValueError(f"no tensor map has rows of {wanted.shape[-1]} elements and boxes of {wanted.box}")
        made = np.zeros(at.MAP_WORDS, np.int64)
        made[[at.MAP_MAGIC, at.MAP_RANK, at.MAP_ITEM]] = at.TENSOR_MAP, rank, item
        made[[at.MAP_BASE, at.MAP_HOST]] = words[wanted.argument], _address(array)
        made[[at.MAP_BASE, at.MAP_HOST]] += wanted.offset_bytes
        made[at.MAP_BYTES] = item * math.prod(wanted.box)
        strides = (*wanted.strides_bytes, item)
        for d in range(rank):
            made[at.MAP_SIZES + 3 * d] = wanted.shape[rank - 1 - d]
            made[at.MAP_STRIDES + 3 * d] = strides[rank - 1 - d]
            made[at.MAP_BOX + 3 * d] = wanted.box[rank - 1 - d]
        made.flags.writeable = False
        self.kept.append(made)
        return made

    def _memory(self) -> None:
        """What the blocks of one cluster need, used again by the next cluster."""
        program = self.program
        self.stride = (at.ARGS + program.n_args + 7) // 8 * 8
        self.threads = np.zeros((self.n_ctas, self.n_padded, self.stride), np.int64)
        self.stacks = np.empty((self.total_threads, _STACK_BYTES // 8), np.int64)
        self.blocks = np.zeros((self.n_ctas, at.BLOCK_WORDS), np.int64)
        self.peers = np.array([_address(self.blocks[rank]) for rank in range(self.n_ctas)], np.int64)
        size = max(self.shared_bytes, 16)
        self.shared = np.empty((self.n_ctas, size), np.uint8)
        self.shadow = np.empty((self.n_ctas, size, at.CELL_WORDS), np.uint32)
        self.pending = np.empty((self.n_ctas, size), np.uint8)
        self.clocks = np.zeros((self.total_threads, self.total_threads), np.uint32)
        self.arrival = np.zeros(self.total_threads, np.uint32)
        row_words = at.N_BARRIERS * self.total_threads
        self.barriers = np.zeros((self.n_ctas, at.N_BARRIERS * at.BARRIER_WORDS * 2 + row_words), np.int32)
        slots = [(variable.offset, variable.size_bytes) for variable in program.local]
        self.slots = np.array(slots, np.int64).reshape(-1, at.SLOT_WORDS)
        self.local = np.empty((self.total_threads, max(program.local_bytes, 8)), np.uint8)
        self.capacity = 256
        self.queues = np.empty((self.n_ctas, self.n_padded, self.capacity, at.COPY_WORDS), np.int64)
        self.scratch = self._keep(64 * 64 + 256 * 64)
        self.mbarriers = np.zeros((self.n_ctas, N_MBARRIERS * (1 + self.total_threads)), np.int64)
        self.bulk = np.zeros((self.n_ctas, at.BULK_CAPACITY, at.BULK_WORDS), np.int64)
        self.group = self._keep(at.GROUP_WORDS)
        n_blocks = self.grid[0] * self.grid[1] * self.grid[2]
        self.seen_stride = -(-n_blocks // 64) * 8
        watched = self.checks.races and 1 < n_blocks <= _SEEN_BLOCKS
        self.seen = np.zeros((n_blocks, self.seen_stride) if watched else (0, 0), np.uint8)
        if self.trace is not None:
            self.trace.begin(self.program, self.allocations, self.shared_bytes)
        linear = np.arange(self.n_threads)
        x, y, z = self.block
        for rank in range(self.n_ctas):
            threads = self.threads[rank]
            threads[:, at.OP] = at.ABSENT
            threads[: self.n_threads, at.TID_X] = linear % x
            threads[: self.n_threads, at.TID_Y] = linear // x % y
            threads[: self.n_threads, at.TID_Z] = linear // (x * y)
            index = np.arange(self.n_padded)
            threads[:, at.LINEAR] = index
            threads[:, at.LANE], threads[:, at.WARP] = index % 32, index // 32
            threads[:, at.INDEX] = rank * self.n_padded + index
            threads[:, at.BLOCK] = self.peers[rank]
            threads[:, at.LOCAL] = _address(self.local) + threads[:, at.INDEX] * self.local.shape[1]
            record = self.blocks[rank]
            record[at.THREADS], record[at.STRIDE] = _address(threads), self.stride * 8
            record[at.N_THREADS], record[at.N_PADDED] = self.n_threads, self.n_padded
            record[at.NTID_X : at.NTID_Z + 1] = self.block
            record[at.NCTAID_X : at.NCTAID_Z + 1] = self.grid
            record[at.SHARED], record[at.SHARED_BYTES] = _address(self.shared[rank]), self.shared_bytes
            record[at.SHADOW], record[at.PENDING] = _address(self.shadow[rank]), _address(self.pending[rank])
            record[at.CLOCKS], record[at.N_CLOCKS] = _address(self.clocks), self.total_threads
            record[at.LATE] = self.order == "late"
            record[at.ARRAYS], record[at.N_ARRAYS] = _address(self.records), len(self.records)
            record[at.PARAMS] = _address(self.words)
            record[at.LOCAL_SLOTS], record[at.N_LOCAL_SLOTS] = _address(self.slots), len(self.slots)
            record[at.CHECK_RACES], record[at.CHECK_UNSET] = self.checks.races, self.checks.unset
            record[at.QUEUES], record[at.QUEUE_CAPACITY] = _address(self.queues[rank]), self.capacity
            record[at.DYNAMIC_BYTES] = self.dynamic_bytes
            record[at.BARRIERS] = _address(self.barriers[rank])
            record[at.RANK], record[at.N_CTAS] = rank, self.n_ctas
            record[at.CLUSTER_X : at.CLUSTER_Z + 1] = self.cluster
            record[at.PEERS], record[at.SINGLE] = _address(self.peers), self.n_ctas == 1
            record[at.SCRATCH], record[at.ARRIVAL_CLOCKS] = _address(self.scratch), _address(self.arrival)
            record[at.MBARRIERS], record[at.BULK] = _address(self.mbarriers[rank]), _address(self.bulk[rank])
            if self.seen.size:
                record[at.SEEN], record[at.SEEN_STRIDE] = _address(self.seen), self.seen_stride
        self.group[at.GROUP_BLOCKS], self.group[at.GROUP_PEERS] = self.n_ctas, _address(self.peers)
        self.group[at.SWITCH] = self.machine.addresses["switch"]

    def run(self) -> None:
        """All clusters, one after the other."""
        counts = [size // part for size, part in zip(self.grid, self.cluster)]
        for z in range(counts[2]):
            for y in range(counts[1]):
                for x in range(counts[0]):
                    self._cluster((x, y, z))

    def _begin(self, cluster: tuple[int, int, int]) -> None:
        """Fresh threads, stacks and shared memory."""
        self.shared[:] = 0xFF
        self.shadow[:] = 0
        self.pending[:] = 0
        self.barriers[:] = 0
        self.arrival[:] = 0
        self.mbarriers[:, :N_MBARRIERS] = 0
        self.blocks[:, [at.BULK_FIRST, at.BULK_LAST, at.BULK_ASKED]] = 0
        sx, sy, _ = self.cluster
        for rank in range(self.n_ctas):
            place = (rank % sx, rank // sx % sy, rank // (sx * sy))
            ctaid = [c * s + p for c, s, p in zip(cluster, self.cluster, place)]
            record, threads = self.blocks[rank], self.threads[rank]
            record[at.CTAID_X : at.CTAID_Z + 1] = ctaid
            record[at.BLOCK_LINEAR] = ctaid[0] + self.grid[0] * (ctaid[1] + self.grid[1] * ctaid[2])
            record[at.BASE], record[at.GENERATION] = 0, 1
            living = threads[: self.n_threads]
            living[:, at.OP] = at.READY
            living[:, at.CLOCK] = 1
            living[:, at.KNOWS] = 0
            living[:, at.QUEUE_FIRST : at.GROUP + 1] = 0
            living[:, at.FAULT : at.FAULT_OTHER + 1] = 0
            living[:, at.FENCED] = 0
            living[:, at.CLUSTER_PHASE] = 0
            self._tracing(record)
        depth = host.STACK_DEPTH
        self.stacks[:, -depth:] = 0
        top = self.stacks[:, -depth:]
        flat = self.threads.reshape(self.total_threads, self.stride)
        top[:, host.STACK_ARGUMENT] = _address(flat) + np.arange(self.total_threads) * self.stride * 8
        top[:, host.STACK_FUNCTION] = self.program.entry
        top[:, host.STACK_RETURN] = self.machine.addresses["start"]
        first = _address(self.stacks) + _STACK_BYTES - depth * 8
        flat[:, at.SP] = first + np.arange(self.total_threads) * _STACK_BYTES
        self.stacks[:, 0] = _CANARY
        self.group[at.SPINS], self.group[at.CLUSTER_BARRIER] = 0, 0

    def _tracing(self, record: Words) -> None:
        if self.trace is not None and self.trace.wants(tuple(record[at.CTAID_X : at.CTAID_Z + 1].tolist())):
            record[at.TRACE], record[at.TRACE_CAPACITY] = _address(self.trace.records), len(self.trace.records)
            record[at.TRACE_COUNT] = self.trace.count
        else:
            record[at.TRACE] = 0

    def _cluster(self, cluster: tuple[int, int, int]) -> None:
        self._begin(cluster)
        while True:
            state = self.machine.call("run", _address(self.group))
            if state == schedule.FAULT:
                raise self._fault()
            if state == schedule.ALL_DONE:
                break
            if state == schedule.STUCK and self._is_pausing():
                continue
            raise self._stuck(state)
        if self.trace is not None:
            for record in self.blocks:
                if record[at.TRACE]:
                    self.trace.count = int(record[at.TRACE_COUNT])
        if (self.stacks[:, 0] != _CANARY).any():
            raise EmulationError(f"kernel {self.program.symbol} needs a deeper stack than the emulator gives a thread")

    def _place(self, index: int) -> Place:
        rank, inside = divmod(index, self.n_padded)
        thread = self.threads[rank, inside]
        tid = tuple(int(v) for v in thread[at.TID_X : at.TID_Z + 1])
        block = tuple(int(v) for v in self.blocks[rank, at.CTAID_X : at.CTAID_Z + 1])
        return Place((tid[0], tid[1], tid[2]), (block[0], block[1], block[2]))

    def _fault(self) -> EmulationError:
        flat = self.threads.reshape(self.total_threads, self.stride)
        index = (int(self.group[at.FAULT_THREAD]) - _address(flat)) // (self.stride * 8)
        record = flat[index]
        values = [int(v) for v in record[[at.FAULT, at.FAULT_ADDRESS, at.FAULT_SIZE, at.FAULT_SITE, at.FAULT_OTHER]]]
        fault = Fault(*values)
        other = self._other(fault)
        return faults.error_of(
            fault, self._place(index), other, self.program, tuple(self.allocations), self.shared_bytes
        )

    def _other(self, fault: Fault) -> str:
        """The other thread of a collision, in words."""
        words = fault.other if fault.other >> 32 else fault.other << at.CLOCK_BITS
        if (words & 0xFFFFFFFF) >> at.CLOCK_BITS == at.SEVERAL:
            return "several threads"
        if fault.other >> 32:
            number = (fault.other >> 32 & (1 << 28) - 1) - 1
            index = (fault.other & 0xFFFFFFFF) >> at.CLOCK_BITS
            x, y, _ = self.grid
            block = (number % x, number // x % y, number // (x * y))
            return f"thread {self._place(index).thread} of block {block}"
        if 0 <= fault.other < self.total_threads:
            return str(self._place(fault.other))
        return "another thread"

    def _is_pausing(self) -> bool:
        """Whether a thread waits in a loop of its own: others may still come."""
        return bool((self.threads[:, :, at.OP] == at.READY).any())

    def _stuck(self, state: int) -> EmulationError:
        """No thread can go on: say what they wait for."""
        flat = self.threads.reshape(self.total_threads, self.stride)
        waits = Counter((int(t[at.OP]), int(t[at.SITE])) for t in flat if t[at.OP] not in (at.ABSENT, at.DONE))
        ended = int((flat[:, at.OP] == at.DONE).sum())
        words = [
            f"{count} threads at {faults.site_words(self.program, site)}" for (_, site), count in waits.most_common(4)
        ]
        if ended:
            words.append(f"{ended} threads have ended")
        what = "threads wait in a loop for what never comes" if state == schedule.SPINNING else "deadlock"
        return EmulationError(f"{what}: {'; '.join(words)}", where=f"kernel {self.program.symbol}", kind="deadlock")


_CANARY = 0x5AFE_57AC_0000_0001


def _scalar_bits(value: int | float, kind: str) -> int:
    """A number as the bits of a parameter of an LLVM type."""
    if kind in ("float", "double", "half"):
        made = np.array(value, {"float": np.float32, "double": np.float64, "half": np.float16}[kind])
        return int.from_bytes(made.tobytes(), "little")
    if kind.startswith("i") and kind[1:].isdigit():
        return int(value) & ((1 << int(kind[1:])) - 1)
    if kind.startswith("ptr") and value == 0:
        return 0
    raise InvalidValueError(f"the kernel takes {kind}, and the argument is the number {value}")
