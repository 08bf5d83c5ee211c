"""What users tune for besides time: functions of a candidate's results and time, computed where it runs."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from autosched.errors import UsageError
from autosched.task import Status
from autosched.tuner.measure.base import CandidateError

if TYPE_CHECKING:
    from autosched.json_types import Json

Metric = Callable[..., float]
GIVEN = ("time_s", "result")


@dataclass(frozen=True)
class Metrics:
    """Functions by name; each takes what its parameters name and gives a number from 0 on, the smaller the better.

    Parameters: time_s, the median time of a call; result, what the function returns; its arguments, as a call has
    left them; knobs.
    """

    functions: Mapping[str, Metric] = field(default_factory=dict)

    @staticmethod
    def of(given: Metric | Mapping[str, Metric] | None, known: Sequence[str], where: str) -> Metrics:
        """What `autotune(metric=…)` was given. Raises UsageError for what is no function of `known` names."""
        if given is None:
            return Metrics()
        if callable(given):
            name = getattr(given, "__name__", "<function>")
            given = {"metric" if name.startswith("<") else name: given}
        named = dict(given)
        for name, function in named.items():
            if not callable(function):
                raise UsageError(f"metric '{name}' is no function", where=where, hint="give metric=function")
            if strange := [p for p in inspect.signature(function).parameters if p not in (*GIVEN, *known)]:
                hint = f"it may read {', '.join((*GIVEN, *known))}"
                raise UsageError(f"metric '{name}' reads '{strange[0]}'", where=where, hint=hint)
        return Metrics(named)

    @property
    def names(self) -> tuple[str, ...]:
        """The names, the first one of which chooses the winner."""
        return tuple(self.functions)

    def values(self, facts: Mapping[str, Json]) -> dict[str, float]:
        """The numbers of a candidate.

        facts   what the functions may read, by name
        Raises  CandidateError for a function that fails, or gives no number from 0 on.
        """
        found = {}
        for name, function in self.functions.items():
            try:
                value = float(function(**{p: facts[p] for p in inspect.signature(function).parameters}))
            except Exception as error:  # the user's function may raise anything
                text = f"metric '{name}' raises {type(error).__name__}: {error}"
                raise CandidateError(Status.RUN_ERROR, text) from error
            if not (value >= 0 and math.isfinite(value)):
                raise CandidateError(Status.NON_FINITE, f"metric '{name}' gives {value}, no number from 0 on")
            found[name] = value
        return found

    def packed(self) -> bytes:
        """The functions by value, for a worker. Raises UsageError where they cannot be sent."""
        from numba.core import serialize

        try:
            return bytes(serialize.dumps(dict(self.functions))) if self.functions else b""
        except Exception as error:  # what a global can raise when it is pickled has no common type
            raise UsageError(f"a metric cannot be sent to a worker process: {error}") from error
