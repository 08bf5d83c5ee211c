"""Several templates for one task: a space whose first knob is `template`; other knobs exist only where theirs is."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property

import numpy as np

from autosched.errors import SpaceError
from autosched.json_types import JsonObject
from autosched.space.config import Config
from autosched.space.config_space import ConfigSpace
from autosched.space.knob import Knob

ABSENT = -1  # position of a knob that the row's template does not have


def union(spaces: Sequence[ConfigSpace]) -> ConfigSpace:
    """The space of all configurations of all `spaces`; the first one's default is the default.

    One space is returned as it is. Raises SpaceError for none, or two of one template.
    """
    if not spaces:
        raise SpaceError("a union of no spaces")
    return spaces[0] if len(spaces) == 1 else UnionSpace(spaces)


class UnionSpace(ConfigSpace):
    """Rows hold the member's number, then the positions of every member's knobs, `ABSENT` but for its own."""

    def __init__(self, members: Sequence[ConfigSpace]):
        names = [member.name for member in members]
        if len(set(names)) != len(names):
            raise SpaceError(f"a union needs different templates, not {names}")
        self.members = tuple(members)
        self.name, self.values, self.constraints = "|".join(names), {}, ()
        self._number = {name: i for i, name in enumerate(names)}
        self._starts = np.cumsum([1, *(len(member.knobs) for member in members)])
        prefixed = (Knob(f"{m.name}__{k.name}", k.values, k.default, k.notes) for m in members for k in m.knobs)
        self.knobs = (Knob("template", tuple(names)), *prefixed)

    def _span(self, number: int) -> slice:
        return slice(int(self._starts[number]), int(self._starts[number + 1]))

    def _lift(self, number: int, rows: np.ndarray) -> np.ndarray:
        lifted = np.full((len(rows), len(self.knobs)), ABSENT, dtype=np.int32)
        lifted[:, 0] = number
        lifted[:, self._span(number)] = rows
        return lifted

    def member(self, template: str) -> ConfigSpace:
        """The space of one template. Raises SpaceError for an unknown one."""
        if template not in self._number:
            raise SpaceError(f"no template '{template}'", hint=f"there are {', '.join(self._number)}")
        return self.members[self._number[template]]

    def count(self) -> int:
        return sum(member.count() for member in self.members)

    @property
    def count_is_exact(self) -> bool:
        return all(member.count_is_exact for member in self.members)

    @property
    def combinations(self) -> int:
        return sum(member.combinations for member in self.members)

    def to_config(self, row: np.ndarray) -> Config:
        number = int(row[0])
        return self.members[number].to_config(row[self._span(number)])

    def parts(self, rows: np.ndarray) -> Iterator[tuple[ConfigSpace, np.ndarray, np.ndarray]]:
        for number, member in enumerate(self.members):
            own = np.flatnonzero(rows[:, 0] == number)
            if len(own):
                yield member, own, rows[own][:, self._span(number)]

    def to_rows(self, configs: Sequence[Config]) -> np.ndarray:
        rows = np.full((len(configs), len(self.knobs)), ABSENT, dtype=np.int32)
        for i, config in enumerate(configs):
            number = self._number.get(config.template)
            if number is None:
                raise SpaceError(self._foreign(config), where=f"space '{self.name}'")
            rows[i] = self._lift(number, self.members[number].to_rows([config]))[0]
        return rows

    def _foreign(self, config: Config) -> str:
        if config.template in self._number:
            return self.member(config.template)._foreign(config)
        return f"it is for template '{config.template}', not one of {', '.join(self._number)}"

    def complete(self, row: np.ndarray) -> np.ndarray:
        number = int(row[0])
        lifted: np.ndarray = self._lift(number, row[None, self._span(number)])[0]
        return lifted

    def valid_rows(self, rows: np.ndarray) -> np.ndarray:
        mask = np.zeros(len(rows), dtype=bool)
        for number, member in enumerate(self.members):
            own = np.flatnonzero(rows[:, 0] == number)
            mask[own] = member.valid_rows(rows[own][:, self._span(number)])
        return mask

    def why_not(self, config: Config) -> str:
        return self._foreign(config) or self.member(config.template).why_not(config)

    @property
    def default(self) -> Config:
        return next(member for member in self.members if member.count()).default

    def starting_points(self) -> tuple[Config, ...]:
        """The default of every template, the first template's first."""
        return tuple(member.default for member in self.members if member.count())

    def with_default(self, config: Config) -> ConfigSpace:
        chosen = self.member(config.template).with_default(config)
        return UnionSpace([chosen, *(member for member in self.members if member.name != config.template)])

    def _chunks(self, first: int = 0) -> Iterator[np.ndarray]:
        for number, member in enumerate(self.members):
            for rows in member._chunks():
                yield self._lift(number, rows)

    def sample_rows(self, rng: np.random.Generator, n: int) -> np.ndarray:
        counts = np.array([member.count() for member in self.members], dtype=float)
        if n <= 0 or counts.sum() == 0:
            return np.zeros((0, len(self.knobs)), dtype=np.int32)
        shares = np.minimum(rng.multinomial(n, counts / counts.sum()), counts).astype(int)
        for number in range(len(shares)):  # what a small member could not give, the others do
            shares[number] += int(min(n - shares.sum(), counts[number] - shares[number]))
        parts = [self._lift(i, m.sample_rows(rng, int(shares[i]))) for i, m in enumerate(self.members)]
        rows = np.concatenate(parts)
        return rows[rng.permutation(len(rows))]

    def neighbour_rows(self, row: np.ndarray) -> np.ndarray:
        """Neighbours within the row's template, and the defaults of the other templates."""
        number = int(row[0])
        near = self._lift(number, self.members[number].neighbour_rows(row[self._span(number)]))
        others = [config for config in self.starting_points() if config.template != self.members[number].name]
        return np.concatenate([near, self.to_rows(others)])

    @property
    def columns(self) -> tuple[str, ...]:
        heads = tuple(f"template={member.name}" for member in self.members)
        return heads + tuple(f"{member.name}: {name}" for member in self.members for name in member.columns)

    @cached_property
    def _tables(self) -> tuple[np.ndarray, ...]:
        own = [table for member in self.members for table in member.tables]
        middles = ((t.min(axis=0) + t.max(axis=0)) / 2 for t in own)
        return (np.eye(len(self.members)), *(np.vstack([t, middle]) for t, middle in zip(own, middles, strict=True)))

    @property
    def tables(self) -> tuple[np.ndarray, ...]:
        """One column per template, then each template's knobs; a knob of another template stands at its middle."""
        return self._tables

    def describe(self) -> JsonObject:
        """Each template's space as plain data."""
        return {"templates": [member.describe() for member in self.members], "valid": self.count()}
