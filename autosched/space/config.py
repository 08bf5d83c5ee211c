"""One point of a search space: a template and the value of each of its knobs."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, TypeAlias

from autosched.errors import SpaceError
from autosched.json_types import Json

KnobValue: TypeAlias = int | str | bool | tuple[int, ...]
AnyKnob: TypeAlias = Any  # a KnobValue; whoever asks for a knob by name knows which
PLAIN = frozenset({int, str, bool})
THREADS = "threads"  # the knob that says over how many threads a call is split; no template knows it
_ENCODE = json.JSONEncoder(sort_keys=True, separators=(",", ":")).encode  # once: json.dumps makes one each time


@dataclass(frozen=True, eq=False)
class Config:
    """A template's name and its knobs, by name; equal when both are equal by value, whatever the order.

    `Config("matmul", {"rows": 6})["rows"]` is 6. True and 1 are different values.
    Raises  SpaceError for a knob value that is no int, text, bool or tuple of ints.
    """

    template: str
    knobs: Mapping[str, KnobValue] = field(default_factory=dict)
    key: str = field(init=False, repr=False)  # canonical JSON: what equality, hash and the database use

    def __post_init__(self) -> None:
        knobs = {
            name: value if type(value) in PLAIN else plain_value(name, value)  # most are plain already
            for name, value in self.knobs.items()
        }
        object.__setattr__(self, "knobs", MappingProxyType(knobs))
        document = {"template": self.template, "knobs": knobs}
        object.__setattr__(self, "key", _ENCODE(document))

    def __getitem__(self, knob: str) -> AnyKnob:
        if knob == "template":
            return self.template
        if knob not in self.knobs:
            raise SpaceError(f"no knob '{knob}' in {self}", hint=f"there are {', '.join(self.knobs) or 'none'}")
        return self.knobs[knob]

    def get(self, knob: str, default: object = None) -> AnyKnob:
        """The knob's value, or `default` where the configuration has no such knob."""
        return self.knobs.get(knob, default)

    def __eq__(self, other: object) -> bool:
        return self.key == other.key if isinstance(other, Config) else NotImplemented

    def __hash__(self) -> int:
        return hash(self.key)

    def __str__(self) -> str:
        return " ".join([f"{self.template}:", *(f"{name}={_shown(value)}" for name, value in self.knobs.items())])

    def __reduce__(self) -> tuple[type, tuple[object, ...]]:
        return Config, (self.template, dict(self.knobs))

    def with_knobs(self, **changes: KnobValue) -> Config:
        """A copy with some knobs set to other values."""
        return Config(self.template, {**self.knobs, **changes})

    def without(self, knob: str) -> Config:
        """A copy that does not name a knob; the same where it has none of that name."""
        rest = {name: value for name, value in self.knobs.items() if name != knob}
        return Config(self.template, rest) if knob in self.knobs else self

    def to_json(self) -> str:
        """Canonical JSON text; equal configurations give equal text."""
        return self.key

    @staticmethod
    def from_json(document: str | Mapping[str, Json]) -> Config:
        """Read what `to_json` wrote, as text or already decoded. Raises SpaceError for anything else."""
        if isinstance(document, str):
            try:
                document = json.loads(document)
            except (ValueError, RecursionError) as error:
                raise SpaceError(f"a configuration that is not JSON: {error}") from None
        match document:
            case {"template": str() as template, "knobs": dict() as knobs}:
                if not all(isinstance(name, str) for name in knobs):
                    raise SpaceError("a configuration whose knob names are not text")
                return Config(template, knobs)
        raise SpaceError("a configuration needs 'template' (text) and 'knobs' (an object)")


def plain_value(name: str, value: object) -> KnobValue:
    """The value as a plain Python one: lists become tuples, NumPy scalars become Python's."""
    if isinstance(value, bool | int | str):
        return value
    if isinstance(value, list | tuple):
        parts = tuple(plain_value(name, part) for part in value)
        if all(isinstance(part, int) and not isinstance(part, bool) for part in parts):
            return parts  # type: ignore[return-value]
    elif hasattr(value, "item") and getattr(value, "shape", None) == ():
        return plain_value(name, value.item())
    raise SpaceError(
        f"knob '{name}' has the value {value!r}", hint="a knob is an int, a text, a bool or a tuple of ints"
    )


def _shown(value: KnobValue) -> str:
    return "x".join(map(str, value)) if isinstance(value, tuple) else str(value)
