"""The arrays that a task's candidates run on, and the check of what they gave. Used in the runner's process."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, TypeVar

import numpy as np

from autosched.runtime import native_abi as abi
from autosched.runtime.cpu.kernel import as_cpu
from autosched.runtime.faults import Faults
from autosched.runtime.kernel import ArgSpec, Kernel
from autosched.runtime.loader import load_objects
from autosched.runtime.memory import ALIGNMENT, empty_block
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
_MOST_BLOCKS = 6  # finalists and the default are compared: four kernels, each with its own form of the weights


@dataclass(frozen=True, slots=True, eq=False)
class Copy:
    """A copy of a weight: only its place matters."""

    array: np.ndarray


class Placed(Protocol):
    """Something with an array whose memory stays where it is."""

    @property
    def array(self) -> np.ndarray: ...


class LoadedKernel:
    """One kernel with one or more sets of arguments, which its calls use in turn.

    sets     per set the arrays in the order of the kernel's arguments
    threads  that the pieces of a phase are divided over
    Raises ArtifactError if the object code cannot be loaded, MemoryError if there is no memory for its scratch.
    """

    def __init__(self, kernel: Kernel, sets: Sequence[Sequence[Placed]], pool: ThreadPool, threads: int):
        self.kernel, self.threads, self.sets = as_cpu(kernel), threads, sets
        self._pool = pool
        self.scratch = GuardedArray((max(self.kernel.scratch_size(threads), 64),), "uint8")
        addresses, scratch = load_objects([self.kernel]), int(self.scratch.array.ctypes.data)
        self.faults = Faults([(kernel.name, kernel)])
        ends = [scratch, self.faults.address(0)]
        self._slots = np.array([[*(int(a.array.ctypes.data) for a in arrays), *ends] for arrays in sets], np.int64)
        first, step = int(self._slots.ctypes.data), self._slots.strides[0]
        rows = [
            (addresses[phase.symbol], first + number * step, phase.n_tasks, threads)
            for number in range(len(sets))
            for phase in self.kernel.phases
        ]
        self._table = np.array(rows, np.int64).reshape(len(rows), abi.ROW_WORDS)
        self._next = 0  # the set that the next call uses
        if threads > 1:
            pool.ensure(threads)

    def run(self, number: int = 1) -> None:
        """Call the kernel `number` times."""
        n_sets = len(self.sets)
        if n_sets == 1:
            return self._call(0, 1, number)
        while number > 0:
            laps = number // n_sets if self._next == 0 else 0
            count = n_sets if laps else min(number, n_sets - self._next)
            self._call(self._next, count, max(laps, 1))
            self._next = (self._next + count) % n_sets
            number -= count * max(laps, 1)

    def _call(self, first: int, count: int, times: int) -> None:
        n_phases = len(self.kernel.phases)
        address = int(self._table.ctypes.data) + first * n_phases * self._table.strides[0]
        self._pool.run(address, count * n_phases, self._pool.address, self.threads, times, 0)
        self.faults.check()


class Workbench:
    """Inputs, outputs and reference of one task; kernels of all its configurations are laid on it.

    Equal forms of an argument are made once, so that all candidates find them at the same place.
    """

    checked_against = CHECKED_AGAINST

    def __init__(self, reference: Reference):
        self._reference = reference
        self._inputs: dict[tuple[int, Packing | None], GuardedArray] = {}
        self._outputs: dict[tuple[int, Packing | None], tuple[GuardedArray, np.ndarray, np.ndarray | None]] = {}
        self._blocks: list[np.ndarray] = []  # memory of copies, the one used last at the end

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
        sets: list[list[Placed]] = [[*inputs, *outputs]]
        rotating = [i for i in range(n_inputs) if packs[i] is not None]
        number = count_sets([inputs[i] for i in rotating], cold_bytes)
        if number > 1:
            copies = {i: self._copies(inputs[i].array, number - 1) for i in rotating}
            sets += [
                [*(copies[i][n] if i in copies else inputs[i] for i in range(n_inputs)), *outputs]
                for n in range(number - 1)
            ]
        return LoadedKernel(kernel, sets, pool, threads)

    def _copies(self, array: np.ndarray, number: int) -> list[Copy]:
        """Copies of an array side by side in one block; the memory of older blocks is used again.

        Kernels that are compared may so find another argument's values in their copies: times do not depend on them,
        and results are checked while only one kernel is loaded.
        """
        stride = -(-array.nbytes // ALIGNMENT) * ALIGNMENT
        fitting = next((b for b in self._blocks if b.nbytes >= number * stride), None)
        if fitting is not None:
            self._blocks = [b for b in self._blocks if b is not fitting]
        elif len(self._blocks) >= _MOST_BLOCKS:
            self._blocks.pop(0)
        block = fitting if fitting is not None else empty_block(number * stride)
        self._blocks.append(block)
        rows = block[: number * stride].reshape(number, stride)
        rows[:, : array.nbytes] = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
        return [Copy(rows[n, : array.nbytes]) for n in range(number)]

    def make_fresh(self, loaded: LoadedKernel) -> None:
        """Fill outputs and scratch with what no result is: nothing of an earlier kernel can pass as a result."""
        loaded.scratch.poison()
        for array in loaded.sets[0][len(loaded.kernel.inputs) :]:
            assert isinstance(array, GuardedArray), "outputs are no copies"
            array.poison()

    def recheck(self, loaded: LoadedKernel, packs: Packs, options: MeasureOptions) -> None:
        """As `check`: many runs leave what one does."""
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


def count_sets(rotating: Sequence[GuardedArray], cold_bytes: int) -> int:
    """Give how many copies of the arrays fill so many bytes; 1 where there is nothing to rotate."""
    size = sum(array.array.nbytes for array in rotating)
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
