"""PrimFunc: a function of the loop level."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from autosched.ir import printing
from autosched.ir.node import DEFINES, IGNORED, FrozenDict, Node, Span
from autosched.tir.buffer import Buffer
from autosched.tir.expr import IntImm, Var
from autosched.tir.stmt import Block, BlockRealize, Stmt


@dataclass(frozen=True, slots=True, eq=False)
class PrimFunc(Node):
    """Loops around blocks over buffers.

    params      handles (one per buffer) and scalars, in call order: inputs first, outputs last
    buffer_map  handle -> Buffer
    body        before lowering: the BlockRealize of the root block; after it: plain statements
    """

    params: tuple[Var, ...] = field(metadata=DEFINES)
    buffer_map: Mapping[Var, Buffer] = field(metadata=DEFINES)
    body: Stmt
    ret_type: Any = None
    attrs: Mapping[str, Any] = field(default_factory=FrozenDict)
    span: Span | None = field(default=None, metadata=IGNORED)

    @property
    def buffers(self) -> tuple[Buffer, ...]:
        """The buffers of the interface, in parameter order."""
        return tuple(self.buffer_map[p] for p in self.params if p in self.buffer_map)

    @property
    def root(self) -> Block:
        """The root block. Raises AssertionError on a lowered function."""
        assert isinstance(self.body, BlockRealize), "the function has been lowered: it has no root block"
        return self.body.block

    def with_body(self, body: Stmt) -> PrimFunc:
        return self if body is self.body else dataclasses.replace(self, body=body)

    def with_attr(self, key: str | Mapping[str, Any], value: Any = None) -> PrimFunc:
        changes = dict(key) if isinstance(key, Mapping) else {key: value}
        return dataclasses.replace(self, attrs=FrozenDict({**self.attrs, **changes}))

    def without_attr(self, key: str) -> PrimFunc:
        return dataclasses.replace(self, attrs=FrozenDict({k: v for k, v in self.attrs.items() if k != key}))

    def specialize(self, param_map: Mapping[Any, Any]) -> PrimFunc:
        """The function with numbers for symbolic sizes: by variable, or by a parameter's buffer of known shape.

        Raises InvalidTypeError for keys and values of other kinds, InvalidValueError where shapes do not agree.
        """
        from autosched.tir.specialize import specialize_params

        return specialize_params(self, param_map)

    def script(self, **options: Any) -> str:
        """The function as TVMScript text."""
        return printing.text(self, **options)

    def show(self, **options: Any) -> None:
        printing.show(self, **options)

    def __str__(self) -> str:
        return self.script()


def make_root(
    body: Stmt, alloc_buffers: tuple[Buffer, ...] = (), annotations: Mapping[str, Any] | None = None
) -> BlockRealize:
    """The root block around a function's loops."""
    root = Block(
        iter_vars=(), alloc_buffers=alloc_buffers, reads=(), writes=(), name_hint="root", body=body,
        annotations=FrozenDict(annotations or {}),
    )  # fmt: skip
    return BlockRealize((), IntImm(1, "bool"), root)
