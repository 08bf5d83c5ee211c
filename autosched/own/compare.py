"""Compares what a candidate leaves and returns with what is expected, in words."""

from __future__ import annotations

import numpy as np

from autosched.task import Status
from autosched.tuner.measure.check import GOOD, Verdict, check_output

NUMBERS = "biufc"


def compare_arrays(
    name: str, found: np.ndarray, expected: np.ndarray, share: float, allowed: float | None = None
) -> Verdict:
    """The verdict on an array; see `check_output`. Dtypes without arithmetic must have equal bytes."""
    kind = found.dtype.kind
    if found.dtype.names is not None and found.dtype == expected.dtype and found.shape == expected.shape:
        fields = (
            compare_arrays(f"{name}['{field}']", found[field], expected[field], share, allowed)
            for field in found.dtype.names
        )
        return next((verdict for verdict in fields if verdict.status is not Status.OK), GOOD)
    if found.shape != expected.shape:
        return _wrong(f"{name} has the shape {found.shape} where {expected.shape} is expected")
    if kind in NUMBERS and expected.dtype.kind in NUMBERS:
        if kind == "b":
            expected = expected.astype(bool)
        if kind == "c":
            found, expected = _parts(found), _parts(expected.astype(np.promote_types(expected.dtype, np.complex64)))
        return check_output(name, found, expected, share, allowed)
    return GOOD if same_bytes(found, expected.astype(found.dtype)) else _wrong(f"{name} has other values than expected")


def compare_values(name: str, found: object, expected: object, share: float, allowed: float | None = None) -> Verdict:
    """The verdict on a returned value: numbers and arrays within the tolerance, tuples part by part, others equal."""
    if isinstance(expected, tuple | list):
        if not isinstance(found, tuple | list) or len(found) != len(expected):
            return _wrong(f"{name} is {_short(found)} where {_short(expected)} is expected")
        verdicts = (
            compare_values(f"{name}[{i}]", a, b, share, allowed)
            for i, (a, b) in enumerate(zip(found, expected, strict=True))
        )
        return next((verdict for verdict in verdicts if verdict.status is not Status.OK), GOOD)
    if is_number(expected) and is_number(found):
        one, other = (np.atleast_1d(np.asarray(value)) for value in (found, expected))
        return compare_arrays(name, one, other, share, allowed)
    if type(found) is type(expected) and found == expected:
        return GOOD
    return _wrong(f"{name} is {_short(found)} where {_short(expected)} is expected")


def is_number(value: object) -> bool:
    """Whether a value is a number or an array."""
    return isinstance(value, bool | int | float | complex | np.generic | np.ndarray)


def same_bytes(one: np.ndarray, other: np.ndarray) -> bool:
    """Whether two arrays of one dtype hold the same bytes."""
    return one.tobytes() == other.tobytes()


def equal_places(one: np.ndarray, other: np.ndarray) -> np.ndarray:
    """Which elements have the same bytes."""
    one_bytes, other_bytes = (np.frombuffer(a.tobytes(), np.uint8).reshape(a.size, -1) for a in (one, other))
    return np.asarray((one_bytes == other_bytes).all(axis=1)).reshape(one.shape)


def close_places(one: np.ndarray, other: np.ndarray, share: float) -> np.ndarray:
    """Which elements agree but for rounding; the same as `equal_places` for what is no float."""
    if one.dtype.names is not None:
        fields = [close_places(one[name], other[name], share) for name in one.dtype.names]
        return np.asarray(np.all([part.reshape(*one.shape, -1).all(axis=-1) for part in fields], axis=0))
    if one.dtype.kind not in "fc":
        return equal_places(one, other)
    finite = np.abs(other[np.isfinite(other)]).max(initial=0.0)
    with np.errstate(invalid="ignore"):
        near = np.abs(one - other) <= share * finite
    return np.asarray(near | equal_places(one, other))


def _parts(array: np.ndarray) -> np.ndarray:
    """Real and imaginary parts side by side."""
    whole = np.ascontiguousarray(array)
    return whole.view(np.dtype(f"f{whole.dtype.itemsize // 2}"))


def _wrong(text: str) -> Verdict:
    return Verdict(Status.WRONG_RESULT, text)


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:77]}..."
