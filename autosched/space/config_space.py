"""A search space: knobs and the constraints between them.

Inside, a configuration is a row of positions (one per knob, int32), so that counting, sampling, checking and encoding
work on whole arrays; `Config` is its readable form.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property

import numpy as np

from autosched.errors import SpaceError
from autosched.json_types import JsonObject
from autosched.space.config import Config, KnobValue
from autosched.space.constraints import Constraint, Group, constraint, holds, make_groups
from autosched.space.encode import encode_knob
from autosched.space.knob import Knob

GROUP_LIMIT = 1_000_000  # valid combinations of one group of knobs that are listed
CHUNK = 10_000  # rows that are made at a time


class ConfigSpace:
    """The valid configurations of one template.

    name         the template's name, also the `template` of every configuration
    constraints  expressions (text or `Constraint`) over knobs and `values`
    values       what constraints may name besides knobs: shape sizes, lanes, registers, …
    Raises  SpaceError for repeated knobs, names that do not exist, or a default that is not valid.
    """

    def __init__(
        self,
        name: str,
        knobs: Sequence[Knob],
        constraints: Sequence[Constraint | str] = (),
        *,
        values: Mapping[str, int | float | str | bool] | None = None,
        default: Config | None = None,
        group_limit: int = GROUP_LIMIT,
    ):
        self.name, self.knobs, self.values = name, tuple(knobs), dict(values or {})
        self.constraints = tuple(constraint(c) if isinstance(c, str) else c for c in constraints)
        self.group_limit = group_limit
        self._check_names()
        free = [c for c in self.constraints if not c.expression.names & {k.name for k in self.knobs}]
        self._possible = bool(holds(free, self.values, 1)[0])
        self._groups: tuple[Group, ...] = make_groups(self.knobs, self.constraints, self.values, group_limit)
        self._default = default
        if default is not None and default not in self:
            raise SpaceError(f"the default is not in the space: {self.why_not(default)}", where=f"space '{name}'")

    @staticmethod
    def from_table(name: str, knobs: Sequence[Knob], configs: Sequence[Mapping[str, KnobValue]]) -> ConfigSpace:
        """A space whose valid configurations are listed one by one (a recorded one)."""
        space = ConfigSpace(name, knobs)
        rows = np.array([[k.position(c[k.name]) for k in space.knobs] for c in configs], dtype=np.int32)
        if rows.size and rows.min() < 0:
            raise SpaceError("a listed configuration has a value that is no candidate", where=f"space '{name}'")
        group = Group(space.knobs, range(len(space.knobs)), (), {}, max(len(rows), 1))
        group.use_table(rows)
        space._groups = (group,)
        return space

    def _check_names(self) -> None:
        names = [k.name for k in self.knobs]
        if len(set(names)) != len(names) or "template" in names:
            raise SpaceError(f"knob names must be different, and not 'template': {names}", where=f"space '{self.name}'")
        known = set(names) | set(self.values)
        if len(known) != len(names) + len(self.values):
            raise SpaceError(f"a value has the name of a knob: {set(names) & set(self.values)}", where=self.name)
        for item in self.constraints:
            if unknown := item.expression.names - known:
                raise SpaceError(
                    f"constraint '{item}' names {', '.join(sorted(unknown))}",
                    where=f"space '{self.name}'",
                    hint=f"known are {', '.join(sorted(known))}",
                )

    # ---- size

    def count(self) -> int:
        """How many valid configurations there are; an estimate where `count_is_exact` is False."""
        product = int(self._possible)
        for group in self._groups:
            product *= group.count()[0]
        return product

    @property
    def count_is_exact(self) -> bool:
        """Whether `count` is exact: every group of tied knobs could be listed."""
        return all(group.count()[1] for group in self._groups)

    @property
    def combinations(self) -> int:
        """How many combinations of candidates there are, valid or not."""
        product = 1
        for knob in self.knobs:
            product *= len(knob.values)
        return product

    # ---- configurations and rows of positions

    def to_config(self, row: np.ndarray) -> Config:
        """The configuration of one row of positions."""
        return Config(self.name, {k.name: k.values[int(i)] for k, i in zip(self.knobs, row, strict=True)})

    def to_configs(self, rows: np.ndarray) -> list[Config]:
        """The configurations of rows of positions [n, knobs]."""
        return [self.to_config(row) for row in rows]

    def parts(self, rows: np.ndarray) -> Iterator[tuple[ConfigSpace, np.ndarray, np.ndarray]]:
        """Rows of positions by template: (the template's own space, which rows they are, their positions in it)."""
        yield self, np.arange(len(rows)), rows

    def to_rows(self, configs: Sequence[Config]) -> np.ndarray:
        """Positions [n, knobs] int32. Raises SpaceError for a configuration whose knobs are not this space's."""
        rows = np.empty((len(configs), len(self.knobs)), dtype=np.int32)
        for i, config in enumerate(configs):
            if reason := self._foreign(config):
                raise SpaceError(reason, where=f"space '{self.name}'")
            rows[i] = [k.position(config.get(k.name, k.absent)) for k in self.knobs]
        return rows

    def _foreign(self, config: Config) -> str:
        """Why the configuration is none of these knobs' combinations; "" if it is one."""
        if config.template != self.name:
            return f"it is for template '{config.template}', not '{self.name}'"
        for knob in self.knobs:
            value = config.get(knob.name, knob.absent)
            if value is None:
                return f"it has no knob '{knob.name}'"
            if knob.position(value) < 0:
                return f"{knob.name}={value!r} is no candidate"
        extra = set(config.knobs) - {k.name for k in self.knobs}
        return f"the template has no knob {', '.join(sorted(extra))}" if extra else ""

    def complete(self, row: np.ndarray) -> np.ndarray:
        """A row with a position for every knob, without the knobs that its template does not have."""
        return row

    def valid_rows(self, rows: np.ndarray) -> np.ndarray:
        """Which rows of positions satisfy all constraints, [n] bool."""
        mask = np.full(len(rows), self._possible)
        for group in self._groups:
            mask &= group.valid(rows[:, group.columns])
        return mask

    def __contains__(self, config: object) -> bool:
        return isinstance(config, Config) and not self.why_not(config)

    def contains(self, config: Config) -> bool:
        """Whether the configuration is a valid one of this space."""
        return config in self

    def why_not(self, config: Config) -> str:
        """Why the configuration is not in the space, in words; "" if it is."""
        if reason := self._foreign(config):
            return reason
        row = self.to_rows([config])
        if self.valid_rows(row)[0]:
            return ""
        bound = {**self.values, **{k.name: k.array[row[:, i]] for i, k in enumerate(self.knobs)}}
        for item in self.constraints:
            if not holds([item], bound, 1)[0]:
                return f"it breaks '{item}'" + (f" ({item.because})" if item.because else "")
        return "it is not among the listed configurations"

    # ---- the default

    @property
    def default(self) -> Config:
        """The configuration to start from: the one that was given, else the knobs' defaults, else the first valid one.

        Raises  SpaceError if the space is empty.
        """
        if self._default is None:
            config = Config(self.name, {k.name: k.default for k in self.knobs if k.default is not None})
            if config not in self:
                first = next((rows[:1] for rows in self._chunks() if len(rows)), None)
                if first is None:
                    raise SpaceError("the space has no valid configuration", where=f"space '{self.name}'")
                config = self.to_config(first[0])
            self._default = config
        return self._default

    def starting_points(self) -> tuple[Config, ...]:
        """What a search measures first: the default."""
        return (self.default,)

    def with_default(self, config: Config) -> ConfigSpace:
        """The space with another default, whose values become candidates where they are not.

        Raises  SpaceError if the configuration breaks a constraint or has other knobs.
        """
        if config in self:
            same = copy.copy(self)
            same._default = config
            return same
        missing = {k.name for k in self.knobs} ^ set(config.knobs)
        if missing:
            raise SpaceError(f"the default differs in the knobs {sorted(missing)}", where=f"space '{self.name}'")
        knobs = [k.including(config.knobs[k.name]) for k in self.knobs]
        return ConfigSpace(
            self.name, knobs, self.constraints, values=self.values, default=config, group_limit=self.group_limit
        )

    # ---- enumeration and sampling

    def chunks(self) -> Iterator[np.ndarray]:
        """All valid rows in the order of the candidates, in arrays of at most some ten thousand where they are many."""
        return self._chunks()

    def _chunks(self, first: int = 0) -> Iterator[np.ndarray]:
        """All valid rows from group `first` on, in chunks over all columns (those of earlier groups are 0)."""
        if not self._possible:
            return
        if first == len(self._groups):
            yield np.zeros((1, len(self.knobs)), dtype=np.int32)
            return
        group = self._groups[first]
        if not self._is_small(first + 1):  # a chunk of what follows for each row of the group
            for own in group.rows():
                for row in own:
                    for chunk in self._chunks(first + 1):
                        chunk[:, group.columns] = row
                        yield chunk
            return
        rest = np.concatenate([np.zeros((0, len(self.knobs)), np.int32), *self._chunks(first + 1)])
        at_once = max(1, CHUNK // max(1, len(rest)))
        for own in group.rows():
            for start in range(0, len(own), at_once):
                rows = own[start : start + at_once]
                chunk = np.tile(rest, (len(rows), 1))
                chunk[:, group.columns] = np.repeat(rows, len(rest), axis=0)
                yield chunk

    def _is_small(self, first: int) -> bool:
        """Whether the groups from `first` on have few valid rows together."""
        counts = [group.count() for group in self._groups[first:]]
        return all(exact for _, exact in counts) and math.prod(n for n, _ in counts) <= CHUNK

    def all_rows(self) -> np.ndarray:
        """All valid rows of positions [count, knobs]; for spaces whose exact count fits in memory."""
        chunks = list(self._chunks())
        return np.concatenate(chunks) if chunks else np.zeros((0, len(self.knobs)), dtype=np.int32)

    def __iter__(self) -> Iterator[Config]:
        if self.count() == 0:
            return
        yield self.default
        for rows in self._chunks():
            yield from (c for c in self.to_configs(rows) if c != self.default)

    def sample_rows(self, rng: np.random.Generator, n: int) -> np.ndarray:
        """`n` different valid rows, drawn uniformly; all of them where there are no more than that."""
        if self.count() == 0 or n <= 0:
            return np.zeros((0, len(self.knobs)), dtype=np.int32)
        if self.count_is_exact and self.count() <= max(4 * n, 64):
            rows = self.all_rows()
            return rows[rng.permutation(len(rows))[:n]]
        found = np.zeros((0, len(self.knobs)), dtype=np.int32)
        for _ in range(20):
            parts = [group.sample(rng, n) for group in self._groups]
            rows = np.zeros((min(map(len, parts)), len(self.knobs)), dtype=np.int32)
            for group, part in zip(self._groups, parts, strict=True):
                rows[:, group.columns] = part[: len(rows)]
            found = unique_rows(np.concatenate([found, rows]))
            if len(found) >= n:
                break
        return found[:n]

    def sample(self, rng: np.random.Generator | int, n: int) -> list[Config]:
        """`n` different valid configurations, drawn uniformly from them; all of them where there are no more."""
        return self.to_configs(self.sample_rows(np.random.default_rng(rng), n))

    def neighbour_rows(self, row: np.ndarray) -> np.ndarray:
        """Valid rows that differ from `row` in the position of one knob."""
        rows = [np.zeros((0, len(self.knobs)), dtype=np.int32)]
        for column, knob in enumerate(self.knobs):
            others = np.repeat(row[None, :].astype(np.int32), len(knob.values), axis=0)
            others[:, column] = np.arange(len(knob.values))
            rows.append(np.delete(others, int(row[column]), axis=0))
        near: np.ndarray = np.concatenate(rows)
        return np.compress(self.valid_rows(near), near, axis=0)

    def neighbours(self, config: Config) -> list[Config]:
        """Valid configurations that differ from `config` in one knob. Raises SpaceError if it is not in the space."""
        return self.to_configs(self.neighbour_rows(self.to_rows([config])[0]))

    # ---- numbers for models

    @cached_property
    def _encoding(self) -> tuple[tuple[np.ndarray, tuple[str, ...]], ...]:
        return tuple(encode_knob(knob) for knob in self.knobs)

    @property
    def columns(self) -> tuple[str, ...]:
        """The names of the columns of `encode`."""
        return tuple(name for _, names in self._encoding for name in names)

    @property
    def tables(self) -> tuple[np.ndarray, ...]:
        """Per knob the numbers of its candidates [candidates, columns]; `encode_rows` puts them side by side.

        Where a row's template may lack the knob, a last line more holds what stands for that (position -1).
        """
        return tuple(table for table, _ in self._encoding)

    def encode_rows(self, rows: np.ndarray) -> np.ndarray:
        """Numbers for rows of positions, [n, columns] float64."""
        blocks = [table[rows[:, i]] for i, table in enumerate(self.tables)]
        return np.concatenate(blocks, axis=1) if blocks else np.zeros((len(rows), 0))

    def encode(self, configs: Sequence[Config]) -> np.ndarray:
        """Numbers for configurations, [n, columns] float64; how each knob is written is in `encode.py`."""
        return self.encode_rows(self.to_rows(configs))

    def describe(self) -> JsonObject:
        """Knobs, constraints and counts as plain data, for tables and JSON."""
        return {
            "template": self.name,
            "knobs": {k.name: {"values": list(k.values), "default": k.default, "notes": k.notes} for k in self.knobs},
            "constraints": [{"require": str(c), "because": c.because} for c in self.constraints],
            "values": dict(self.values),
            "valid": self.count(),
            "valid_is_exact": self.count_is_exact,
            "combinations": self.combinations,
        }

    def __repr__(self) -> str:
        return f"ConfigSpace({self.name!r}, knobs={[k.name for k in self.knobs]}, {self.combinations} combinations)"


def unique_rows(rows: np.ndarray) -> np.ndarray:
    """The rows [n, knobs] of positions without repetitions, in the order of first appearance.

    Where a row's positions fit one number, numbers are compared: sorting rows as such takes ten times as long.
    """
    sizes = [int(size) + 1 for size in rows.max(axis=0)] if rows.size else []
    if rows.size and math.prod(sizes) < 2**63:
        numbers = rows[:, 0].astype(np.int64)
        for column, size in zip(rows.T[1:], sizes[1:], strict=True):
            numbers = numbers * size + column
        _, first = np.unique(numbers, return_index=True)
    else:
        _, first = np.unique(rows, axis=0, return_index=True)
    return np.take(rows, np.sort(first), axis=0)
