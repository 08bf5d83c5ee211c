"""Numbers for configurations of different spaces of one family: by the knobs' values, not by their candidates."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from autosched.space import Config, ConfigSpace, KnobValue


class KnobNumbers:
    """One encoding for all configurations, learned from some of them.

    An int gives its signed log2 and the log2 of the power of two within it, a split those of its parts, a bool itself,
    a text one column per value that was seen; a knob that a configuration does not have gives zeros.

    sizes  names of loop extents that matter: each gives its log2, and with each int knob what is wasted when the
           extent is cut into pieces of so many
    """

    def __init__(self, configs: Iterable[Config], sizes: Sequence[str] = ()):
        self._values: dict[tuple[str, str], dict[KnobValue, None]] = {}
        templates: set[str] = set()
        for config in configs:
            templates.add(config.template)
            for name, value in config.knobs.items():
                self._values.setdefault((name, _kind(value)), {})[value] = None
        self._templates, self._sizes = sorted(templates), tuple(sizes)

    def __call__(self, configs: Iterable[Config], sizes: Mapping[str, int] | None = None) -> np.ndarray:
        """Numbers [n, columns] float64."""
        extents = self._extents(sizes)
        rows = []
        for config in configs:
            row = self._heads(config.template, extents)
            for name, kind in self._values:
                row += self._numbers(name, kind, config.knobs.get(name), extents)
            rows.append(row)
        return np.array(rows, dtype=np.float64)

    def of_rows(self, space: ConfigSpace, rows: np.ndarray, sizes: Mapping[str, int] | None = None) -> np.ndarray:
        """The same for rows of positions [n, knobs]: numbers are looked up by position, knob by knob."""
        extents = self._extents(sizes)
        places, found = [np.zeros(0, dtype=np.int64)], []
        for member, which, own in space.parts(rows):
            columns = [np.tile(self._heads(member.name, extents), (len(own), 1))]
            positions = {knob.name: (knob.values, own[:, i]) for i, knob in enumerate(member.knobs)}
            for name, kind in self._values:
                values, at = positions.get(name, ((None,), np.zeros(len(own), dtype=np.int64)))
                columns.append(np.array([self._numbers(name, kind, value, extents) for value in values])[at])
            places.append(which)
            found.append(np.concatenate(columns, axis=1))
        return np.concatenate(found)[np.argsort(np.concatenate(places))]

    def _extents(self, sizes: Mapping[str, int] | None) -> list[int]:
        return [(sizes or {}).get(name, 1) for name in self._sizes]

    def _heads(self, template: str, extents: Sequence[int]) -> list[float]:
        """The numbers of a template and of the workload."""
        which = [float(template == name) for name in self._templates] if len(self._templates) > 1 else []
        return which + [float(np.log2(max(extent, 1))) for extent in extents]

    def _numbers(self, name: str, kind: str, value: KnobValue | None, extents: Sequence[int]) -> list[float]:
        """The numbers of one knob; of value None where a configuration has no such knob, or one of another kind."""
        values = self._values[name, kind]
        value = value if value is not None and _kind(value) == kind else None
        if kind == "text":
            return [float(value == one) for one in values]
        if kind == "bool":
            return [float(bool(value))]
        parts = (1,) * _parts(values) if value is None else value if isinstance(value, tuple) else (value,)
        numbers: list[float] = []
        for part in parts:
            numbers += _of_int(int(part))
            numbers += [_waste(extent, int(part)) for extent in extents]
        return numbers


def _kind(value: KnobValue) -> str:
    if isinstance(value, bool):
        return "bool"
    if isinstance(value, int):
        return "int"
    return "text" if isinstance(value, str) else f"split {len(value)}"


def _parts(values: Iterable[KnobValue]) -> int:
    first = next(iter(values))
    return len(first) if isinstance(first, tuple) else 1


def _of_int(value: int) -> list[float]:
    size = float(np.sign(value) * np.log2(1 + abs(value)))
    power = float((value & -value).bit_length() - 1) if value else 0.0
    return [size, power]


def _waste(extent: int, piece: int) -> float:
    """The share of the last piece of an extent that is empty, of the whole."""
    return -(-extent // piece) * piece / extent - 1 if piece > 0 else 0.0
