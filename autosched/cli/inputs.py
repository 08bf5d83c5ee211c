"""The inputs of `run` and `bench`: from files, by name, or made up; the outputs to a file or a short list."""

from __future__ import annotations

import contextlib
import lzma
import os
import tokenize
import uuid
import zipfile
import zlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, TypedDict

import numpy as np

from autosched.cli.paths import check_file, check_output
from autosched.errors import UsageError, VerificationFailed
from autosched.runtime.names import known_name

if TYPE_CHECKING:
    from numpy.lib.npyio import NpzFile

Wanted = Mapping[str, tuple[tuple[int, ...], str]]  # shape and dtype of each input, by its name
SMALL = 2  # integers below it are valid as masks and as positions of almost anything
FILLS = ("zeros", "ones", "random")


# What NumPy and zipfile raise for files that are none of theirs: NumPy reads an array's header as Python text.
UNREADABLE = (
    *(ValueError, TypeError, SyntaxError, tokenize.TokenError, LookupError, ArithmeticError, RecursionError),
    *(OSError, EOFError, MemoryError, RuntimeError, zipfile.BadZipFile, zlib.error, lzma.LZMAError),
)


class Given(TypedDict):
    """What the options of a command give of the inputs, as `collect_inputs` takes it."""

    archive: Path | None
    files: Sequence[str]
    fill: str | None
    seed: int


def collect_inputs(
    wanted: Wanted,
    *,
    archive: Path | None = None,
    files: Sequence[str] = (),
    fill: str | None = None,
    seed: int = 0,
    ranges: Mapping[str, int] | None = None,
) -> dict[str, np.ndarray]:
    """Give an array for each input of a model.

    wanted   name -> (shape, dtype)
    archive  .npz with arrays by name, or .npy for a model with one input
    files    NAME=FILE.npy each; they win over the archive
    fill     what the remaining inputs are made of; None: random where nothing at all was given
    ranges   random integers lie in [0, ranges[name]), which is known of inputs that select elements of something
    Raises   UsageError for a file that cannot be read, an unknown or missing input, another shape or dtype.
    """
    given = check_files(wanted, archive=archive, files=files, fill=fill)
    given = {name: native_order(array) for name, array in given.items()}
    missing = [name for name in wanted if name not in given]
    limits = ranges or {}
    made = {name: make_array(name, *wanted[name], fill or "random", seed, limits.get(name, SMALL)) for name in missing}
    return {name: given[name] if name in given else made[name] for name in wanted}


def check_files(
    wanted: Wanted, *, archive: Path | None, files: Sequence[str], fill: str | None
) -> dict[str, np.ndarray]:
    """The arrays of the files by input; for the arguments and what is raised see `collect_inputs`."""
    given = read_arrays(archive, wanted) if archive else {}
    for text in files:
        name, path = _split(text)
        given[name] = _read_npy(path)
    given = {known_name(name, wanted): array for name, array in given.items()}
    check_arrays(given, wanted)
    missing = [name for name in wanted if name not in given]
    if missing and fill is None and (archive is not None or files):
        raise UsageError(f"no data for input {', '.join(map(repr, missing))}", hint="give it, or use --fill random")
    return given


def check_given(archive: Path | None, files: Sequence[str] = (), expected: Path | None = None) -> None:
    """Refuse files of arrays that cannot be read, before anything slow begins.

    archive, files  as `collect_inputs` takes them;  expected  .npz that results are compared with
    Raises          UsageError.
    """
    for path in filter(None, (archive, expected)):
        close(_load(path))
    for text in files:
        close(_load(_split(text)[1]))


def close(loaded: np.ndarray | NpzFile) -> None:
    """Close an archive; an array needs none of it."""
    if not isinstance(loaded, np.ndarray):
        loaded.close()


def _split(text: str) -> tuple[str, Path]:
    """(name, path) of NAME=FILE.npy; names may hold an equals sign. Raises UsageError."""
    name, _, path = text.rpartition("=")
    if not (name and path):
        hint = f"write -i {text}" if Path(text).suffix in (".npz", ".npy") else "write --input NAME=FILE.npy"
        raise UsageError(f"--input {text!r} names no file", hint=hint)
    return name, Path(path)


def check_arrays(given: Mapping[str, np.ndarray], wanted: Wanted) -> None:
    """Refuse arrays that are no inputs of the model or do not fit it."""
    for name, array in given.items():
        if name not in wanted:
            raise UsageError(f"the model has no input '{name}'", hint=f"it has {', '.join(map(repr, wanted))}")
        shape, dtype = wanted[name]
        if array.shape != tuple(shape):
            raise UsageError(f"input '{name}' has shape {list(array.shape)}, the model takes {list(shape)}")
        if array.dtype.newbyteorder("=") != np.dtype(dtype):
            raise UsageError(f"input '{name}' is {array.dtype}, the model takes {dtype}", hint="convert it when saving")


def native_order(array: np.ndarray) -> np.ndarray:
    """Give the same values in this machine's byte order."""
    return array.astype(array.dtype.newbyteorder("="), copy=False)


def make_array(name: str, shape: tuple[int, ...], dtype: str, fill: str, seed: int, limit: int = SMALL) -> np.ndarray:
    """Make an input up; random ones are standard normal (integers: in [0, limit)) and depend on name and seed."""
    if fill == "zeros":
        return np.zeros(shape, dtype)
    if fill == "ones":
        return np.ones(shape, dtype)
    generator = np.random.default_rng([seed, zlib.crc32(name.encode())])
    kind = np.dtype(dtype).kind
    if kind == "f":
        return generator.standard_normal(shape).astype(dtype)
    return generator.integers(0, 2 if kind == "b" else limit, shape).astype(dtype)


def read_arrays(path: Path, wanted: Mapping[str, object]) -> dict[str, np.ndarray]:
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
            arrays = {name: loaded[name] for name in loaded.files}
    except UNREADABLE as error:
        raise UsageError(f"cannot read {path}: {_reason(error)}") from None
    if strange := [name for name, array in arrays.items() if not isinstance(array, np.ndarray)]:
        raise UsageError(f"'{strange[0]}' in {path} is no array", hint="write it with numpy.savez")
    return arrays


def _read_npy(path: Path) -> np.ndarray:
    loaded = _load(path)
    if not isinstance(loaded, np.ndarray):
        raise UsageError(f"{path} holds several arrays", hint="give it with -i")
    return loaded


def _load(path: Path) -> np.ndarray | NpzFile:
    check_file(path)
    try:
        loaded: np.ndarray | NpzFile = np.load(path, allow_pickle=False)  # a pickle could run anything
        return loaded
    except UNREADABLE as error:
        raise UsageError(f"cannot read {path} as .npy or .npz: {_reason(error)}") from None


def _reason(error: Exception) -> str:
    """Say what NumPy means; its own text advises to unpickle what cannot be trusted."""
    text = str(error)
    if "Object arrays" in text:
        return "it holds Python objects, which are not loaded"
    return "it is no NumPy file" if "pickle" in text else text


def write_arrays(path: Path, arrays: Mapping[str, np.ndarray]) -> None:
    """Write an .npz whole or not at all. Raises UsageError where it cannot be written."""
    check_output(path)
    temporary = path.with_name(f".{path.name}.{uuid.uuid4().hex[:12]}.tmp")
    try:
        with open(temporary, "xb") as file:  # with the permissions that the user's umask gives
            np.savez(file, **arrays)  # type: ignore[arg-type]  # names of outputs are keywords of savez
        os.replace(temporary, path)
    except OSError as error:
        raise UsageError(f"cannot write {path}: {error.strerror or error}") from None
    finally:
        with contextlib.suppress(OSError):
            temporary.unlink()


def largest(array: np.ndarray, count: int) -> list[tuple[tuple[int, ...], float]]:
    """Give position and value of the largest elements, largest first, ties by position."""
    flat = array.reshape(-1)
    order = np.argsort(-flat.astype(np.float64), kind="stable")[:count]
    return [(tuple(map(int, np.unravel_index(i, array.shape))), flat[i].item()) for i in order]


def compare(outputs: Mapping[str, np.ndarray], path: Path, rtol: float, atol: float) -> str:
    """Compare outputs with those of an .npz: |a - b| <= rtol * max|b| + atol for each element.

    Gives   the largest error of each output, in words.
    Raises  VerificationFailed with the first and the largest difference; UsageError if names differ.
    """
    expected = {known_name(name, outputs): array for name, array in read_arrays(path, outputs).items()}
    if not expected:
        raise UsageError(f"{path} holds no array to compare with")
    errors = []
    for name, want in expected.items():
        if name not in outputs:
            raise UsageError(f"{path} has output '{name}', the model has {', '.join(map(repr, outputs))}")
        got = outputs[name]
        if got.shape != want.shape:
            raise VerificationFailed(f"output '{name}' has shape {list(got.shape)}, expected {list(want.shape)}")
        if want.dtype.kind not in "biuf":
            raise UsageError(f"'{name}' in {path} is {want.dtype}, no numbers")
        errors.append(_compare_one(name, got, want, rtol, atol))
    return ", ".join(errors)


def _compare_one(name: str, got: np.ndarray, want: np.ndarray, rtol: float, atol: float) -> str:
    a, b = got.astype(np.float64), want.astype(np.float64)
    largest_value = float(np.abs(b[np.isfinite(b)]).max(initial=0))
    limit = rtol * largest_value + atol
    with np.errstate(invalid="ignore"):  # infinities that are equal have no difference
        error = np.where((a == b) | (np.isnan(a) & np.isnan(b)), 0.0, np.abs(a - b))
    error = np.where(np.isnan(error), np.inf, error)  # a number where none is expected, or the other way round
    worst = float(error.max(initial=0))
    if worst > limit:
        wrong = error > limit
        first, place = (tuple(map(int, i)) for i in (np.argwhere(wrong)[0], np.unravel_index(error.argmax(), a.shape)))
        raise VerificationFailed(
            f"output '{name}' differs in {int(wrong.sum())} of {wrong.size} elements, first at {list(first)}: "
            f"{got[first].item():.7g} instead of {want[first].item():.7g}; largest error {worst:.3g} at {list(place)}, "
            f"limit {limit:.2g}"
        )
    relative = f" ({worst / largest_value:.1e} of the largest value)" if worst and largest_value else ""
    return f"largest error of '{name}' {worst:.2g}{relative}"
