"""What runs in the runner's worker while an own function is tuned."""

from __future__ import annotations

import dataclasses
import importlib
import pickle
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from autosched.own.arguments import StoredArguments
from autosched.own.bench import OwnBench, Tolerance
from autosched.own.compiler import warm_up
from autosched.own.expected import Expected, find_expected
from autosched.own.memory import Memory
from autosched.own.metric import Metrics
from autosched.own.transfer import SentFunction, pack_value
from autosched.space import Config
from autosched.task import Measurement, Status
from autosched.task.trial import METRICS
from autosched.tuner.measure.base import CandidateError
from autosched.tuner.measure.reference import rounding_share
from autosched.tuner.measure.run_role import Run, RunRole

if TYPE_CHECKING:
    pass

ROLE = f"{__name__}:OwnRole"
PRELOAD = f"{__name__}:preload"


@dataclass(frozen=True, slots=True)
class StoredCall:
    """A call to be tuned, in files: what is sent to the runner's worker as its reference.

    default          the configuration whose results count
    truth            file with what the user's reference gives: (arrays by position of the argument or None, returned);
                     None: the default's results are the truth
    rtol, atol       given by the user; None: from the dtypes
    expected         file that the worker writes
    metrics          functions by name, pickled; b"" for none
    """

    sent: SentFunction
    arguments: StoredArguments
    default: Config
    truth: Path | None
    rtol: float | None
    atol: float | None
    expected: Path
    checked_against: str
    metrics: bytes = b""

    def remove(self) -> None:
        """Delete the files."""
        self.arguments.remove()
        for path in (self.truth, self.expected, self.probing):
            if path is not None:
                path.unlink(missing_ok=True)

    @property
    def probing(self) -> Path:
        """Marks that arguments are being filled with patterns: a run that dies of it is not repeated."""
        return self.expected.with_suffix(".probing")


def preload() -> None:
    """Do what builders and the runner of own functions begin with."""
    importlib.import_module("autosched.tuner.measure.builder")
    warm_up()


@dataclass(frozen=True, slots=True)
class MakeExpected:
    """A message: run the default of the call of a key and write down what it does."""

    key: str


class OwnRole(RunRole):
    """Serves MakeExpected beside what every runner serves."""

    bench: type[OwnBench] = OwnBench

    def __init__(self) -> None:
        super().__init__()
        self.warm_up()

    def warm_up(self) -> None:
        """Do what the first candidate would wait for."""
        warm_up()

    @property
    def pool(self) -> None:
        """Numba has threads of its own."""

    def learn(self, key: str, value: object) -> None:
        """Keep where a call is."""
        if isinstance(value, StoredCall):
            self._references[key] = value

    def do(self, message: Any) -> object:
        """Serve one message."""
        if isinstance(message, MakeExpected):
            self._make_expected(self._references[message.key])
            return None
        return super().do(message)

    def open_bench(self, reference: StoredCall, backend: str = "cpu") -> OwnBench:
        """Lay out a call's arguments with what is expected of them."""
        memory = Memory(reference.arguments)
        expected: Expected = pickle.loads(reference.expected.read_bytes())
        made = self.bench(reference.sent, memory, expected, _tolerance(reference, memory), reference.checked_against)
        made.metrics = Metrics(pickle.loads(reference.metrics)) if reference.metrics else Metrics()
        return made

    def _run(self, job: Run) -> Measurement | str:
        """A good measurement comes with the user's metrics, of the run after the last timed one."""
        found = super()._run(job)
        bench = self._bench[1] if self._bench is not None else None
        if not isinstance(found, Measurement) or not isinstance(bench, OwnBench) or not bench.metrics.functions:
            return found
        kernel: Any = job.entry.kernel
        values = bench.metrics.values(bench.facts(kernel, found.median_s))
        return dataclasses.replace(found, how={**found.how, METRICS: values})

    def _make_expected(self, call: StoredCall) -> None:
        memory = Memory(call.arguments)
        dispatcher = call.sent.dispatcher(call.default)
        is_probed = not call.probing.exists()
        call.probing.touch()
        found = find_expected(dispatcher, memory, _tolerance(call, memory).shares, is_probed=is_probed)
        call.probing.unlink()
        if call.truth is not None:
            found = _with_truth(found, memory, *pickle.loads(call.truth.read_bytes()))
        call.expected.write_bytes(pack_value(found))


def _tolerance(call: StoredCall, memory: Memory) -> Tolerance:
    """What rounding may change: by the dtype and by how many terms a result may have, or as the user says."""
    arrays = memory.first.arrays
    largest = max((array.size for array in arrays), default=1)
    longest = max((size for array in arrays if array.ndim > 1 for size in array.shape), default=1)
    dtypes = [array.dtype for array in arrays if array.dtype.kind in "fcV"]
    coarse = max((_rounding(dtype, largest) for dtype in dtypes), default=_rounding(np.dtype("float64"), largest))
    if call.rtol is not None:
        return Tolerance((call.rtol,) * len(arrays), call.rtol, call.atol)
    shares = tuple(_rounding(a.dtype, max(largest // max(a.size, 1), longest)) for a in arrays)
    return Tolerance(shares, coarse, call.atol)


def _rounding(kind: np.dtype, terms: int) -> float:
    """The share of a result that rounding may change; of a record, that of its coarsest field."""
    if kind.fields is not None:
        return max((_rounding(field[0].base, terms) for field in kind.fields.values()), default=0.0)
    if kind.kind not in "fc":
        return 0.0
    real = f"float{8 * kind.itemsize // (2 if kind.kind == 'c' else 1)}"
    return rounding_share(real, float(np.sqrt(max(terms, 1))))


def _with_truth(found: Expected, memory: Memory, arrays: list[np.ndarray], returned: object) -> Expected:
    """The expectation with the contents and the value that the user's reference gives.

    arrays    per array of the arguments what the reference has left in its copy
    returned  by the reference: the value, or the contents of what the function writes
    Raises    CandidateError where it says nothing of an array that the function writes.
    """
    written = [i for i, expected in enumerate(found.arrays) if expected is not None]
    contents: list[Any] = [None] * len(found.arrays)
    value = found.returned
    if returned is None:
        for i in written:
            contents[i] = arrays[i]
    elif found.returned is None:
        given = list(returned) if isinstance(returned, tuple | list) else [returned]
        if len(given) != len(written):
            names = ", ".join(memory.labels[i] for i in written) or "none"
            text = f"the reference returns {len(given)} arrays, and the function writes {len(written)}: {names}"
            raise CandidateError(Status.INVALID, text)
        for i, one in zip(written, given, strict=True):
            contents[i] = np.asarray(one)
    else:
        value = returned
        for i in written:
            contents[i] = arrays[i]
    for i in written:
        if contents[i].shape != found.arrays[i].shape:  # type: ignore[union-attr]
            text = f"the reference gives '{memory.labels[i]}' the shape {contents[i].shape}"
            raise CandidateError(Status.INVALID, text)
    return Expected(tuple(contents), value, found.start, found.is_reset)
