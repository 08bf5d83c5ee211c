"""The knob `threads`, which every space has where more than one thread may be used.

Templates do not know it: the thread count of a kernel is a number at run time. It says over how many threads a call is
split at most; small kernels are faster on one.
"""

from __future__ import annotations

from autosched.space import Config, ConfigSpace
from autosched.space.config import THREADS
from autosched.space.knob import Knob
from autosched.space.union_space import UnionSpace


def thread_counts(budget: int) -> tuple[int, ...]:
    """The candidates: powers of two below the budget, and the budget."""
    return (*(1 << n for n in range((budget - 1).bit_length())), budget)


def with_threads(config: Config, threads: int, budget: int) -> Config:
    """The configuration with the largest candidate up to so many threads; unchanged for a budget of one."""
    if budget <= 1:
        return config
    return config.with_knobs(**{THREADS: max(n for n in thread_counts(budget) if n <= max(threads, 1))})


def split_threads(config: Config) -> tuple[Config, int | None]:
    """(what the template knows of a configuration, its number of threads; None where it names none)."""
    threads = config.get(THREADS)
    if threads is None:
        return config, None
    return config.without(THREADS), int(threads)


def space_with_threads(space: ConfigSpace, default: Config, budget: int) -> ConfigSpace:
    """The space with the knob; its default is `default`, which has one. Unchanged for a budget of one."""
    if budget <= 1:
        return space
    if isinstance(space, UnionSpace):
        members = [_extended(member, default, budget) for member in space.members]
        return UnionSpace(members).with_default(default)
    return _extended(space, default, budget)


def _extended(space: ConfigSpace, default: Config, budget: int) -> ConfigSpace:
    chosen = default if default.template == space.name else space.default.with_knobs(**{THREADS: default[THREADS]})
    notes = "threads that a call is split over at most"
    knob = Knob(THREADS, thread_counts(budget), chosen[THREADS], notes)
    knobs = (*space.knobs, knob)
    return ConfigSpace(
        space.name, knobs, space.constraints, values=space.values, default=chosen, group_limit=space.group_limit
    )
