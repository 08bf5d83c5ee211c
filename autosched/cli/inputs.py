"""The inputs of `run` and `bench`: from files, by name, or made up; the outputs to a file or a short list."""

from __future__ import annotations

import os
import tempfile
import zipfile
import zlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from autosched.errors import UsageError, VerificationFailed
from autosched.runtime.names import known_name

FILLS = ("zeros", "ones", "random")


def collect_inputs(
    wanted: Mapping[str, tuple[tuple[int, ...], str]],
    *,
    archive: Path | None = None,
    files: Sequence[str] = (),
    fill: str | None = None,
    seed: int = 0,
) -> dict[str, np.ndarray]:
    """Give an array for each input of a model.

    wanted   name -> (shape, dtype)
    archive  .npz with arrays by name, or .npy for a model with one input
    files    NAME=FILE.npy each; they win over the archive
    fill     what the remaining inputs are made of; None: random where nothing at all was given
    Raises   UsageError for a file that cannot be read, an unknown or missing input, another shape or dtype.
    """
    given = read_arrays(archive, wanted) if archive else {}
    for text in files:
        name, _, path = text.partition("=")
        if not path:
            raise UsageError(f"--input {text!r} names no file", hint="write --input NAME=FILE.npy")
        given[name] = _read_npy(Path(path))
    given = {known_name(name, wanted): array for name, array in given.items()}
    check_arrays(given, wanted)
    if not given and fill is None:
        fill = "random"
    missing = [name for name in wanted if name not in given]
    if missing and fill is None:
        raise UsageError(f"no data for input {', '.join(map(repr, missing))}", hint="give it, or use --fill random")
    made = {name: make_array(name, *wanted[name], fill or "random", seed) for name in missing}
    return {name: given[name] if name in given else made[name] for name in wanted}


def check_arrays(given: Mapping[str, np.ndarray], wanted: Mapping[str, tuple[tuple[int, ...], str]]) -> None:
    """Refuse arrays that are no inputs of the model or do not fit it."""
    for name, array in given.items():
        if name not in wanted:
            raise UsageError(f"the model has no input '{name}'", hint=f"it has {', '.join(map(repr, wanted))}")
        shape, dtype = wanted[name]
        if array.shape != tuple(shape):
            raise UsageError(f"input '{name}' has shape {list(array.shape)}, the model takes {list(shape)}")
        if array.dtype != np.dtype(dtype):
            raise UsageError(f"input '{name}' is {array.dtype}, the model takes {dtype}", hint="convert it when saving")


def make_array(name: str, shape: tuple[int, ...], dtype: str, fill: str, seed: int) -> np.ndarray:
    """Make an input up; random ones are standard normal (small numbers for integers) and depend on name and seed."""
    if fill == "zeros":
        return np.zeros(shape, dtype)
    if fill == "ones":
        return np.ones(shape, dtype)
    generator = np.random.default_rng([seed, zlib.crc32(name.encode())])
    kind = np.dtype(dtype).kind
    if kind == "f":
        return generator.standard_normal(shape).astype(dtype)
    return generator.integers(0, 2 if kind == "b" else 10, shape).astype(dtype)


def read_arrays(path: Path, wanted: Mapping[str, Any]) -> dict[str, np.ndarray]:
    """Read arrays by name from .npz, or one array from .npy. Raises UsageError."""
    if path.suffix == ".npy":
        if len(wanted) != 1:
            raise UsageError(f"{path} holds one array, the model has {len(wanted)} inputs", hint="use .npz or --input")
        return {next(iter(wanted)): _read_npy(path)}
    loaded = _load(path)
    if isinstance(loaded, np.ndarray):
        raise UsageError(f"{path} holds one array without a name", hint="name it .npy, or save it with numpy.savez")
    try:
        with loaded:
            return {name: loaded[name] for name in loaded.files}
    except (ValueError, OSError, zipfile.BadZipFile, zlib.error) as error:
        raise UsageError(f"cannot read {path}: {error}") from None


def _read_npy(path: Path) -> np.ndarray:
    loaded = _load(path)
    if not isinstance(loaded, np.ndarray):
        raise UsageError(f"{path} holds several arrays", hint="give it with -i")
    return loaded


def _load(path: Path) -> Any:
    if not path.is_file():
        raise UsageError(f"no file {path}")
    try:
        return np.load(path, allow_pickle=False)  # a pickle could run anything
    except (ValueError, OSError, EOFError, zipfile.BadZipFile) as error:
        raise UsageError(f"cannot read {path} as .npy or .npz: {error}") from None


def write_arrays(path: Path, arrays: Mapping[str, np.ndarray]) -> None:
    """Write an .npz whole or not at all."""
    if path.parent != Path() and not path.parent.is_dir():
        raise UsageError(f"no folder {path.parent}")
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "wb") as file:
            np.savez(file, **arrays)  # type: ignore[arg-type]  # names of outputs are keywords of savez
        os.chmod(name, 0o644)
        os.replace(name, path)
    except BaseException:
        os.unlink(name)
        raise


def largest(array: np.ndarray, count: int) -> list[tuple[tuple[int, ...], float]]:
    """Give position and value of the largest elements, largest first, ties by position."""
    flat = array.reshape(-1)
    order = np.argsort(-flat.astype(np.float64), kind="stable")[:count]
    return [(tuple(map(int, np.unravel_index(i, array.shape))), flat[i].item()) for i in order]


def compare(outputs: Mapping[str, np.ndarray], path: Path, rtol: float, atol: float) -> None:
    """Compare outputs with those of an .npz: |a - b| <= rtol * max|b| + atol for each element.

    Raises  VerificationFailed with the first difference; UsageError if names differ.
    """
    expected = read_arrays(path, outputs)
    for name, want in expected.items():
        if name not in outputs:
            raise UsageError(f"{path} has output '{name}', the model has {', '.join(map(repr, outputs))}")
        got = outputs[name]
        if got.shape != want.shape:
            raise VerificationFailed(f"output '{name}' has shape {list(got.shape)}, expected {list(want.shape)}")
        limit = rtol * float(np.abs(want).max(initial=0)) + atol
        wrong = ~(np.abs(got.astype(np.float64) - want.astype(np.float64)) <= limit)
        if wrong.any():
            first = tuple(map(int, np.argwhere(wrong)[0]))
            raise VerificationFailed(
                f"output '{name}' differs in {int(wrong.sum())} of {wrong.size} elements, first at {list(first)}: "
                f"{got[first].item():.7g} instead of {want[first].item():.7g}, limit {limit:.2g}"
            )
