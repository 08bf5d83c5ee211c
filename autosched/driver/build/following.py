"""The stages of a model that is compiled when it is called, and which of them comes after another.

A stage is compiled for the sizes at hand. Where a later call comes with others, those that differ become symbols, and
one stage serves all of them, as far as it can be imported and compiled so.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from autosched.errors import AutoschedError
from autosched.frontend.stages import ContentsNeededError, OpenSizes, Stage
from autosched.runtime import Executable
from autosched.runtime.built_sizes import BuiltSizes
from autosched.runtime.dynamic import DynamicExecutable
from autosched.runtime.locks import renew_after_fork
from autosched.runtime.relax_vm import VMExecutable
from autosched.tir.expr import SizeVar

MOST_OPEN = 16  # integers of one value
LARGEST = 1 << 20  # of them: a size that is no dimension of an input is said by an array of so many bytes
MOST_REFUSED = 8  # keys, without any that is not, after which no more are tried
MOST_PAST = 4  # calls that are compared to tell which sizes are the same


class Place(NamedTuple):
    """Where a size stands: dimension `number` of a value, or the integer of that number in it."""

    name: str
    is_content: bool
    number: int


@dataclass(frozen=True)
class _Group:
    """Places whose sizes are one symbol."""

    number: int


Make: TypeAlias = Callable[[tuple[str, ...], "OpenSizes | None"], "Step"]


@dataclass
class Step:
    """A stage that was compiled, and those that came next, by what decided.

    known  values whose contents it was imported with
    open   what is open of the values behind it
    """

    stage: Stage
    executable: Executable | DynamicExecutable | VMExecutable | None
    known: tuple[str, ...] = ()
    open: OpenSizes = field(default_factory=OpenSizes)
    following: BuiltSizes[Following] = field(default_factory=BuiltSizes)


class Past:
    """The sizes that calls of a model came with, by their places; several threads may add to it."""

    def __init__(self) -> None:
        self._seen: dict[Place, tuple[int, ...]] = {}
        self._varying: set[Place] = set()
        self.symbols = 0
        self.renew_locks()
        renew_after_fork(self)

    def renew_locks(self) -> None:
        """In a forked child nobody waits."""
        self.lock = threading.Lock()

    def add(self, places: Sequence[Place], sizes: Sequence[int]) -> None:
        """Remember the sizes of a call."""
        for place, size in zip(places, sizes):
            seen = self._seen.setdefault(place, (size,))
            if size != seen[0]:
                self._varying.add(place)
            if len(seen) < MOST_PAST:
                self._seen[place] = (*seen, size)

    def varies(self, place: Place) -> bool:
        """Whether calls came with different sizes."""
        return place in self._varying

    def of(self, place: Place) -> tuple[int, ...]:
        """The sizes of the first calls."""
        return self._seen.get(place, ())


class Following:
    """The stages after one, for values of the same types and ranks.

    places  of the sizes that may differ
    """

    def __init__(self, places: Sequence[Place], before: Step, needs: Sequence[str], past: Past, closed: bool = False):
        self.places, self.before, self.needs, self.past = places, before, needs, past
        self.is_closed = closed
        self._groups: list[int] | None = None  # places of one number were of one size in all calls
        self._exact: set[str] = set()  # values whose contents have to be known
        self._refused: set[Hashable] = set()  # keys for which no stage for all sizes can be imported or compiled
        self._steps: BuiltSizes[Step] = BuiltSizes()
        self._open_steps: BuiltSizes[Step] = BuiltSizes()

    def step(self, sizes: Sequence[int], symbols: dict[SizeVar, int] | None, make: Make) -> Step:
        """The next stage, compiled now where there is none.

        sizes    at the places
        symbols  values of those that are open already; those of the stage are added. None: the stage is for these sizes
        make     compiles a stage: (values whose contents are known, what is open) -> step
        """
        with self.past.lock:
            self.past.add(self.places, sizes)
            self._divide(sizes)
        step, refused = (None, None) if symbols is None or self.is_closed else self._for_all_sizes(sizes, symbols, make)
        if step is not None:
            return step
        known = (*self.before.known, *self.needs, *self.before.open.contents)
        key = (*sizes, *(symbols or {}).values())
        if symbols:
            symbols.clear()
        step = self._steps.get(key, lambda: make(known, None))
        if refused is not None:  # unless the values fit nothing at all, which has raised its error now
            self._refused.add(refused)
            self.is_closed = len(self._refused) >= MOST_REFUSED and not len(self._open_steps)
        return step

    def _for_all_sizes(
        self, sizes: Sequence[int], symbols: dict[SizeVar, int], make: Make
    ) -> tuple[Step | None, Hashable]:
        """(the stage for all values of what is open, None), or (None, the key for which there is none now)."""
        while True:
            key = self._key(sizes)
            if key in self._refused or not (symbols or any(isinstance(part, _Group) for part in key)):
                return None, None
            try:
                step, made = self._opened(key, make)
            except ContentsNeededError as error:
                if error.name in self._exact or all(error.name != p.name for p in self.places):
                    return None, key
                self._exact.add(error.name)
            except AutoschedError:
                return None, key
            else:
                values = {part: size for part, size in zip(key, sizes) if isinstance(part, _Group)}
                symbols |= dict(zip(made, values.values(), strict=True))
                return step, None

    def _divide(self, sizes: Sequence[int]) -> None:
        """Put places into groups whose sizes were the same in all calls."""
        old = self._groups or [0] * len(sizes)
        past = [self.past.of(p) if self._groups is None else () for p in self.places]
        numbers: dict[Hashable, int] = {}
        self._groups = [numbers.setdefault(key, len(numbers)) for key in zip(old, sizes, past)]

    def _key(self, sizes: Sequence[int]) -> tuple[_Group | int, ...]:
        """For each place its group, where it is open in a call, else its size."""
        assert self._groups is not None, "they were divided"
        return tuple(
            _Group(group)
            if self.past.varies(place)
            and size >= 1
            and not (place.is_content and (size > LARGEST or place.name in self._exact))
            else size
            for place, size, group in zip(self.places, sizes, self._groups)
        )

    def _opened(self, key: tuple[_Group | int, ...], make: Make) -> tuple[Step, tuple[SizeVar, ...]]:
        """(the stage for all sizes of the groups in a key, their symbols in order)."""
        groups = tuple(dict.fromkeys(part for part in key if isinstance(part, _Group)))

        def build() -> Step:
            symbols = {group: self._symbol() for group in groups}
            dims: dict[tuple[str, bool], list[Any]] = {}
            for place, part in zip(self.places, key):
                dims.setdefault(place[:2], []).append(symbols[part] if isinstance(part, _Group) else part)
            opened = {
                place: tuple(found) for place, found in dims.items() if not all(isinstance(d, int) for d in found)
            }
            before = self.before.open
            open_sizes = OpenSizes(
                {**before.shapes, **{name: found for (name, is_content), found in opened.items() if not is_content}},
                {**before.contents, **{name: found for (name, is_content), found in opened.items() if is_content}},
                before.numbers,
                (*before.symbols, *symbols.values()),
            )
            known = (*self.before.known, *(name for name in self.needs if name not in open_sizes.contents))
            return make(known, open_sizes)

        step = self._open_steps.get(key, build)
        return step, step.open.symbols[len(self.before.open.symbols) :]

    def _symbol(self) -> SizeVar:
        with self.past.lock:
            self.past.symbols += 1
            return SizeVar(f"s{self.past.symbols}", "int64")


def places_of(there: Mapping[str, Any], computed: Sequence[str], needs: Sequence[str]) -> list[Place]:
    """The places of sizes that decide what comes next: in new values, and in those whose contents are needed."""
    shapes = [Place(n, False, i) for n in computed if is_array(there[n]) for i in range(there[n].ndim)]
    return [*shapes, *(Place(n, True, i) for n in needs if may_be_open(there[n]) for i in range(there[n].size))]


def sizes_at(there: Mapping[str, Any], places: Sequence[Place]) -> tuple[int, ...]:
    """The sizes at these places."""
    flat = {p.name: there[p.name].reshape(-1).tolist() for p in places if p.is_content}
    return tuple(flat[p.name][p.number] if p.is_content else there[p.name].shape[p.number] for p in places)


def is_array(value: object) -> bool:
    """Whether a value has a shape that may be open."""
    return isinstance(value, np.ndarray) and value.dtype != object


def may_be_open(value: Any) -> bool:
    """Whether the integers that a value holds may be symbols."""
    return is_array(value) and str(value.dtype) in ("int32", "int64") and value.ndim < 2 and value.size <= MOST_OPEN
