"""`Program`: a graph made ready to run: a table of phases with addresses, for the native loop."""

from __future__ import annotations

import contextlib
import copy
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain

import numpy as np

from autosched.errors import InvalidValueError, OutOfMemoryError, ShapeError
from autosched.runtime import native_abi as abi
from autosched.runtime.array import NDArray, as_numpy
from autosched.runtime.backends import GraphProgram
from autosched.runtime.cpu.kernel import CpuKernel, as_cpu
from autosched.runtime.faults import Faults, node_place
from autosched.runtime.form_plan import SizedGraph
from autosched.runtime.graph import NOP, Graph, Value, sections_of
from autosched.runtime.kernel import Kernel
from autosched.runtime.lender import LEAST_LENT, Copies
from autosched.runtime.loader import load_objects, unload_with
from autosched.runtime.locks import renew_after_fork
from autosched.runtime.memory import ALIGNMENT, address_of, empty_aligned, empty_block, is_readable
from autosched.runtime.memory_plan import align
from autosched.runtime.pool import open_pool
from autosched.runtime.team import most_threads_of


@contextlib.contextmanager
def naming_the_largest(graph: Graph, kind: str) -> Iterator[None]:
    """Let an OutOfMemoryError inside name the largest of the values that are stored so, and the node that writes it."""
    try:
        yield
    except OutOfMemoryError as error:
        number, value = max(
            ((n, v) for n, v in enumerate(graph.values) if v.storage.kind == kind), key=lambda pair: pair[1].size_bytes
        )
        maker = next((node for node in graph.nodes if number in map(graph.root, node.outputs)), None)
        text = f"{error.message}: '{value.name}' {value.dtype}{list(value.shape)} has {value.size_bytes}"
        where = None if maker is None else f"{node_place(maker)}, kernel '{maker.kernel}'"
        raise OutOfMemoryError(text, where=where) from None


class Memory:
    """An arena and a scratch block that programs share; each grows when a program wants more of it."""

    def __init__(self) -> None:
        self._arena, self._scratch = empty_block(0), empty_block(0)

    def arena(self, size_bytes: int) -> np.ndarray:
        """The arena, of at least `size_bytes`. Programs made before keep the one that they have."""
        if self._arena.nbytes < size_bytes:
            self._arena = empty_block(_grown(self._arena.nbytes, size_bytes))
        return self._arena

    def scratch(self, size_bytes: int) -> np.ndarray:
        """The scratch block, of at least `size_bytes`."""
        if self._scratch.nbytes < size_bytes:
            self._scratch = empty_block(_grown(self._scratch.nbytes, size_bytes))
        return self._scratch

    def is_current(self, program: Program) -> bool:
        """Whether a program uses these blocks, and not smaller ones of before."""
        return program._arena is self._arena and program._scratch is self._scratch


def _grown(held: int, wanted: int) -> int:
    """Bytes of a block in place of one of `held`: an eighth more at least, as sizes may grow one by one."""
    return max(wanted, align(held + held // 8) if held > 1 else 0)


@dataclass(frozen=True, slots=True)
class _Calls:
    """Where a kernel's calls are: rows of the table, and slots of its numbers; a row of each for each call."""

    rows: np.ndarray
    numbers: np.ndarray


class _End:
    """An input or output of `call`: its array, and the slots that may name another one's address while it runs."""

    __slots__ = ("address", "array", "make", "new", "slots")

    def __init__(self, array: np.ndarray, slots: list[int]):
        copies = Copies(array)
        self.array, self.make, self.new = array, copies.make, copies.empty
        self.slots, self.address = slots, address_of(array) if slots else 0


class _Code:
    """Loaded code, until the last program that calls it is gone."""

    def __init__(self, kernels: Sequence[Kernel]):
        self.addresses = load_objects(kernels)
        unload_with(self, kernels)


class Program:
    """The kernels of a graph with all addresses filled in; inputs' and outputs' addresses can be changed.

    graph, kernels, constants  checked by `check_graph`
    native                     object code of the native loop
    threads                    most threads that a kernel is split over
    memory                     for the arena and scratch, where several programs that never run at once share it
    Several threads may call `run`: each run has the memory to itself. A child forked meanwhile may run it too.
    """

    def __init__(
        self,
        graph: Graph,
        kernels: Mapping[str, Kernel],
        constants: tuple[np.ndarray, ...],
        native: bytes,
        threads: int,
        memory: Memory | None = None,
    ):
        self._graph: Graph | None = graph
        self.kernels, self.threads = kernels, threads
        self._of: SizedGraph | None = None  # what the graph is made from once it is asked for
        self._root = graph.root
        self._ends: tuple[list[_End], list[_End]] | None = None  # inputs and outputs, for `call`
        self.renew_locks()
        renew_after_fork(self)
        self._pool = open_pool(native)
        memory = memory or Memory()
        with naming_the_largest(graph, "arena"):
            self._arena = memory.arena(graph.arena_bytes)
        called = [as_cpu(kernels[name]) for name in dict.fromkeys(node.kernel for node in graph.nodes) if name != NOP]
        self._sections = sections_of(graph.nodes) if threads > 1 else []
        self._scratch_bytes = align(max((kernel.scratch_size(threads) for kernel in called), default=0))
        branches = max((graph.nodes[section[-1]].branch for section in self._sections), default=1)
        self._scratch = memory.scratch(branches * self._scratch_bytes)
        self._places: dict[int, list[int]] = defaultdict(list)  # root value -> slots that hold its address
        self._buffers: dict[int, np.ndarray] = {}  # root value -> memory that `place` gave it
        self._views: dict[int, NDArray] = {}
        self._code = _Code(called)
        self._fill_table(self._code.addresses)
        for number in self._constants:
            self.place(number, constants[graph.values[number].storage.index])

    def renew_locks(self) -> None:
        """Make the lock that a run holds anew, in a child forked while another thread ran; undo what it had begun."""
        self.lock = threading.RLock()
        for end in chain.from_iterable(self._ends or ()):
            self._slots[end.slots] = end.address

    @property
    def graph(self) -> Graph:
        """The graph that it runs."""
        if self._graph is None:
            assert self._of is not None, "made by `resized`"
            self._graph = self._of.graph
        return self._graph

    def value(self, value: int) -> Value:
        """A value of the graph."""
        return self.graph.values[value] if self._of is None else self._of.value(value)

    def resized(self, sized: SizedGraph, memory: Memory) -> Program:
        """The program for a graph that calls the same code in the same order: it differs in sizes.

        Inputs and outputs have no memory; they get it by `place` or `allocate`.
        """
        assert not self._sections, "branches of a graph over open sizes"
        made = copy.copy(self)
        made._views, made._ends = {}, None
        made.renew_locks()
        renew_after_fork(made)
        made._graph, made._of = None, sized
        made._buffers = {n: self._buffers[n] for n in self._constants}
        made._slots, made._table = self._slots.copy(), self._table.copy()
        made._table[:, abi.ROW_SLOTS] += int(made._slots.ctypes.data) - int(self._slots.ctypes.data)
        calls = {call.name: call for kind in sized.calls for call in kind}
        kernels = made.kernels = {name: call.kernel for name, call in calls.items()}
        for name, kernel in kernels.items():
            if kernel is not self.kernels[name]:
                made._set_numbers(self._calls[name], as_cpu(kernel), calls[name].threads)
        sizes = [as_cpu(kernel).scratch_size(self.threads) for kernel in kernels.values()]
        made._scratch_bytes = align(max(sizes, default=0))
        made._arena = memory.arena(sized.arrangement.arena_bytes)
        made._scratch = memory.scratch(made._scratch_bytes)
        made._slots[self._arena_slots] = int(made._arena.ctypes.data) + sized.arrangement.offsets[self._arena_values]
        made._slots[self._scratch_slots] = int(made._scratch.ctypes.data)
        made._make_ready()
        return made

    def _set_numbers(self, calls: _Calls, kernel: CpuKernel, threads: int) -> None:
        """Let calls of a kernel be those of the same code with other sizes."""
        self._table[calls.rows, abi.ROW_TASKS] = [phase.n_tasks for phase in kernel.phases]
        self._table[calls.rows, abi.ROW_THREADS] = self._team_of(kernel, threads)
        self._slots[calls.numbers] = kernel.numbers

    def _team_of(self, kernel: CpuKernel, threads: int) -> int:
        return min(self.threads, threads or most_threads_of(kernel))

    def let_go(self) -> None:
        """Give up arena and scratch: it is only there for `resized` from now on."""
        self._arena = self._scratch = empty_block(0)
        self._buffers = {n: self._buffers[n] for n in self._constants}
        self._views.clear()

    def _fill_table(self, addresses: Mapping[str, int]) -> None:
        slots: list[int] = []
        rows: list[tuple[int, int, int, int]] = []  # body, first slot, pieces, threads
        self._scratch_slots: list[int] = []
        calls: dict[str, tuple[list[range], list[range]]] = {}  # kernel -> rows, slots of numbers
        self.row_nodes: list[int] = []  # the node that each row belongs to
        scratch = int(self._scratch.ctypes.data)
        checked = [node for node in self.graph.nodes if node.kernel != NOP and self.kernels[node.kernel].checks]
        self.faults = Faults([(node_place(node), self.kernels[node.kernel]) for node in checked])
        for node_number, node in enumerate(self.graph.nodes):
            if node.kernel == NOP:
                continue
            kernel, first_slot = as_cpu(self.kernels[node.kernel]), len(slots)
            numbers = iter(node.inputs), iter(node.outputs)
            for arg in kernel.args:
                number = next(numbers[arg.role == "output"])
                self._places[self.graph.root(number)].append(len(slots))
                slots.append(0)
            self._scratch_slots.append(len(slots))
            slots.append(scratch + max(node.branch - 1, 0) * self._scratch_bytes * bool(self._sections))
            numbers_at = range(len(slots), len(slots) + len(kernel.numbers))
            slots += kernel.numbers
            if kernel.checks:
                slots.append(self.faults.address(checked.index(node)))
            team = self._team_of(kernel, node.threads)
            at = calls.setdefault(node.kernel, ([], []))
            at[0].append(range(len(rows), len(rows) + len(kernel.phases)))
            at[1].append(numbers_at)
            for phase in kernel.phases:
                rows.append((addresses[phase.symbol], first_slot, phase.n_tasks, team))
                self.row_nodes.append(node_number)
        self._slots = np.array(slots, np.int64)
        self._table = np.array(rows, np.int64).reshape(len(rows), abi.ROW_WORDS)
        self._table[:, abi.ROW_SLOTS] = int(self._slots.ctypes.data) + 8 * self._table[:, abi.ROW_SLOTS]
        self._calls = {name: _Calls(_matrix(row), _matrix(number)) for name, (row, number) in calls.items()}
        places = [value.storage for value in self.graph.values]
        arena = [(at, root) for root, found in self._places.items() if places[root].kind == "arena" for at in found]
        self._arena_slots, self._arena_values = [at for at, _ in arena], [root for _, root in arena]
        self._slots[self._arena_slots] = [int(self._arena.ctypes.data) + places[root].index for _, root in arena]
        self._constants = [n for n, at in enumerate(places) if at.kind == "const"]
        self._make_ready()

    def _make_ready(self) -> None:
        """Find what a run is given, from the table."""
        self._phases = (int(self._table.ctypes.data), len(self._table), self._pool.address)
        self._call = self._with_branches()
        splits = bool(((self._table[:, abi.ROW_THREADS] > 1) & (self._table[:, abi.ROW_TASKS] > 1)).any())
        splits |= bool(self._sections)
        self._team = self.threads if splits else 1
        self._once, self._is_checked = (*self._call, self._team, 1, 0), bool(self.faults)

    def _with_branches(self) -> tuple[int, int, int]:
        """The table in which a section of branches is one row, as `run_graph` takes it."""
        if not self._sections:
            return self._phases
        table, _, pool = self._phases
        row_bytes = self._table.strides[0]
        within = {position: section for section in self._sections for position in section}
        rows: list[list[int]] = []
        branches: list[tuple[int, int]] = []  # address of the first row, rows
        heads: list[tuple[int, int]] = []  # a section's row, its first branch
        last: tuple[int, int] | None = None  # section and branch of the row before
        for index, position in enumerate(self.row_nodes):
            section = within.get(position)
            if section is None:
                rows.append(self._table[index].tolist())
                last = None
                continue
            here = section.start, self.graph.nodes[position].branch
            if last is None or last[0] != here[0]:
                heads.append((len(rows), len(branches)))
                rows.append([0, 0, 0, self.threads])
            if last != here:
                branches.append((table + index * row_bytes, 0))
                rows[-1][abi.ROW_TASKS] += 1
            branches[-1] = branches[-1][0], branches[-1][1] + 1
            last = here
        self._parts = np.array(branches, np.int64)
        self._short = np.array(rows, np.int64)
        for row, first in heads:
            self._short[row, abi.ROW_SLOTS] = int(self._parts.ctypes.data) + first * self._parts.strides[0]
        return int(self._short.ctypes.data), len(rows), pool

    def kernel_threads(self) -> dict[str, int]:
        """Over how many threads each kernel's largest phase is split."""
        found: dict[str, int] = {}
        for node, row in zip(self.row_nodes, self._table, strict=True):
            kernel = self.graph.nodes[node].kernel
            team = min(int(row[abi.ROW_THREADS]), int(row[abi.ROW_TASKS]))
            found[kernel] = max(team, found.get(kernel, 1))
        return found

    @property
    def n_rows(self) -> int:
        """Number of phases that one run goes through."""
        return self._phases[1]

    def bind(self, value: int, address: int) -> None:
        """Set the address of a value that owns its storage; the caller keeps the memory alive."""
        for place in self._places.get(value, ()):
            self._slots[place] = address

    def place(self, value: int, memory: np.ndarray) -> None:
        """Let a value that owns its storage live in a row-major array, which is kept alive."""
        self._buffers[value] = memory
        self._views.clear()
        self._ends = None
        self.bind(value, address_of(memory))

    def forget(self, values: Iterable[int]) -> None:
        """Let go of the memory that `place` gave values; they get other memory before the next run."""
        for value in values:
            self._buffers.pop(value, None)
        self._views.clear()
        self._ends = None

    def allocate(self, value: int) -> None:
        """Give a value that owns its storage memory of its own, filled with zeros."""
        spec = self.value(value)
        try:
            memory = empty_aligned(spec.shape, spec.dtype)
        except OutOfMemoryError:
            with naming_the_largest(self.graph, spec.storage.kind):
                raise
        memory.fill(0)
        self.place(value, memory)

    def own(self, value: int) -> None:
        """Give a value memory of its own that holds what it holds now."""
        spec = self.value(value)
        memory = empty_aligned(spec.shape, spec.dtype)
        np.copyto(memory, self.view(value))
        self.place(value, memory)

    def adopt(self, value: int, given: NDArray | np.ndarray, where: str) -> None:
        """Let a value that owns its storage live in the caller's array from now on.

        Raises InvalidTypeError for what is no array, InvalidValueError for one that is not row-major and aligned.
        """
        data = given.view() if isinstance(given, NDArray) else given
        if data.ctypes.data % ALIGNMENT or not data.flags.c_contiguous:
            raise InvalidValueError(f"the array is not row-major or not aligned to {ALIGNMENT} bytes", where=where)
        self.place(value, data)

    def array(self, value: int) -> NDArray:
        """Give a value's own memory as an array; the next run overwrites it."""
        if value not in self._views:
            spec, memory = self.value(value), self._memory_of(self._root(value))
            flat = memory.reshape(-1).view(np.uint8)[: spec.size_bytes]
            self._views[value] = NDArray(flat.view(spec.dtype).reshape(spec.shape))
        return self._views[value]

    def _memory_of(self, root: int) -> np.ndarray:
        """The memory of a value that owns its storage."""
        spec = self.value(root)
        if root in self._buffers or spec.storage.kind != "arena":
            return self._buffers[root]
        return self._arena[spec.storage.index : spec.storage.index + spec.size_bytes]

    def share(self, value: int, other: GraphProgram) -> None:
        """Let a value that owns its storage live where another program of the graph has it."""
        assert isinstance(other, Program), "of the same executable"
        self.place(value, other._memory_of(value))

    def view(self, value: int) -> np.ndarray:
        """The same for NumPy."""
        return self.array(value).view()

    def run(self, number: int = 1) -> int:
        """Run the graph `number` times; gives the threads that were used.

        Raises IndexOutOfRangeError naming the node that met a position out of range; outputs are then undefined.
        """
        with self.lock:
            if self._team > 1:
                self._pool.ensure(self._team)
            used = self._pool.run(*self._call, self._team, number, 0)
            if self.faults:
                self.faults.check()
            return used

    def call(self, values: Sequence[NDArray | np.ndarray]) -> list[np.ndarray]:
        """Run on one array for each of the graph's inputs, which have memory of their own; gives new arrays.

        It is `run` and what is around it in few steps: a call of a small model is hardly more. Raises ShapeError, and
        as `run`.
        """
        with self.lock:
            if self._ends is None:
                self._ends = self._find_ends()
            inputs, outputs = self._ends
            moved: dict[_End, np.ndarray] = {}
            try:
                for end, value in zip(inputs, values, strict=True):
                    data = value if type(value) is np.ndarray else as_numpy(value)
                    if data.shape != end.array.shape:
                        raise ShapeError(
                            f"an input of shape {list(end.array.shape)} was given one of {list(data.shape)}"
                        )
                    if end.slots and data.dtype == end.array.dtype and is_readable(data):
                        moved[end] = data
                    else:
                        end.array[...] = data
                for end in outputs:
                    if end.slots:
                        moved[end] = end.new()
                for end in moved:
                    self._slots[end.slots] = address_of(moved[end])
                if self._team > 1:
                    self._pool.ensure(self._team)
                self._pool.run(*self._once)
                if self._is_checked:
                    self.faults.check()
            finally:
                for end in moved:
                    self._slots[end.slots] = end.address
            return [moved[end] if end.slots else end.make() for end in outputs]

    def _find_ends(self) -> tuple[list[_End], list[_End]]:
        """The inputs and outputs; a large one that nothing else shares or writes need not be copied."""
        numbers = [*self.graph.inputs, *self.graph.outputs]
        views = {n: self.view(n) for n in numbers}
        roots = Counter(map(self._root, numbers))
        is_large = any(view.nbytes >= LEAST_LENT for view in views.values())
        written = {self._root(n) for node in self.graph.nodes for n in node.outputs} if is_large else set()

        def slots(number: int, kind: str) -> list[int]:
            root = self._root(number)
            view, spec = views[number], self.value(root)
            can_move = view.nbytes >= LEAST_LENT and spec.storage.kind == kind and spec.size_bytes == view.nbytes
            if not can_move or roots[root] > 1 or (root in written) != (kind == "output"):
                return []
            return self._places[root]

        inputs = [_End(views[n], slots(n, "input")) for n in self.graph.inputs]
        return inputs, [_End(views[n], slots(n, "output")) for n in self.graph.outputs]

    def run_nodes(self, nodes: range, number: int = 1) -> None:
        """Run some of the graph's nodes, which follow each other, `number` times on what is in memory now."""
        rows = [row for row, node in enumerate(self.row_nodes) if node in nodes]
        if rows:
            table, _, pool = self._phases
            part = table + rows[0] * self._table.strides[0], len(rows), pool
            with self.lock:
                if self._team > 1:
                    self._pool.ensure(self._team)
                self._pool.run(*part, self._team, number, 0)
                if self.faults:
                    self.faults.check()

    def seconds(self, number: int = 1) -> float:
        """Run the graph `number` times and give the time that all of them took."""
        start = time.perf_counter()
        self.run(number)
        return time.perf_counter() - start

    def synchronize(self) -> None:
        """Nothing to wait for: a run has finished when it returns."""

    def profile(self, number: int = 1) -> np.ndarray:
        """Run the graph `number` times and give each node's seconds in one run, on average.

        A node's time holds some 50 ns for reading the clock. Branches run one after the other for that.
        """
        times = np.zeros(abi.TIMES_FIRST_ROW + self.n_rows, np.int64)
        with self.lock:
            if self._team > 1:
                self._pool.ensure(self._team)
            self._pool.run(*self._phases, self._team, number, int(times.ctypes.data))
            if self.faults:
                self.faults.check()
        seconds = np.zeros(len(self.graph.nodes))
        np.add.at(seconds, np.array(self.row_nodes, np.intp), times[abi.TIMES_FIRST_ROW :] * (1e-9 / number))
        return seconds


def _matrix(rows: Collection[Iterable[int]]) -> np.ndarray:
    """Rows of equal lengths as an array."""
    return np.array([[*row] for row in rows], np.intp)
