"""What became of a candidate: its status, its times, how it was measured."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Protocol

from autosched.errors import InvalidValueError
from autosched.json_types import Json


class Status(StrEnum):
    """How the measurement of a candidate ended; everything but OK is a failure and has no time."""

    OK = "ok"
    INVALID = "invalid"  # the schedule refused the configuration
    BUILD_ERROR = "build_error"
    BUILD_TIMEOUT = "build_timeout"
    RUN_ERROR = "run_error"
    TIMEOUT = "timeout"
    CRASH = "crash"
    ILLEGAL_INSTRUCTION = "illegal_instruction"
    OUT_OF_MEMORY = "out_of_memory"
    WRONG_RESULT = "wrong_result"
    NON_FINITE = "non_finite"
    LOST = "lost"  # in flight when the tuner ended: says nothing about the candidate

    @property
    def is_failure(self) -> bool:
        """Whether the candidate itself is to blame."""
        return self not in (Status.OK, Status.LOST)


class ConfigLike(Protocol):
    """What a trial needs to know of a configuration (`autosched.space.Config` is one)."""

    @property
    def template(self) -> str: ...
    @property
    def knobs(self) -> Mapping[str, Json]: ...
    @property
    def key(self) -> str: ...
    def to_json(self) -> str: ...


METRICS = "metrics"  # in a measurement's `how`: numbers by name, the smaller the better


@dataclass(frozen=True, slots=True)
class Measurement:
    """The outcome of one candidate.

    times_s          every time that was measured, in seconds; empty unless the status is OK
    checked_against  what the result was compared with ("float64 reference, 2 seeds"), "" if it was not
    error            the whole text of what went wrong
    how              threads, cache state, repeats, …: plain values that are kept with the record
    Raises  InvalidValueError for OK without a positive finite time, or times of a failure.
    """

    status: Status
    times_s: tuple[float, ...] = ()
    checked_against: str = ""
    error: str = ""
    how: Mapping[str, Json] = field(default_factory=dict)

    def __post_init__(self) -> None:
        object.__setattr__(self, "status", Status(self.status))
        object.__setattr__(self, "times_s", tuple(float(t) for t in self.times_s))
        if self.status is Status.OK:
            if not self.times_s or not all(t > 0 and math.isfinite(t) for t in self.times_s):
                raise InvalidValueError(f"a good measurement needs positive times, not {self.times_s}")
        elif self.times_s:
            raise InvalidValueError(f"status '{self.status}' has no time")

    @property
    def is_ok(self) -> bool:
        """Whether the candidate ran and its result was right."""
        return self.status is Status.OK

    @property
    def median_s(self) -> float:
        """The median time in seconds; infinite for a failure, so that it sorts last."""
        return statistics.median(self.times_s) if self.times_s else math.inf


@dataclass(frozen=True, slots=True)
class Trial:
    """A configuration and what became of it."""

    config: Any  # a ConfigLike; Any, so that those who know the class need no cast
    measurement: Measurement

    @property
    def is_ok(self) -> bool:
        """Whether the candidate has a time."""
        return self.measurement.is_ok

    @property
    def median_s(self) -> float:
        """The median time in seconds, infinite for a failure."""
        return self.measurement.median_s
