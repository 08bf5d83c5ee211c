"""What functions of both levels have: attributes, and a text."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Self

from autosched.ir.node import Attrs, FrozenDict, Node
from autosched.ir.printing import Scripted


def attribute_name(key: str) -> str:
    """The name of an attribute: TVM says `tirx.` today for `tir.`."""
    return f"tir.{key[5:]}" if key.startswith("tirx.") else key


class BaseFunc(Scripted, Node):
    """Base of functions: a frozen dataclass with the field `attrs`."""

    __slots__ = ()
    attrs: Attrs

    def with_attr(self, key: str | Mapping[str, object], value: object = None) -> Self:
        """The function with one more attribute, or with those of a mapping."""
        changes = dict(key) if isinstance(key, Mapping) else {key: value}
        return self._with_attrs({**self.attrs, **changes})

    def with_attrs(self, attr_map: Mapping[str, object]) -> Self:
        """The function with the attributes of a mapping, besides its own."""
        return self.with_attr(attr_map)

    def without_attr(self, key: str) -> Self:
        """The function without an attribute."""
        return self._with_attrs({k: v for k, v in self.attrs.items() if k != key})

    def _with_attrs(self, attrs: Mapping[str, object]) -> Self:
        named = FrozenDict({attribute_name(k): v for k, v in attrs.items()})
        return dataclasses.replace(self, attrs=named)  # type: ignore[type-var]
