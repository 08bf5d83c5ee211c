"""Candidates on a GPU: their arguments there, the check of what they gave, and their times by the device's clock.

What is right is found out on the device: inputs are compared with copies of them, outputs with the reference. The host
looks at what that refuses, and says what is wrong. It looks at everything where there is nothing to compare with:
on devices without the kernels for it, or without room.

A launch through Python takes longer than a short kernel does, so calls are captured as CUDA graphs of several. An
illegal address spoils the process's use of the device: the role's process ends after that reply, and the candidate
alone has paid for it.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from autosched.errors import DeviceError
from autosched.runtime.cuda.comparisons import KINDS, Comparisons
from autosched.runtime.cuda.devices import driver_of
from autosched.runtime.cuda.driver import Driver, Memory
from autosched.runtime.cuda.kernel import CudaKernel
from autosched.runtime.cuda.program import as_cuda
from autosched.runtime.faults import WORDS
from autosched.runtime.kernel import ArgSpec
from autosched.target import Target
from autosched.task import Status
from autosched.tuner.measure.base import CandidateError, MeasureOptions
from autosched.tuner.measure.check import Verdict, check_output
from autosched.tuner.measure.reference import CHECKED_AGAINST, Reference

if TYPE_CHECKING:
    from autosched.runtime.kernel import Kernel
    from autosched.templates.pack import Packing
    from autosched.tuner.measure.base import Packs

GUARD_BYTES = 1024  # on either side of what a candidate writes
POISON = 0xFF  # NaN as floats: what nobody wrote is no result
CALLS_PER_GRAPH = 16
FLUSHED = 2  # times the second-level cache is written to empty it

log = logging.getLogger(__name__)


class Guarded:
    """Device memory with guards on both sides, filled with what no result is."""

    def __init__(self, driver: Driver, size_bytes: int):
        self.driver, self.size_bytes = driver, size_bytes
        self.whole_bytes = 2 * GUARD_BYTES + -(-size_bytes // 4) * 4
        self._memory: Memory = driver.allocate(self.whole_bytes)
        self.address = self._memory.address + GUARD_BYTES
        self.poison()

    @property
    def n_words(self) -> int:
        """Words of 4 bytes; what the last one has beyond the array is a guard."""
        return -(-self.size_bytes // 4)

    @property
    def whole_address(self) -> int:
        """Where the first guard is."""
        return self._memory.address

    def poison(self) -> None:
        """Forget all results."""
        self.driver.fill(self._memory.address, POISON, self.whole_bytes)

    def guards_hold(self) -> bool:
        """Whether nothing was written beside it."""
        end = self.address + self.size_bytes
        for address, size_bytes in (
            (self._memory.address, GUARD_BYTES),
            (end, self._memory.address + self.whole_bytes - end),
        ):
            found = np.empty(size_bytes, np.uint8)
            self.driver.copy_out(found, address)
            if not bool((found == POISON).all()):
                return False
        return True

    def read(self, shape: tuple[int, ...], dtype: str) -> np.ndarray:
        """What it holds."""
        data = np.empty(shape, dtype)
        self.driver.copy_out(data, self.address)
        return data


def has_same_bytes(a: np.ndarray, b: np.ndarray) -> bool:
    """Whether two row-major arrays of one shape and type are equal, bit by bit."""
    return bool((a.reshape(-1).view(np.uint8) == b.reshape(-1).view(np.uint8)).all())


@dataclass(frozen=True, slots=True)
class Input:
    """An argument on the device, and the values that it has to keep.

    kept  a copy of it there, guards included; None where there is none
    """

    memory: Guarded
    values: np.ndarray
    kept: Guarded | None = None

    def is_unchanged(self, comparisons: Comparisons | None) -> bool:
        """Whether a candidate has left it alone."""
        if comparisons is not None and self.kept is not None:
            whole = self.memory.whole_address, self.kept.whole_address, self.memory.whole_bytes // 4
            return comparisons.n_different(*whole) == 0
        found = self.memory.read(self.values.shape, str(self.values.dtype))
        return has_same_bytes(found, self.values) and self.memory.guards_hold()


class DeviceLoaded:
    """One candidate with its arguments on the device.

    flush  memory that is written before each call, so that it finds nothing in the caches; None: caches are warm
    """

    def __init__(
        self, kernel: CudaKernel, driver: Driver, inputs: Sequence[Guarded], outputs: Sequence[Guarded],
        flush: Guarded | None,
    ):  # fmt: skip
        self.kernel, self.driver, self.outputs, self._flush = kernel, driver, outputs, flush
        self.sets: Sequence[object] = (inputs,)
        self._entries = driver.load(kernel)
        self.scratch = Guarded(driver, kernel.scratch_bytes)
        places = (inputs_then_outputs(kernel, inputs, outputs), self.scratch.address if kernel.scratch_bytes else 0)
        self._words = Guarded(driver, WORDS * 8 * len(kernel.checks)) if kernel.checks else None  # written, never read
        self._addresses = [*places[0], places[1], *([self._words.address] if self._words is not None else [])]
        self._graph: Callable[[], None] | Literal[False] | None = None
        self.right: dict[int, np.ndarray] = {}  # by their numbers, outputs that were found right

    def _call(self, number: int) -> None:
        for _ in range(number):
            for i, sizes in self.kernel.calls:
                self.driver.launch(self._entries[i], self.kernel.launches[i], [*self._addresses, *sizes])

    def run(self, number: int = 1) -> float:
        """Call it so often; gives the seconds that the device took."""
        if self._flush is not None:
            marks = [self._cold() for _ in range(number)]  # the host runs ahead: the device waits for no launch
            return sum(self.driver.seconds_between(*pair) for pair in marks)
        whole, rest = divmod(number, CALLS_PER_GRAPH)
        if whole and self._graph is None:
            self._graph = self.driver.capture(lambda: self._call(CALLS_PER_GRAPH)) or False
        first = self.driver.record()
        for _ in range(whole):
            if self._graph:
                self._graph()
            else:
                self._call(CALLS_PER_GRAPH)
        self._call(rest)
        return self.driver.seconds_between(first, self.driver.record())

    def _cold(self) -> tuple[Any, Any]:
        """Empty the caches and call once; gives the marks before and after the call."""
        assert self._flush is not None, "asked for"
        self.driver.fill(self._flush.address, 0, self._flush.size_bytes)
        first = self.driver.record()
        self._call(1)
        return first, self.driver.record()


def inputs_then_outputs(kernel: CudaKernel, inputs: Sequence[Guarded], outputs: Sequence[Guarded]) -> list[int]:
    """The addresses of a kernel's arguments in its own order."""
    rows = {"input": iter(inputs), "output": iter(outputs)}
    return [next(rows[arg.role]).address for arg in kernel.args]


@dataclass(frozen=True, slots=True)
class Expected:
    """The reference of an output on the device: floats as float64, others in their own type.

    kind     one of `runtime.cuda.comparisons.KINDS`
    scale    the largest finite value
    """

    memory: Guarded
    kind: str
    scale: float


class DeviceBench:
    """Inputs, outputs and reference of one task on a device; kernels of all its configurations are laid on it.

    comparisons  the kernel that compares on the device (see `codegen.cuda.comparisons`); None: the host compares
    """

    checked_against = CHECKED_AGAINST

    def __init__(self, reference: Reference, index: int = 0, comparisons: CudaKernel | None = None):
        self._reference, self.driver = reference, driver_of(index)
        self._comparisons = None if comparisons is None else Comparisons(self.driver, comparisons)
        self._inputs: dict[tuple[int, Packing | None], Input] = {}
        self._expected: dict[int, Expected | None] = {}
        self._flush: Guarded | None = None

    def load(self, kernel: Kernel, packs: Packs, pool: object, threads: int, *, cold_bytes: int = 0) -> DeviceLoaded:
        """Load a kernel with its arguments; with `cold_bytes` its calls find nothing in the caches.

        Raises CandidateError if its arguments are not those of the task, DeviceError for machine code of another
        device and where memory does not suffice.
        """
        del pool, threads  # of the host
        kernel, packs = as_cuda(kernel), packs or (None,) * len(kernel.args)
        wanted, given = len(self._reference.inputs) + len(self._reference.outputs), len(kernel.args)
        if given != wanted or len(packs) != wanted or len(kernel.inputs) != len(self._reference.inputs):
            raise CandidateError(Status.RUN_ERROR, f"{kernel.signature} has other arguments than the task's function")
        if any(pack is not None for pack in packs[len(kernel.inputs) :]):
            raise CandidateError(Status.RUN_ERROR, "packed outputs are not measured on a device")
        inputs = [self._input(i, arg, packs[i]) for i, arg in enumerate(kernel.inputs)]
        outputs = [Guarded(self.driver, arg.size_bytes) for arg in kernel.outputs]
        return DeviceLoaded(kernel, self.driver, inputs, outputs, self._cold_memory(kernel) if cold_bytes else None)

    def _cold_memory(self, kernel: CudaKernel) -> Guarded:
        if self._flush is None:
            self._flush = Guarded(self.driver, FLUSHED * Target(kernel.target).gpu.l2_bytes)
        return self._flush

    def _input(self, index: int, arg: ArgSpec, pack: Packing | None) -> Guarded:
        key = index, pack
        if key not in self._inputs:
            natural = np.asarray(self._reference.inputs[index])
            values = np.ascontiguousarray(natural if pack is None else pack.pack(natural), arg.dtype)
            if values.size != math.prod(arg.shape):
                text = f"argument {arg} of the kernel does not hold the task's argument, which is packed to "
                raise CandidateError(Status.RUN_ERROR, f"{text}{values.shape}")
            memory = Guarded(self.driver, values.nbytes)
            self.driver.copy_in(memory.address, values)
            self._inputs[key] = Input(memory, values, self._copy_of(memory))
        return self._inputs[key].memory

    def _copy_of(self, memory: Guarded) -> Guarded | None:
        """A copy of an argument that words can be compared with; None where it is too large."""
        if self._comparisons is None or not Comparisons.can_count(memory.whole_bytes // 4):
            return None
        if (kept := self._allocate(memory.size_bytes)) is not None:
            self.driver.copy_on(kept.whole_address, memory.whole_address, memory.whole_bytes)
        return kept

    def _allocate(self, size_bytes: int) -> Guarded | None:
        """Memory that can be done without; None where there is too little."""
        if 4 * size_bytes > self.driver.free_bytes()[0]:
            return None
        return Guarded(self.driver, size_bytes)

    def _expected_of(self, index: int, arg: ArgSpec, poisoned: Guarded) -> Expected | None:
        """The reference of an output on the device; None where it cannot be compared with there.

        poisoned  memory of the output that nothing was written to: a comparison has to refuse all of it
        """
        if index not in self._expected:
            self._expected[index] = self._place_expected(index, arg, poisoned)
        return self._expected[index]

    def _place_expected(self, index: int, arg: ArgSpec, poisoned: Guarded) -> Expected | None:
        is_float = arg.dtype in KINDS
        values = np.ascontiguousarray(self._reference.outputs[index], np.float64 if is_float else arg.dtype)
        size = math.prod(arg.shape) if is_float else poisoned.n_words
        if self._comparisons is None or values.size != math.prod(arg.shape) or not Comparisons.can_count(size):
            return None
        if (memory := self._allocate(values.nbytes)) is None:
            return None
        self.driver.copy_in(memory.address, values)
        if not is_float:
            n_unwritten = int((_words(values) != 0xFFFFFFFF).sum())
            made = Expected(memory, "word", 0.0)
        else:
            n_nan = int(np.isnan(values).sum())
            n_unwritten = size if self._reference.is_part else size - n_nan
            finite = np.abs(values[np.isfinite(values)]) if n_nan else np.abs(values)
            made = Expected(memory, arg.dtype, float(finite[np.isfinite(finite)].max(initial=0.0)))
        if (n := self._n_wrong(index, arg, poisoned, made, 0.0)) != n_unwritten:
            log.warning("%s: the device finds %d of %d values unwritten; the host compares", arg, n, n_unwritten)
            return None
        return made

    def _n_wrong(self, index: int, arg: ArgSpec, found: Guarded, expected: Expected, bound: float) -> int:
        assert self._comparisons is not None, "where something is expected on the device"
        if expected.kind == "word":
            return self._comparisons.n_different(found.address, expected.memory.address, found.n_words)
        at = arg.dtype, found.address, expected.memory.address, math.prod(arg.shape), bound
        return self._comparisons.n_wrong(*at, is_part=self._reference.is_part)

    def _is_right(self, index: int, arg: ArgSpec, found: Guarded, options: MeasureOptions) -> bool:
        """Whether the device finds an output right: the host need not look at it."""
        expected = self._expected.get(index)
        if expected is None:
            return False
        bound = self._allowed(index, arg, options) * expected.scale
        return self._n_wrong(index, arg, found, expected, bound) == 0

    def _allowed(self, index: int, arg: ArgSpec, options: MeasureOptions) -> float:
        """The error that is allowed, as a share of the largest value."""
        rounding = self._reference.rounding[index]
        return max(rounding, options.accuracy) if arg.dtype in ("float16", "float32") else rounding

    def make_fresh(self, loaded: DeviceLoaded) -> None:
        """Fill outputs and scratch with what no result is: nothing of an earlier kernel can pass as a result."""
        for memory in (*loaded.outputs, loaded.scratch):
            memory.poison()
        for j, arg in enumerate(loaded.kernel.outputs if self._comparisons is not None else ()):
            self._expected_of(j, arg, loaded.outputs[j])

    def recheck(self, loaded: DeviceLoaded, packs: Packs, options: MeasureOptions) -> None:
        """As `check`: many runs leave what one does."""
        self.check(loaded, packs, options)

    def check(self, loaded: DeviceLoaded, packs: Packs, options: MeasureOptions) -> None:
        """Compare what a kernel left in its outputs. Raises CandidateError (WRONG_RESULT or NON_FINITE)."""
        kernel = loaded.kernel
        packs = packs or (None,) * len(kernel.args)
        for i, arg in enumerate(kernel.inputs):
            if not self._inputs[i, packs[i]].is_unchanged(self._comparisons):
                self._inputs.clear()
                raise CandidateError(Status.WRONG_RESULT, f"wrote into or beside its input '{arg.name}'")
        for j, arg in enumerate(kernel.outputs):
            if not loaded.outputs[j].guards_hold():
                raise CandidateError(Status.WRONG_RESULT, f"wrote beside its output '{arg.name}'")
            if self._is_right(j, arg, loaded.outputs[j], options):
                continue
            found, expected = loaded.outputs[j].read(arg.shape, arg.dtype), np.asarray(self._reference.outputs[j])
            if j in loaded.right and has_same_bytes(found, loaded.right[j]):
                continue
            verdict = self._compare(j, arg, found, expected.reshape(arg.shape), options)
            if verdict.status is not Status.OK:
                raise CandidateError(verdict.status, verdict.text)
            loaded.right[j] = found
        if not loaded.scratch.guards_hold():
            raise CandidateError(Status.WRONG_RESULT, "wrote beside its scratch memory")

    def _compare(
        self, index: int, arg: ArgSpec, found: np.ndarray, expected: np.ndarray, options: MeasureOptions
    ) -> Verdict:
        if self._reference.is_part:
            unknown = np.isnan(expected)
            if not bool(np.isfinite(found[unknown]).all()):
                text = f"{arg.name}: values that are not finite, or that nobody wrote"
                raise CandidateError(Status.NON_FINITE, text)
            found = np.where(unknown, np.asarray(np.nan, found.dtype), found)
        return check_output(arg.name, found, expected, self._allowed(index, arg, options))


def _words(values: np.ndarray) -> np.ndarray:
    """Values as words of 4 bytes, the last one filled up as guards are."""
    data = np.frombuffer(values.tobytes(), np.uint8)
    return np.concatenate([data, np.full(-len(data) % 4, POISON, np.uint8)]).view(np.uint32)


def spoils_the_device(error: BaseException) -> bool:
    """Whether nothing can run on the device in this process after an error."""
    return isinstance(error, DeviceError) and any(
        words in str(error).lower() for words in ("illegal", "launch failure", "misaligned", "hardware stack")
    )
