"""The arrays that a task's candidates run on, and the check of what they gave. Used in the runner's process."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeVar

import numpy as np

from autosched.runtime import native_abi as abi
from autosched.runtime.cpu.kernel import as_cpu
from autosched.runtime.faults import Faults
from autosched.runtime.kernel import ArgSpec, Kernel
from autosched.runtime.loader import load_objects
from autosched.runtime.memory import ALIGNMENT, address_of, empty_block
from autosched.runtime.pool import ThreadPool
from autosched.task import Status
from autosched.tuner.measure.base import CandidateError, MeasureOptions
from autosched.tuner.measure.check import check_output
from autosched.tuner.measure.memory import GuardedArray
from autosched.tuner.measure.reference import CHECKED_AGAINST, Reference

if TYPE_CHECKING:
    from autosched.templates.pack import Packing
    from autosched.tuner.measure.base import Packs

T = TypeVar("T")
_MOST_PACKED = 8  # forms of one argument that are kept
_MOST_SETS = 4096
_VALUES = 1 << 16  # floats in the memory of copies, again and again


@dataclass(frozen=True, slots=True)
class Copies:
    """Copies of a kernel's weights side by side in memory.

    number  of each
    places  by the argument's position: the address of its first copy, and how many bytes behind one the next begins
    memory  that they lie in, which lives as long as they do
    """

    number: int = 0
    places: Mapping[int, tuple[int, int]] = field(default_factory=dict)
    memory: tuple[np.ndarray, ...] = ()


class ColdMemory:
    """Where copies of weights lie.

    Copies of floats hold any floats of order one, in memory that all kernels share, as writing it takes longer than
    timing a kernel: times do not depend on values, and results are checked on the weights themselves. Copies of other
    types, which may be indices, are true ones, made for each kernel. Kernels take turns at the shared memory: each goes
    on where the one before stopped, so that what it reads was used longest ago.
    """

    def __init__(self) -> None:
        self._floats: dict[str, np.ndarray] = {}
        self._turn = 0.0  # the share of the memory that lies before the copies that are used next

    def copies(self, arrays: Mapping[int, np.ndarray], number: int, at_least: int = 0) -> Copies:
        """So many copies of each array, by the positions of arguments. Raises MemoryError where they do not fit.

        at_least  bytes that the copies of one kernel take together: memory is made for so much at once
        """
        places, memory = {}, []
        for dtype in dict.fromkeys(array.dtype for array in arrays.values()):
            own = {i: array for i, array in arrays.items() if array.dtype == dtype}
            is_float = dtype.name.startswith(("float", "bfloat"))
            groups = [own] if is_float else [{i: array} for i, array in own.items()]
            for group in groups:
                step = sum(_aligned(array.nbytes) for array in group.values())
                block = (
                    self._any_floats(dtype, max(number * step, at_least)) if is_float else empty_block(number * step)
                )
                start = address_of(block)
                for i, array in group.items():
                    places[i] = start, step
                    start += _aligned(array.nbytes)
                    if not is_float:
                        values = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
                        block[: number * step].reshape(number, step)[:, : array.nbytes] = values
                memory.append(block)
        return Copies(number, places, tuple(memory))

    def next_of(self, n_sets: int) -> int:
        """The set that is used next, of so many that fill the memory."""
        return math.ceil(self._turn * n_sets - 1e-6) % n_sets

    def stop_at(self, number: int, n_sets: int) -> None:
        """A kernel has used the sets before `number`."""
        self._turn = number / n_sets

    def _any_floats(self, dtype: np.dtype[np.generic], size: int) -> np.ndarray:
        """A block that is filled with floats, the one of before where it is large enough."""
        block = self._floats.pop(dtype.name, None)
        if block is None or block.nbytes < size:
            del block  # before the next one takes its memory
            values = np.random.default_rng(0).standard_normal(_VALUES, np.float32).astype(dtype).view(np.uint8)
            rows = -(-size // values.nbytes)
            block = empty_block(rows * values.nbytes)[: rows * values.nbytes]
            block.reshape(rows, values.nbytes)[:] = values
        self._floats[dtype.name] = block
        return block


def _aligned(size: int) -> int:
    return -(-size // ALIGNMENT) * ALIGNMENT


class LoadedKernel:
    """One kernel with one or more sets of arguments, which its calls use in turn.

    arrays   in the order of the kernel's arguments: the first set
    copies   of some of them, for the other sets, in the memory `cold`
    threads  that the pieces of a phase are divided over
    Raises ArtifactError if the object code cannot be loaded, MemoryError if there is no memory for its scratch.
    """

    def __init__(
        self,
        kernel: Kernel,
        arrays: Sequence[GuardedArray],
        pool: ThreadPool,
        threads: int,
        cold: ColdMemory,
        copies: Copies = Copies(),  # noqa: B008 (frozen)
    ):
        self.kernel, self.threads, self.arrays = as_cpu(kernel), threads, arrays
        self._pool, self._cold, self._copies = pool, cold, copies
        self.scratch = GuardedArray((max(self.kernel.scratch_size(threads), 64),), "uint8")
        symbols = load_objects([self.kernel])
        self.faults = Faults([(kernel.name, kernel)])
        ends = [address_of(self.scratch.array), self.faults.address(0)]
        n_sets, phases = copies.number + 1, self.kernel.phases
        slots = np.tile(np.array([*(address_of(a.array) for a in arrays), *ends], np.int64), (n_sets, 1))
        for i, (start, step) in copies.places.items():
            slots[1:, i] = start + step * np.arange(copies.number)
        self.sets: Sequence[object] = tuple(slots)
        self._slots = slots
        self._table = np.zeros((n_sets, len(phases), abi.ROW_WORDS), np.int64)
        places = address_of(slots) + slots.strides[0] * np.arange(n_sets)
        self._table[:, :, 0] = [symbols[phase.symbol] for phase in phases]
        self._table[:, :, 1] = places[:, None]
        self._table[:, :, 2] = [phase.n_tasks for phase in phases]
        self._table[:, :, 3] = threads
        self._next: int | None = None  # the set that the next call uses; None: as the cold memory says
        if threads > 1:
            pool.ensure(threads)

    def rewind(self) -> None:
        """Let the next call use the first set, whose results are known."""
        self._next = 0

    def run(self, number: int = 1) -> None:
        """Call the kernel `number` times."""
        n_sets = len(self.sets)
        if n_sets == 1:
            return self._call(0, 1, number)
        at, self._next = self._cold.next_of(n_sets) if self._next is None else self._next, None
        while number > 0:
            laps = number // n_sets if at == 0 else 0
            count = n_sets if laps else min(number, n_sets - at)
            self._call(at, count, max(laps, 1))
            at = (at + count) % n_sets
            number -= count * max(laps, 1)
        self._cold.stop_at(at, n_sets)

    def _call(self, first: int, count: int, times: int) -> None:
        n_phases = len(self.kernel.phases)
        address = address_of(self._table) + first * self._table.strides[0]
        self._pool.run(address, count * n_phases, self._pool.address, self.threads, times, 0)
        self.faults.check()


class Workbench:
    """Inputs, outputs and reference of one task; kernels of all its configurations are laid on it.

    Equal forms of an argument are made once, so that all candidates find them at the same place.
    """

    checked_against = CHECKED_AGAINST

    def __init__(self, reference: Reference, cold: ColdMemory | None = None):
        self._reference, self._cold = reference, cold or ColdMemory()
        self._inputs: dict[tuple[int, Packing | None], GuardedArray] = {}
        self._outputs: dict[tuple[int, Packing | None], tuple[GuardedArray, np.ndarray, np.ndarray | None]] = {}

    def load(
        self, kernel: Kernel, packs: Packs, pool: ThreadPool, threads: int, *, cold_bytes: int = 0
    ) -> LoadedKernel:
        """Load a kernel with its arguments.

        cold_bytes  its packed inputs (weights) rotate over so many bytes of copies; 0: always the same ones
        Raises  CandidateError if its arguments are not those of the task, MemoryError for copies that do not fit.
        """
        packs = packs or (None,) * len(kernel.args)
        wanted, given = len(self._reference.inputs) + len(self._reference.outputs), len(kernel.args)
        if given != wanted or len(packs) != wanted or len(kernel.inputs) != len(self._reference.inputs):
            raise CandidateError(Status.RUN_ERROR, f"{kernel.signature} has other arguments than the task's function")
        n_inputs = len(kernel.inputs)
        inputs = [self._input(i, kernel.args[i], packs[i]) for i in range(n_inputs)]
        outputs = [self._output(j, kernel.args[n_inputs + j], packs[n_inputs + j])[0] for j in range(given - n_inputs)]
        rotating = {i: inputs[i].array for i in range(n_inputs) if packs[i] is not None}
        number = count_sets(list(rotating.values()), cold_bytes)
        copies = self._cold.copies(rotating, number - 1, cold_bytes) if number > 1 else Copies()
        return LoadedKernel(kernel, [*inputs, *outputs], pool, threads, self._cold, copies)

    def make_fresh(self, loaded: LoadedKernel) -> None:
        """Fill outputs and scratch with what no result is: nothing of an earlier kernel can pass as a result."""
        loaded.scratch.poison()
        for array in loaded.arrays[len(loaded.kernel.inputs) :]:
            array.poison()
        loaded.rewind()

    def recheck(self, loaded: LoadedKernel, packs: Packs, options: MeasureOptions) -> None:
        """As `check`, after one run more on the weights themselves: many runs leave what one does."""
        if len(loaded.sets) > 1:
            loaded.rewind()
            loaded.run()
        self.check(loaded, packs, options)

    def check(self, loaded: LoadedKernel, packs: Packs, options: MeasureOptions) -> None:
        """Compare what a kernel left in its outputs. Raises CandidateError (WRONG_RESULT or NON_FINITE)."""
        kernel, n_inputs = loaded.kernel, len(loaded.kernel.inputs)
        packs = packs or (None,) * len(kernel.args)
        for i, arg in enumerate(kernel.inputs):
            if not self._inputs[i, packs[i]].is_unchanged():
                self._inputs.clear()
                raise CandidateError(Status.WRONG_RESULT, f"wrote into or beside its input '{arg.name}'")
        for j, arg in enumerate(kernel.outputs):
            array, expected, mask = self._outputs[j, packs[n_inputs + j]]
            if not array.guards_hold():
                raise CandidateError(Status.WRONG_RESULT, f"wrote beside its output '{arg.name}'")
            found, share = array.array, self._allowed(j, arg, options)
            if self._reference.is_part:
                found = _only_known(arg, found, expected)
            if mask is not None:
                found, expected = np.where(mask, found, expected.astype(found.dtype)), expected
            verdict = check_output(arg.name, found, expected, share)
            if verdict.status is not Status.OK:
                raise CandidateError(verdict.status, verdict.text)
        if not loaded.scratch.guards_hold():
            raise CandidateError(Status.WRONG_RESULT, "wrote beside its scratch memory")

    def _allowed(self, output: int, arg: ArgSpec, options: MeasureOptions) -> float:
        rounding = self._reference.rounding[output]
        return max(rounding, options.accuracy) if arg.dtype in ("float16", "float32") else rounding

    def _input(self, index: int, arg: ArgSpec, pack: Packing | None) -> GuardedArray:
        key = index, pack
        if key not in self._inputs:
            natural = np.asarray(self._reference.inputs[index])
            values = natural if pack is None else pack.pack(natural)
            _check_form(arg, values)
            _make_room(self._inputs, index)
            self._inputs[key] = GuardedArray(arg.shape, arg.dtype, values.reshape(arg.shape))
        _check_form(arg, self._inputs[key].array)
        return self._inputs[key]

    def _output(
        self, index: int, arg: ArgSpec, pack: Packing | None
    ) -> tuple[GuardedArray, np.ndarray, np.ndarray | None]:
        """The array, what is expected in it, and which of its elements count (None: all)."""
        key = index, pack
        if key not in self._outputs:
            natural = np.asarray(self._reference.outputs[index])
            expected, mask = natural, None
            if pack is not None:
                expected = pack.pack(natural)
                if expected.size != natural.size:
                    mask = pack.pack(np.ones(natural.shape, bool)).reshape(arg.shape)
            expected = expected.reshape(arg.shape)
            _make_room(self._outputs, index)
            self._outputs[key] = GuardedArray(arg.shape, arg.dtype), expected, mask
        _check_form(arg, self._outputs[key][0].array)
        return self._outputs[key]


def _only_known(arg: ArgSpec, found: np.ndarray, expected: np.ndarray) -> np.ndarray:
    """What was found, with NaN where nothing is known of it but that it has to be finite. Raises CandidateError."""
    unknown = np.isnan(expected)
    if not bool(np.isfinite(found[unknown]).all()):
        text = f"{arg.name}: values that are not finite, or that nobody wrote"
        raise CandidateError(Status.NON_FINITE, text)
    return np.where(unknown, np.asarray(np.nan, found.dtype), found)


def count_sets(rotating: Sequence[np.ndarray], cold_bytes: int) -> int:
    """Give how many copies of the arrays fill so many bytes; 1 where there is nothing to rotate."""
    size = sum(array.nbytes for array in rotating)
    return max(1, min(_MOST_SETS, math.ceil(cold_bytes / size))) if size else 1


def _check_form(arg: ArgSpec, values: np.ndarray) -> None:
    if values.size != math.prod(arg.shape):
        text = f"argument {arg} of the kernel does not hold the task's argument, which is packed to {values.shape}"
        raise CandidateError(Status.RUN_ERROR, text)


def _make_room(arrays: dict[tuple[int, Packing | None], T], index: int) -> None:
    """Drop the oldest form of an argument where there are too many."""
    forms = [key for key in arrays if key[0] == index]
    if len(forms) >= _MOST_PACKED:
        del arrays[forms[0]]
