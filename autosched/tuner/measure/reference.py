"""References in files, as workers read them. Nothing here loads the compiler: a worker is there sooner."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Protocol

import numpy as np

from autosched.runtime.bfloat16 import know_dtype

if TYPE_CHECKING:
    from autosched.json_types import Json


CHECKED_AGAINST = "float64 reference"
_ROUNDING_FACTOR = 16.0
BFLOAT16_EPS = 2.0**-7


@dataclass(frozen=True, slots=True)
class Reference:
    """What a task's kernels are run on and compared with.

    inputs    natural arguments in the function's order, in their own dtypes
    outputs   the results, float64 for float dtypes
    rounding  per output the error that rounding alone may make, as a share of the largest value
    is_part   whether only some results were evaluated, as all of them take too long; the others are NaN
    """

    inputs: tuple[np.ndarray, ...]
    outputs: tuple[np.ndarray, ...]
    rounding: tuple[float, ...]
    seed: int
    is_part: bool = False


@dataclass(frozen=True, slots=True)
class StoredReference:
    """A Reference in `.npy` files, which a worker maps into its memory."""

    inputs: tuple[Path, ...]
    outputs: tuple[Path, ...]
    rounding: tuple[float, ...]
    seed: int
    is_part: bool = False

    def load(self) -> Reference:
        """Map the files. Raises OSError if one is gone."""
        inputs, outputs = ([_mapped(path) for path in paths] for paths in (self.inputs, self.outputs))
        return Reference(tuple(inputs), tuple(outputs), self.rounding, self.seed, self.is_part)

    def remove(self) -> None:
        """Delete the files."""
        for path in (*self.inputs, *self.outputs):
            path.unlink(missing_ok=True)


def _mapped(path: Path) -> np.ndarray:
    """A file's array. The format has no bfloat16: its values come as two bytes each."""
    array: np.ndarray = np.load(path, mmap_mode="r")
    if array.dtype != np.dtype("V2"):
        return array
    know_dtype("bfloat16")
    return array.view(np.dtype("bfloat16"))


class Stored(Protocol):
    """A reference in files, as it is sent to a worker."""

    def remove(self) -> None:
        """Delete the files."""
        ...


class References(Protocol):
    """How the candidates of a kind of task are run and checked.

    role             "module:class" of the runner's RunRole
    checked_against  what results are compared with, in words
    most_extra       how many further sets of inputs there are, beside the first
    spare            see `WorkerPool`: "at once" where a runner starts quickly
    """

    role: str
    checked_against: str
    most_extra: int
    spare: Literal["at once", "after a loss"]

    def store(
        self, func: Any, seed: int, folder: Path, key: str, ask: Callable[[Any, Mapping[str, Json]], object]
    ) -> Stored:
        """Make the reference of a task's function and write it into files of a folder.

        ask  has the runner's worker serve a message, for which it must have learnt some values before
        Raises OSError if the disk is full.
        """
        ...


def store_reference(reference: Reference, folder: Path, name: str) -> StoredReference:
    """Write a reference into files of a folder. Raises OSError if the disk is full."""
    paths: dict[str, list[Path]] = {"in": [], "out": []}
    for kind, arrays in (("in", reference.inputs), ("out", reference.outputs)):
        for index, array in enumerate(arrays):
            path = folder / f"{name}_{kind}{index}.npy"
            np.save(path, array, allow_pickle=False)
            paths[kind].append(path)
    inputs, outputs = tuple(paths["in"]), tuple(paths["out"])
    return StoredReference(inputs, outputs, reference.rounding, reference.seed, reference.is_part)


def rounding_share(dtype: str, sqrt_terms: float) -> float:
    """Bound the rounding error of a sum as a share of the largest result: 16 eps sqrt(terms), 0 for integers.

    Sums that become bfloat16 are made in float32, and rounded once.

    Errors of a sum of n independent terms grow like a random walk: about eps sqrt(n) of the result's own size. A
    single wrong term of n changes a result by about 1 / (4 sqrt(n)) of the largest, which is much more for any n that
    fits into memory.
    """
    if dtype == "bfloat16":
        return BFLOAT16_EPS + rounding_share("float32", sqrt_terms)
    return _ROUNDING_FACTOR * float(np.finfo(dtype).eps) * sqrt_terms if dtype.startswith("float") else 0.0
