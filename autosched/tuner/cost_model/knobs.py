"""Numbers for configurations of different spaces of one family: by the knobs' values, not by their candidates."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from autosched.space import Config, KnobValue


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
        extents = [(sizes or {}).get(name, 1) for name in self._sizes]
        heads = [float(np.log2(max(extent, 1))) for extent in extents]
        known: dict[tuple[str, str, KnobValue | None], list[float]] = {}  # few values, many configurations
        rows = []
        for config in configs:
            row = [float(config.template == name) for name in self._templates] if len(self._templates) > 1 else []
            row += heads
            for name, kind in self._values:
                value = config.knobs.get(name)
                key = name, kind, value if value is None or _kind(value) == kind else None
                if key not in known:
                    known[key] = self._numbers(name, kind, key[2], extents)
                row += known[key]
            rows.append(row)
        return np.array(rows, dtype=np.float64)

    def _numbers(self, name: str, kind: str, value: KnobValue | None, extents: Sequence[int]) -> list[float]:
        """The numbers of one knob; of value None where a configuration has no such knob."""
        values = self._values[name, kind]
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
