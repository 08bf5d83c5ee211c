"""What a section is, and where it runs: rows, cases, the device."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

import autosched
from autosched.records import FallbackContext
from autosched.runtime import array, cuda
from autosched.target import Target
from autosched.tir import PrimFunc


@dataclass(frozen=True)
class Row:
    """One line of a table: seconds of ours and of the peer, and a rate in units of its own."""

    what: str
    ours_s: float | None = None
    peer_s: float | None = None
    rate: str = ""
    note: str = ""

    def document(self) -> dict[str, Any]:
        return asdict(self)

    @staticmethod
    def read(document: dict[str, Any]) -> Row:
        return Row(**{name: document[name] for name in ("what", "ours_s", "peer_s", "rate", "note")})

    def cells(self) -> list[str]:
        ratio = f"{self.peer_s / self.ours_s:.3f}" if self.ours_s and self.peer_s else "—"
        return [self.what, _time(self.ours_s), _time(self.peer_s), ratio, self.rate or "—", self.note or "—"]


def _time(seconds: float | None) -> str:
    return "—" if seconds is None else f"{seconds * 1e6:.2f} µs"


@dataclass(frozen=True)
class Case:
    """One measurement of a section."""

    name: str
    run: Callable[[Bench], Iterable[Row]]  # each is written as soon as it is there


@dataclass(frozen=True)
class Section:
    """Cases with a time limit for all together; `bar` is what the ratio, peer's time over ours, has to reach."""

    title: str
    bar: str
    limit_s: float
    cases: Callable[[Bench], Iterable[Case]]


class Prepared(Exception):
    """What a case builds is in the kernel cache now."""


@dataclass(frozen=True)
class Bench:
    """Where things run.

    is_tiny      on the emulator, for the code's sake
    only_builds  cases end, by `Prepared`, as soon as their kernels are built
    around       how many configurations near the defaults are measured besides
    rows         a regular expression that the names of cases hold
    """

    target_text: str
    is_tiny: bool = False
    only_builds: bool = False
    around: int = 0
    rows: str = ""

    @property
    def target(self) -> Target:
        return Target(self.target_text)

    def size(self, full: int, tiny: int = 16) -> int:
        """A size of a workload."""
        return tiny if self.is_tiny else full

    @functools.cached_property
    def torch(self) -> Any:
        """PyTorch, where it sees the device; None elsewhere."""
        if self.is_tiny:
            return None
        with contextlib.suppress(ImportError):
            import torch

            return torch if torch.cuda.is_available() else None
        return None


RNG = np.random.default_rng(0)


def normal(shape: Sequence[int], dtype: str = "float32") -> np.ndarray:
    return RNG.standard_normal(tuple(shape), dtype="float32").astype(dtype)


def prepared(bench: Bench, func: PrimFunc) -> tuple[Any, list[Any]]:
    """A built function and its arguments on the device: inputs of normal numbers, outputs of zeros."""
    module = autosched.build(func, target=bench.target, records=FallbackContext())
    if bench.only_builds:
        raise Prepared
    function = module.entry_func
    arrays = [
        array(normal(arg.shape, arg.dtype) if arg.role == "input" else np.zeros(arg.shape, arg.dtype), cuda(0))
        for arg in function.args
    ]
    return function, arrays
