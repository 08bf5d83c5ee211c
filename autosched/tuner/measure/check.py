"""Compares a candidate's output with the reference and says in words what is wrong."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from autosched.task import Status


@dataclass(frozen=True, slots=True)
class Verdict:
    """OK, WRONG_RESULT or NON_FINITE, with the worst place in words."""

    status: Status
    text: str = ""


GOOD = Verdict(Status.OK)
# Of bytes that are made of floats: those that may be off by a step, in number and as a share of all. Sums of whole
# numbers and a scale in float32 leave about one of 30,000 on the other side of a half.
LEAST_OFF, MOST_OFF = 2, 1e-3


def check_output(
    name: str, found: np.ndarray, expected: np.ndarray, share: float, allowed: float | None = None
) -> Verdict:
    """Compare an output with its reference.

    share    error allowed, as a share of the largest finite value expected; of integers, how many steps few of them may
             be off, as bytes are that float32 rounds to the neighbour; 0: they must be equal, as booleans must
    allowed  error that is allowed whatever the values are; None: hardly any
    Values that are not finite must be the same ones.
    """
    if found.dtype.name == "bfloat16":
        found, expected = found.astype(np.float32), np.asarray(expected).astype(np.float32)
    if found.dtype.kind in "fc":
        return _check_floats(name, found, expected, share, allowed)
    wrong = found.view(np.uint8) != expected.view(np.uint8) if found.dtype == bool else found != expected
    if not bool(wrong.any()):
        return GOOD
    if share and found.dtype != bool and int(wrong.sum()) <= max(LEAST_OFF, MOST_OFF * wrong.size):
        beyond = np.abs(found.astype(np.int64) - expected.astype(np.int64)) > share
        return _wrong(name, found, expected, beyond, "") if bool(beyond.any()) else GOOD
    return _wrong(name, found, expected, wrong, "")


def _check_floats(name: str, found: np.ndarray, expected: np.ndarray, share: float, allowed: float | None) -> Verdict:
    finite = np.isfinite(expected)
    all_finite = bool(finite.all())
    bad = ~np.isfinite(found) & finite
    if bool(bad.any()):
        left = _is_poison(found)
        if bool((left & bad).any()):
            return _wrong(name, found, expected, left & bad, "not written, or made of memory that nobody wrote")
        return _wrong(name, found, expected, bad, "not finite", Status.NON_FINITE)
    scale = float(np.abs(expected if all_finite else expected[finite]).max(initial=0.0))
    bound = share * scale + (float(np.finfo(found.dtype).tiny) if allowed is None else allowed)
    with np.errstate(invalid="ignore"):
        error = np.abs(found - expected)
    wrong = error > bound
    if not all_finite:
        same = (found == expected) | (np.isnan(found) & np.isnan(expected))
        wrong = np.where(finite, wrong, ~same)
    if not bool(wrong.any()):
        return GOOD
    worst = float(np.where(finite, error, 0).max(initial=0.0))
    detail = f"beyond {bound:.3g}; the largest error is {worst:.3g}"
    return _wrong(name, found, expected, wrong, detail)


def _is_poison(found: np.ndarray) -> np.ndarray:
    """Tell which values are the NaN that memory is filled with before a run; arithmetic passes its bits on.

    The NaN that an x86 processor makes by itself (0 / 0) has other bits.
    """
    whole = np.ascontiguousarray(found).view(np.dtype(f"u{found.dtype.itemsize}"))
    return np.asarray(whole == np.iinfo(whole.dtype).max)


def _wrong(
    name: str,
    found: np.ndarray,
    expected: np.ndarray,
    wrong: np.ndarray,
    detail: str,
    status: Status = Status.WRONG_RESULT,
) -> Verdict:
    place = np.unravel_index(int(np.argmax(wrong)), wrong.shape)
    index = ", ".join(str(int(i)) for i in place)
    text = f"{name}[{index}] is {found[place]} where {expected[place]} is expected"
    more = f"; {int(wrong.sum())} of {wrong.size} values are wrong"
    return Verdict(status, f"{text}{more}{f', {detail}' if detail else ''}")
