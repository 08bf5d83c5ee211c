"""Knobs whose best value is the last of their candidates: the file of the space may be too narrow."""

from __future__ import annotations

from typing import Any

from autosched.errors import AutoschedError
from autosched.space import Config, ConfigSpace, find_space
from autosched.space.constraint import holds
from autosched.space.toml import read_space_file
from autosched.space.union import UnionSpace
from autosched.templates.thread_knob import THREADS

LEAST_CANDIDATES = 3


def border_knobs(space: ConfigSpace, config: Config) -> tuple[str, ...]:
    """In words, the knobs of a configuration that stand on the border of what their file offers.

    A border that the shape or a constraint sets is none: only one that a longer list of candidates would move.
    """
    member = space.member(config.template) if isinstance(space, UnionSpace) else space
    try:
        entries = read_space_file(find_space("cpu", member.name)).knobs
    except AutoschedError:  # a space that has no file
        return ()
    found = []
    for knob in member.knobs:
        entry = entries.get(knob.name)
        values = _listed(entry) if entry is not None and knob.kind == "int" and knob.name != THREADS else ()
        value: Any = config.get(knob.name)
        if len(values) < LEAST_CANDIDATES or value not in (values[0], values[-1]):
            continue
        side, beyond = ("largest", _beyond(values)) if value == values[-1] else ("smallest", value // 2)
        if beyond >= 1 and beyond != value and _would_do(member, config, knob.name, beyond):
            found.append(f"{member.name}: {knob.name}={value} is the {side} candidate")
    return tuple(found)


def _listed(entry: Any) -> tuple[int, ...]:
    """The numbers that a knob's entry lists whatever the shape; none where they come from the shape."""
    match entry:
        case {"values": list() as values} if all(type(v) is int for v in values):
            return tuple(sorted(values))
        case {"range": [int() as first, int() as last, *step]}:
            return tuple(range(first, last + 1, *step))
        case {"powers_of_two": [int() as first, int() as last]}:
            return tuple(1 << n for n in range(31) if first <= 1 << n <= last)
    return ()


def _beyond(values: tuple[int, ...]) -> int:
    """The candidate that would come next."""
    return values[-1] * 2 if values[-1] == 2 * values[-2] else 2 * values[-1] - values[-2]


def _would_do(space: ConfigSpace, config: Config, name: str, value: int) -> bool:
    """Whether the constraints would allow another value of one knob, the others unchanged."""
    bound: dict[str, Any] = {**space.values, **config.knobs, name: value}
    try:
        return bool(holds(space.constraints, bound, 1)[0])
    except (AutoschedError, TypeError, ValueError, ZeroDivisionError):
        return False
