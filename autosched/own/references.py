"""The tuner's side of checking an own function: its arguments in files, and what its default makes of them."""

from __future__ import annotations

import re
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from autosched.errors import UsageError
from autosched.own.arguments import arrays_in, replace_arrays, store_arguments
from autosched.own.role import ROLE, MakeExpected, StoredCall
from autosched.own.transfer import SentFunction, pack_value
from autosched.space import Config
from autosched.task import Status

if TYPE_CHECKING:
    from autosched.json_types import Json

_WIDER = {"float16": "float64", "float32": "float64", "complex64": "complex128"}


@dataclass(frozen=True, eq=False)
class OwnCheck:
    """How results are judged.

    reference   a NumPy function of the same arguments, which returns what is expected or changes its arguments
    rtol, atol  error allowed, as a share of the largest value and whatever the values are
    """

    reference: Callable[..., object] | None = None
    rtol: float | None = None
    atol: float | None = None


class OwnReferences:
    """See `tuner.measure.reference.References`.

    named  the caller's arguments by name
    role   what the runner's worker is: "module:class"
    """

    most_extra = 0  # there are the caller's arguments, and no others
    spare: Literal["at once", "after a loss"] = "after a loss"  # each imports Numba

    def __init__(
        self,
        named: Mapping[str, object],
        default: Config,
        check: OwnCheck,
        role: str = ROLE,
        metrics: bytes = b"",
    ):
        self._metrics = metrics
        self._named, self._default, self._check, self.role = named, default, check, role
        self.checked_against = "the default's results" if check.reference is None else "the reference in float64"

    def store(
        self, func: SentFunction, seed: int, folder: Path, key: str, ask: Callable[[Any, Mapping[str, Json]], Any]
    ) -> StoredCall:
        """Write the arguments, and let the worker find out what the default does with them.

        Raises UsageError where the default does not run, or does not fit the reference.
        """
        check = self._check
        arguments = store_arguments(self._named, folder, key)
        truth = None
        if check.reference is not None:
            truth = folder / f"{key}_truth.pkl"
            truth.write_bytes(pack_value(_truth(check.reference, self._named)))
        expected = folder / f"{key}_expected.pkl"
        call = StoredCall(
            func, arguments, self._default, truth, check.rtol, check.atol, expected, self.checked_against, self._metrics
        )
        reply = ask(MakeExpected(key), {key: call})
        if (
            reply.status is Status.CRASH and call.probing.exists()
        ):  # the patterns, which are no indices, may be to blame
            reply = ask(MakeExpected(key), {key: call})
        if reply.status is Status.WRONG_RESULT:
            hint = "draw random numbers outside of it and give them to it, or seed their generator in it"
            raise UsageError(f"{func.name} is not deterministic: {reply.error}", hint=hint)
        if reply.status is not Status.OK:
            raise UsageError(f"the default of {func.name} does not run ({reply.status}): {_last_line(reply.error)}")
        return call


def _last_line(text: str) -> str:
    """What a traceback ends with; Numba's own messages have more of them, of which the first says it."""
    lines = [line.strip() for line in text.strip().splitlines() if line.strip()]
    if not lines:
        return ""
    errors = [i for i, line in enumerate(lines) if re.match(r"[\w.]*(Error|Exception|Interrupt)\b", line)]
    return " ".join(lines[errors[-1] :][:3]) if errors else lines[-1]


def _truth(reference: Callable[..., object], named: Mapping[str, object]) -> tuple[list[np.ndarray], object]:
    """What the reference leaves in copies of the arguments, floats in double width, and what it returns.

    Raises UsageError with what it raises.
    """
    copies: dict[Hashable, np.ndarray] = {}
    for value in named.values():
        for array in arrays_in(value):
            copies.setdefault(_place(array), array.astype(_WIDER.get(str(array.dtype), array.dtype)))
    values = [replace_arrays(value, lambda a: copies[_place(a)]) for value in named.values()]
    try:
        returned = reference(*values)
    except Exception as error:  # the user's function may raise anything
        raise UsageError(f"the reference raises {type(error).__name__}: {error}") from error
    return list(copies.values()), returned


def _place(array: np.ndarray) -> tuple[object, ...]:
    """What tells arrays apart that are not the same part of the same memory."""
    return array.__array_interface__["data"][0], array.shape, array.strides, array.dtype.str, array.flags.writeable
