"""What is expected of a neighbour's configuration: the predictor that look-ups are given."""

from __future__ import annotations

from autosched.errors import ScheduleError, SpaceError
from autosched.records import Record
from autosched.space import Config
from autosched.task import Task
from autosched.templates import default_config, templates_for
from autosched.templates.base import Estimates
from autosched.templates.thread_knob import split_threads

REACH = 2.0  # distance at which nothing is left of what the neighbour has gained


def expected_gain(task: Task, record: Record, distance: float) -> float:
    """How many times faster than the default a neighbour's winner is expected to be; 1 where nothing speaks for it.

    What it has gained over its own default, shrinking with the distance; nothing where the default has won there, where
    it is this task's default, or where the templates' own estimates speak for the default.
    """
    config, _ = split_threads(record.config)
    gain = record.gain
    if gain is None or record.is_default or task.func is None:
        return 1.0
    default = default_config(task.func, task.target)
    if config == default:
        return 1.0
    first, second = _estimate(task, default), _estimate(task, config)
    if first is not None and second is not None and second > first:
        return 1.0
    return float(gain ** max(0.0, 1.0 - distance / REACH))


def _estimate(task: Task, config: Config) -> float | None:
    """The cycles that a configuration's template expects; None where it cannot say."""
    for template, anchor in templates_for(task.func, task.target):
        if template.name == config.template and isinstance(template, Estimates):
            try:
                return float(template.estimate(anchor, config, task.target))
            except (SpaceError, ScheduleError):
                return None
    return None
