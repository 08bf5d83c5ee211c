"""Annotations of graph values as text: `R.Tensor((1, 8), dtype="float32")`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from autosched.ir.global_info import VDevice
from autosched.ir.node import Node, preorder
from autosched.relax import struct_info as info
from autosched.script.printer.context import Context
from autosched.script.printer.literals import string, tuple_text
from autosched.script.printer.tir_expr import expr
from autosched.tir.expr import IntImm, PrimExpr, Var


def dims(ctx: Context, values: Sequence[PrimExpr]) -> list[str]:
    """Dimensions: int64 is bare; before the symbols are defined (in a signature) an expression stands in quotes."""
    with ctx.with_int_dtype("int64"):
        return [_dim(ctx, v) for v in values]


def _dim(ctx: Context, value: PrimExpr) -> str:
    if isinstance(value, IntImm) or all(id(v) in ctx.declared for v in _variables(value)):
        return expr(ctx, value)
    return string(expr(ctx, value))


def _variables(value: Node) -> Iterator[Var]:
    return (x for x in preorder(value) if isinstance(x, Var))


def symbols(node: info.StructInfo | None) -> Iterator[Var]:
    """The symbolic dimensions in an annotation, in order, each perhaps several times."""
    return iter(()) if node is None else _variables(node)


def struct_info(ctx: Context, node: object) -> str:
    """The text of an annotation."""
    match node:
        case info.TensorStructInfo():
            return ctx.marked(node, _tensor(ctx, node))
        case info.ShapeStructInfo(values=values, ndim=ndim):
            inside = f"ndim={ndim}" if values is None else f"[{', '.join(dims(ctx, values))}]"
            return f"{ctx.r('Shape')}({inside})"
        case info.PrimStructInfo(dtype=dtype, value=value):
            if value is None:
                return f"{ctx.r('Prim')}({string(dtype)})"
            return f"{ctx.r('Prim')}(value={dims(ctx, [value])[0]})"
        case info.TupleStructInfo(fields=fields):
            return f"{ctx.r('Tuple')}({', '.join(struct_info(ctx, f) for f in fields)})"
        case info.FuncStructInfo(params=params, ret=ret, purity=purity):
            impure = "" if purity else ", purity=False"
            if params is None:
                return f"{ctx.r('Callable')}(ret={struct_info(ctx, ret)}{impure})"
            inside = tuple_text([struct_info(ctx, p) for p in params])
            return f"{ctx.r('Callable')}({inside}, {struct_info(ctx, ret)}{impure})"
    return ctx.r("Object")


def _tensor(ctx: Context, node: info.TensorStructInfo) -> str:
    parts = []
    if node.shape is not None:
        known = node.shape.values if isinstance(node.shape, info.ShapeExpr) else None
        parts.append(tuple_text(dims(ctx, known)) if known is not None else str(node.shape))
    if node.dtype:
        parts.append(f"dtype={string(node.dtype)}")
    if node.vdevice is not None:
        parts.append(f"vdevice={string(vdevice_name(ctx, node.vdevice))}")
    if node.shape is None and node.ndim >= 0:
        parts.append(f"ndim={node.ndim}")
    return f"{ctx.r('Tensor')}({', '.join(parts)})"


def vdevice_name(ctx: Context, device: VDevice) -> str:
    """`kind:index:scope`, where the index counts the module's devices of this kind."""
    assert device.target is not None, "a device that values lie on has a target"
    alike = [d for d in ctx.vdevices if d.target is not None and d.target.kind.name == device.target.kind.name]
    index = next((i for i, d in enumerate(alike) if d.is_same(device)), device.vdevice_id)
    return f"{device.target.kind.name}:{index}:{device.memory_scope}"
