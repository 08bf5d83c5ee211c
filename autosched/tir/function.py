"""PrimFunc: a function of the loop level; the same function for given values of its symbolic extents."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from autosched.errors import InvalidTypeError, InvalidValueError
from autosched.ir.function import BaseFunc
from autosched.ir.node import DEFINES, IGNORED, Attrs, FrozenDict, Node, PerType, Span, preorder
from autosched.tir.axis import IterVar
from autosched.tir.buffer import Buffer, BufferLoad
from autosched.tir.dtypes import is_int
from autosched.tir.expr import ExprLike, IntImm, Let, PrimExpr, Var, const, const_int
from autosched.tir.functor import free_vars, replace_buffers, rewrite, statements, substitute
from autosched.tir.stmt import Block, BlockRealize, BufferRegion, For, LetStmt, Stmt


@dataclass(frozen=True, slots=True, eq=False)
class PrimFunc(BaseFunc):
    """Loops around blocks over buffers.

    params      handles (one per buffer) and scalars, in call order: inputs first, outputs last
    buffer_map  handle -> Buffer
    body        before lowering: the BlockRealize of the root block; after it: plain statements
    """

    params: tuple[Var, ...] = field(metadata=DEFINES)
    buffer_map: Mapping[Var, Buffer] = field(metadata=DEFINES)
    body: Stmt
    ret_type: object = None
    attrs: Attrs = field(default_factory=FrozenDict)
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

    def specialize(self, param_map: Mapping[Var, ExprLike | Buffer]) -> PrimFunc:
        """The function with numbers for symbolic sizes: by variable, or by a parameter's buffer of known shape.

        Raises InvalidTypeError for keys and values of other kinds, InvalidValueError where shapes do not agree.
        """
        return specialize_params(self, param_map)


def make_root(
    body: Stmt, alloc_buffers: tuple[Buffer, ...] = (), annotations: Mapping[str, object] | None = None
) -> BlockRealize:
    """The root block around a function's loops."""
    root = Block(
        iter_vars=(), alloc_buffers=alloc_buffers, reads=(), writes=(), name_hint="root", body=body,
        annotations=FrozenDict(annotations or {}),
    )  # fmt: skip
    return BlockRealize((), IntImm(1, "bool"), root)


def shape_vars(func: PrimFunc) -> list[Var]:
    """The variables in the shapes of a function's parameters, in order of first use."""
    found = {v: None for buffer in func.buffers for extent in buffer.shape for v in sorted_vars(extent)}
    return list(found)


def size_vars(func: PrimFunc) -> list[Var]:
    """The symbols whose values a function's kernel is given: those of `shape_vars`, then what else its body uses."""
    shaped = shape_vars(func)
    known = {*shaped, *func.params, *bound_vars(func.body)}
    left = [v for node in preorder(func.body) for v in _integers(node) if v not in known]
    return [*shaped, *dict.fromkeys(left)]


def _integers(node: object) -> Iterable[Var]:
    """The integer variables that a node is, or has in its shape."""
    if isinstance(node, Buffer):
        return (v for extent in node.shape for v in sorted_vars(extent))
    return (node,) if isinstance(node, Var) and is_int(node.dtype) else ()


_BINDS = PerType(lambda kind: issubclass(kind, For | LetStmt | Let | Block))


def bound_vars(node: Node) -> set[Var]:
    """The variables that loops, blocks and lets below `node` introduce."""
    return _bound_by(x for x in preorder(node) if _BINDS[type(x)])


def bound_by_statements(node: Node) -> set[Var]:
    """Those of `bound_vars` that no let inside of an expression introduces; expressions are not looked at."""
    return _bound_by(statements(node))


def _bound_by(nodes: Iterable[Node]) -> set[Var]:
    found: set[Var] = set()
    for x in nodes:
        match x:
            case For():
                found.add(x.loop_var)
            case LetStmt() | Let():
                found.add(x.var)
            case Block():
                found |= {iv.var for iv in x.iter_vars}
    return found


def size_params(func: PrimFunc) -> list[Var]:
    """The scalar parameters that say how large something is: a shape, a loop, a block's domain."""
    sizes = set(shape_vars(func))
    for node in preorder(func.body):
        if isinstance(node, For):
            sizes |= free_vars(node.extent) | free_vars(node.start)
        elif isinstance(node, IterVar):
            sizes |= free_vars(node.dom.extent) | free_vars(node.dom.min)
        elif isinstance(node, Buffer):
            sizes |= {v for extent in node.shape for v in free_vars(extent)}
    return [p for p in func.params if p not in func.buffer_map and p in sizes]


def with_scalar_buffers(func: PrimFunc) -> PrimFunc:
    """The function with scalar parameters as buffers of shape (), which kernels take."""
    scalars = [p for p in func.params if p not in func.buffer_map]
    if not scalars:
        return func
    buffers = {p: Buffer(p.name, (), p.dtype) for p in scalars}
    handles = {p: Var(p.name, "handle") for p in scalars}
    loads: dict[Var, PrimExpr] = {p: BufferLoad(b, ()) for p, b in buffers.items()}

    def step(x: object) -> object:
        if isinstance(x, Block) and x.name_hint != "root":
            used = {b for n in preorder(x.body) if isinstance(n, BufferLoad) for b in (n.buffer,)}
            more = tuple(BufferRegion(b, ()) for b in buffers.values() if b in used)
            return dataclasses.replace(x, reads=x.reads + more) if more else x
        return x

    body = rewrite(substitute(func.body, loads), step)
    params = tuple(handles.get(p, p) for p in func.params)
    known = {handles[p]: b for p, b in buffers.items()} | dict(func.buffer_map)
    return dataclasses.replace(func, params=params, buffer_map=FrozenDict({p: known[p] for p in params}), body=body)


def sorted_vars(extent: object) -> list[Var]:
    """The variables of an expression, by name."""
    return sorted(free_vars(extent), key=lambda v: v.name) if isinstance(extent, PrimExpr) else []


def specialize(func: PrimFunc, values: Mapping[Var, int]) -> PrimFunc:
    """The function with numbers in place of variables; a parameter that is such a variable is left out."""
    numbers: dict[Var, PrimExpr] = {var: const(value, var.dtype) for var, value in values.items()}
    known = {node for node in preorder(func.body) if isinstance(node, Buffer)} | set(func.buffers)
    buffers = {old: _specialized(old, numbers) for old in known}
    changed = {old: new for old, new in buffers.items() if new is not old}
    body = substitute(replace_buffers(func.body, changed), numbers)
    return dataclasses.replace(
        func,
        params=tuple(p for p in func.params if p not in numbers),
        buffer_map=FrozenDict({p: buffers[b] for p, b in func.buffer_map.items()}),
        body=body,
    )


def specialize_params(func: PrimFunc, param_map: Mapping[Var, ExprLike | Buffer]) -> PrimFunc:
    """TVM's `func.specialize`: values for variables, and buffers of known shapes for parameters."""
    values: dict[Var, int] = {}

    def put(var: Var, value: object) -> None:
        number = const_int(value)
        if number is None and hasattr(value, "__index__"):
            number = int(value.__index__())
        if number is None:
            raise InvalidTypeError(f"specialize: the value of '{var.name}' is a {type(value).__name__}, no integer")
        if values.setdefault(var, number) != number:
            raise InvalidValueError(f"specialize: '{var.name}' is {values[var]} and {number}")

    known = {*func.params, *shape_vars(func)}
    for key, value in param_map.items():
        if not isinstance(key, Var) or key not in known:
            name = getattr(key, "name", type(key).__name__)
            raise InvalidValueError(f"specialize: '{name}' is neither a parameter nor a size of the function")
        if not isinstance(value, Buffer):
            put(key, value)
            continue
        if key not in func.buffer_map:
            raise InvalidTypeError(f"specialize: '{key.name}' is a scalar and gets a buffer")
        old = func.buffer_map[key]
        if len(old.shape) != len(value.shape):
            raise InvalidValueError(
                f"specialize: buffer '{old.name}' has {len(old.shape)} dimensions and gets {len(value.shape)}"
            )
        for extent, size in zip(old.shape, value.shape, strict=True):
            if isinstance(extent, Var):
                put(extent, size)
            elif const_int(extent) != const_int(size):
                raise InvalidValueError(f"specialize: buffer '{old.name}' has extent {extent} and gets {size}")
    return specialize(func, values)


def _specialized(buffer: Buffer, numbers: Mapping[Var, PrimExpr]) -> Buffer:
    shape = tuple(substitute(extent, numbers) for extent in buffer.shape)
    same = all(
        const_int(a) == const_int(b) and (a is b or const_int(a) is not None) for a, b in zip(shape, buffer.shape)
    )
    return buffer if same else dataclasses.replace(buffer, shape=shape)
