"""Knobs whose best value is the last of their candidates: the file of the space may be too narrow."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from autosched.errors import AutoschedError
from autosched.space import Config, ConfigSpace, find_space
from autosched.space.constraints import holds
from autosched.space.toml import read_space_file
from autosched.space.union_space import UnionSpace
from autosched.templates.thread_knob import THREADS

LEAST_CANDIDATES = 3


def border_knobs(
    space: ConfigSpace, config: Config, listed: Callable[[ConfigSpace], Mapping[str, tuple[int, ...]]] | None = None
) -> tuple[str, ...]:
    """In words, the knobs of a configuration that stand on the border of what their author offers.

    listed  per knob the ascending numbers that are offered whatever the shape; None: what the template's file says
    A border that the shape or a constraint sets is none: only one that a longer list of candidates would move.
    """
    member = space.member(config.template) if isinstance(space, UnionSpace) else space
    offered = listed_values(member.name) if listed is None else listed(member)
    found = []
    for knob in member.knobs:
        values = offered.get(knob.name, ()) if knob.kind == "int" else ()
        value = config.get(knob.name)
        if len(values) < LEAST_CANDIDATES or value not in (values[0], values[-1]):
            continue
        side, beyond = ("largest", _beyond(values)) if value == values[-1] else ("smallest", value // 2)
        if beyond >= 1 and beyond != value and _would_do(member, config, knob.name, beyond):
            found.append(f"{member.name}: {knob.name}={value} is the {side} candidate")
    return tuple(found)


def listed_values(template: str) -> dict[str, tuple[int, ...]]:
    """What a template's file offers per knob, threads apart; nothing for one that has no file."""
    try:
        entries = read_space_file(find_space("cpu", template)).knobs
    except AutoschedError:
        return {}
    return {name: _listed(entry) for name, entry in entries.items() if name != THREADS}


def _listed(entry: object) -> tuple[int, ...]:
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
    bound: dict[str, object] = {**space.values, **config.knobs, name: value}
    try:
        return bool(holds(space.constraints, bound, 1)[0])
    except (AutoschedError, TypeError, ValueError, ZeroDivisionError):
        return False
