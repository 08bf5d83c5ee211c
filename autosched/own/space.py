"""The search space of an own function."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from autosched.errors import SpaceError, UsageError
from autosched.own.jit import JIT_KNOBS
from autosched.own.signature import Signature
from autosched.records import Record
from autosched.space import Config, ConfigSpace, Constraint, Knob, constraint
from autosched.task import Task
from autosched.tuner.measure.base import THREAD_KNOBS


class OwnSpace:
    """Knobs and constraints as their author gave them; for a call's arguments it becomes a `ConfigSpace`.

    name         of the operator, which is the configurations' template too
    constraints  may name knobs, arguments that are numbers, texts or booleans, and of an array x: x_size, x_dim0, …
    host_knobs   names of those that say how many of the host's threads a call uses
    """

    def __init__(
        self,
        name: str,
        knobs: Sequence[Knob],
        constraints: Sequence[Constraint],
        values: Mapping[str, int | float | str | bool],
        host_knobs: Sequence[str] = THREAD_KNOBS,
    ):
        self.host_knobs = tuple(host_knobs)
        self.name, self.knobs, self.constraints, self.values = name, tuple(knobs), tuple(constraints), dict(values)
        names = {name for item in constraints for name in item.expression.names}
        self.reads = frozenset(names - {knob.name for knob in knobs} - set(values))

    @property
    def default(self) -> Config:
        """The configuration of all knobs' defaults, whether it fits a call or not."""
        return Config(self.name, {knob.name: knob.default for knob in self.knobs if knob.default is not None})

    def for_call(self, named: Mapping[str, object], threads: int) -> ConfigSpace:
        """The configurations for a call with these arguments. Raises SpaceError for a constraint that reads others.

        threads  a call uses no more of them, whatever the candidates are
        """
        known = {**self.values, **facts_of(named)}
        if missing := sorted(self.reads - set(known)):
            hint = f"there are {', '.join([*(k.name for k in self.knobs), *known])}"
            raise SpaceError(f"a constraint reads {missing[0]}", where=self.name, hint=hint)
        knobs = [_limited(knob, threads) if knob.name in self.host_knobs else knob for knob in self.knobs]
        values = {name: known[name] for name in {*self.values, *self.reads}}
        return ConfigSpace(self.name, knobs, self.constraints, values=values)

    def default_for(self, space: ConfigSpace) -> Config:
        """What a call gets without a record: all defaults where they fit, else the first configuration that does."""
        try:
            return space.default
        except SpaceError:  # none fits: the author's defaults are as good as any
            return self.default


def facts_of(named: Mapping[str, object]) -> dict[str, int | float | str | bool]:
    """What constraints may know of the arguments of a call."""
    facts: dict[str, int | float | str | bool] = {}
    for name, value in named.items():
        if isinstance(value, np.ndarray):
            facts[f"{name}_size"] = int(value.size)
            facts |= {f"{name}_dim{i}": int(size) for i, size in enumerate(value.shape)}
        elif isinstance(value, np.generic):
            facts[name] = value.item()
        elif isinstance(value, bool | int | float | str):
            facts[name] = value
    return facts


def _limited(knob: Knob, threads: int) -> Knob:
    """A knob of threads with the candidates up to a number, which is one of them and the default."""
    values = sorted({int(v) for v in knob.values if isinstance(v, int) and v <= threads} | {threads})
    return Knob(knob.name, tuple(values), threads, knob.notes)


def make_space(
    name: str,
    space: object,
    constraints: Sequence[str | Constraint],
    signature: Signature,
    options: Mapping[str, object],
    *,
    known: Mapping[str, object] = JIT_KNOBS,
    others: Sequence[str] = THREAD_KNOBS,
    host_knobs: Sequence[str] = THREAD_KNOBS,
) -> OwnSpace:
    """The space of a function.

    space   a mapping from names to candidates, or a ConfigSpace, whose name does not matter
    known   options of Numba that may be knobs, with their defaults;  others  knobs that are no part of the code
    Raises  UsageError for what is neither, SpaceError for malformed candidates and constraints.
    """
    values: Mapping[str, Any] = {}
    items = [constraint(item) if isinstance(item, str) else item for item in constraints]
    if isinstance(space, ConfigSpace):
        knobs, values = list(space.knobs), space.values
        items = [*space.constraints, *items]
    elif isinstance(space, Mapping):
        knobs = [_knob(knob, candidates) for knob, candidates in space.items()]
    else:
        raise UsageError(f"space is a {type(space).__name__}", where=name, hint='give {"block": [16, 32]}, or "auto"')
    if not knobs:
        raise UsageError("the space has no knob", where=name, hint='give {"block": [16, 32]}, or "auto"')
    made = [_with_default(knob, signature, options, name, known, others) for knob in knobs]
    return OwnSpace(name, made, items, values, host_knobs)


def _knob(name: object, candidates: object) -> Knob:
    if isinstance(candidates, str) or not hasattr(candidates, "__iter__"):
        raise UsageError(f"the candidates of '{name}' are a {type(candidates).__name__}", hint="give a list")
    return Knob(str(name), tuple(value.item() if isinstance(value, np.generic) else value for value in candidates))


def _with_default(
    knob: Knob,
    signature: Signature,
    options: Mapping[str, object],
    where: str,
    known: Mapping[str, object],
    others: Sequence[str],
) -> Knob:
    """The knob with the default of its parameter, or of Numba's option, among its candidates."""
    default: Any
    if knob.name in signature.knobs:
        default = signature.knob_defaults.get(knob.name)
    elif knob.name in known:
        default = options.get(knob.name, known[knob.name])
    elif knob.name in others:
        return knob
    else:
        hint = f"knobs are parameters, Numba's options ({', '.join(known)}) and {', '.join(others) or 'no others'}"
        raise UsageError(f"'{knob.name}' is no parameter of the function", where=where, hint=hint)
    if default is None:
        return knob
    wider = knob.including(default)
    return Knob(wider.name, wider.values, default, wider.notes)


class OwnSpaces:
    """The tuner's view of one function's space for one call (`driver.task_space.Spaces`)."""

    def __init__(self, space: OwnSpace, call: ConfigSpace, version: str):
        self._space, self._call = space, call
        self.versions = {space.name: version}

    def default_of(self, task: Task) -> Config:
        """The configuration without any record."""
        return self._call.default

    def space_of(self, task: Task) -> ConfigSpace:
        """The configurations that the call may have."""
        return self._call

    def listed(self, space: ConfigSpace) -> Mapping[str, tuple[int, ...]]:
        """The candidates that are numbers, those of threads apart."""
        return {
            knob.name: tuple(sorted(v for v in knob.values if isinstance(v, int)))
            for knob in self._space.knobs
            if knob.kind == "int" and knob.name not in self._space.host_knobs
        }


REACH = 2.0  # distance at which nothing is left of what the neighbour has gained


class Usable:
    """Says why a recorded configuration cannot be used for a call, "" if it can (`records.found.Validator`).

    versions  the function's digest, under its name
    """

    def __init__(self, space: ConfigSpace, versions: Mapping[str, str]):
        self._space, self.versions = space, versions

    @property
    def default(self) -> Config | None:
        """What the call gets without any record; None where nothing fits it."""
        try:
            return self._space.default
        except SpaceError:
            return None

    def __call__(self, config: Config) -> str:
        return self._space.why_not(config)


def expected_gain(task: Task, record: Record, distance: float) -> float:
    """How many times faster than the default a neighbour's winner is expected to be: less with its distance."""
    gain = record.gain
    if gain is None or record.is_default:
        return 1.0
    return float(gain ** max(0.0, 1.0 - distance / REACH))
