"""Buffers, symbols and regions from text."""

from __future__ import annotations

import ast

from autosched.script.intrinsics import DTYPES
from autosched.script.parser import values
from autosched.script.parser.state import Meaning, State, arguments, keywords
from autosched.script.parser.tir_expr import ExprReader
from autosched.tir import expr as E
from autosched.tir.axis import Range
from autosched.tir.buffer import Buffer
from autosched.tir.expr import PrimExpr, SizeVar, Var
from autosched.tir.simplify import Analyzer, form_key
from autosched.tir.stmt import BufferRegion

_BUFFER_WORDS = (
    "shape", "dtype", "strides", "elem_offset", "scope", "align", "offset_factor", "buffer_type", "axis_separators",
)  # fmt: skip


def dims(exprs: ExprReader, node: ast.AST) -> tuple[PrimExpr, ...]:
    """A shape: a tuple or list of dimensions, or one dimension."""
    if isinstance(node, ast.Tuple | ast.List):
        return exprs.exprs(node.elts)
    value = exprs.value(node)
    if isinstance(value, tuple | list):
        with exprs.state.source.at(node):
            return tuple(E.to_expr(v) for v in value)
    return exprs.exprs([node])


def buffer(exprs: ExprReader, node: ast.Call, name: str, *first: str, more: tuple[str, ...] = ()) -> Buffer:
    """The buffer that a call of `T.Buffer`, `T.alloc_buffer`, `T.match_buffer` or `T.decl_buffer` describes.

    first, more  names of arguments before and after those of the buffer itself
    """
    state = exprs.state
    args = arguments(state, node, *first, *_BUFFER_WORDS, *more, required=len(first) + 1)
    words: dict[str, Meaning] = {}
    if "strides" in args:
        words["strides"] = dims(exprs, args["strides"])
    if "elem_offset" in args:
        words["elem_offset"] = exprs.expr(args["elem_offset"])
    if "scope" in args:
        words["scope"] = values.string(state, args["scope"])
    if "align" in args:
        words["data_alignment"] = values.integer(state, args["align"])
    if "offset_factor" in args:
        words["offset_factor"] = values.integer(state, args["offset_factor"])
    if "axis_separators" in args:
        words["axis_separators"] = tuple(values.attribute(state, args["axis_separators"]))
    dtype = values.dtype(state, args["dtype"]) if "dtype" in args else "float32"
    return Buffer(name, dims(exprs, args["shape"]), dtype, **words)


def symbol(state: State, node: ast.AST, name: str) -> Var | None:
    """The variable that `T.int64()` or, in a signature, `T.int32` declares; None for anything else."""
    found = state.dialect_name(node.func if isinstance(node, ast.Call) else node)
    if found is None or found[0] != "T" or found[1] not in (*DTYPES, "handle"):
        return None
    if not isinstance(node, ast.Call):
        return Var(name, found[1])
    if node.args:
        return None
    words = keywords(state, node, "is_size_var")
    is_size = "is_size_var" in words and values.truth(state, words["is_size_var"])
    return SizeVar(name, found[1]) if is_size else Var(name, found[1])


def extent_between(start: PrimExpr, end: PrimExpr) -> PrimExpr:
    """The extent of [start, end): the one that the printer added to `start`."""
    first = E.const_int(start)
    if first == 0:
        return end
    if isinstance(end, E.Add) and form_key(end.a) == form_key(start):
        return end.b
    return Analyzer().simplify(E.sub(end, start))


def region(exprs: ExprReader, node: ast.AST) -> BufferRegion:
    """`A[i, 0:8]`: elements have extent 1. Raises ScriptError for anything else."""
    state = exprs.state
    if isinstance(node, ast.Name):
        whole = exprs.buffer(node)
        return BufferRegion(whole, tuple(Range(E.const(0, s.dtype), s) for s in whole.shape))
    if not isinstance(node, ast.Subscript):
        raise state.error(node, "expected a region such as A[i, 0:8]")
    base = exprs.buffer(node.value)
    items = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
    if len(items) != base.ndim:
        raise state.error(node, f"buffer '{base.name}' has {base.ndim} dimensions, got {len(items)} indices")
    return BufferRegion(base, tuple(_range(exprs, item, base.shape[i]) for i, item in enumerate(items)))


def _range(exprs: ExprReader, node: ast.AST, dim: PrimExpr) -> Range:
    if not isinstance(node, ast.Slice):
        at = exprs.expr(node)
        return Range(at, E.const(1, at.dtype))
    if node.step is not None:
        raise exprs.state.error(node.step, "a region has no step")
    start = exprs.expr(node.lower) if node.lower is not None else E.const(0, dim.dtype)
    end = exprs.expr(node.upper) if node.upper is not None else dim
    return Range(start, extent_between(start, end))
