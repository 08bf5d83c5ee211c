"""What speaks against a recorded configuration of an own function, and what is expected of a near one."""

from __future__ import annotations

from collections.abc import Mapping

from autosched.records import Record
from autosched.space import Config, ConfigSpace
from autosched.task import Task

REACH = 2.0  # distance at which nothing is left of what the neighbour has gained


class Usable:
    """Says why a recorded configuration cannot be used for a call, "" if it can (`records.found.Validator`).

    versions  the function's digest, under its name
    """

    def __init__(self, space: ConfigSpace, versions: Mapping[str, str]):
        self._space, self.versions = space, versions

    def __call__(self, config: Config) -> str:
        return self._space.why_not(config)


def expected_gain(task: Task, record: Record, distance: float) -> float:
    """How many times faster than the default a neighbour's winner is expected to be: less with its distance."""
    gain = record.gain
    if gain is None or record.is_default:
        return 1.0
    return float(gain ** max(0.0, 1.0 - distance / REACH))
