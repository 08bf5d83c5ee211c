"""Rewrites of te operations: copies that come in between, and reductions in two steps."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

from autosched.errors import InvalidValueError
from autosched.ir.node import FrozenDict
from autosched.te.extern import ExternOp
from autosched.te.scan import ScanOp
from autosched.te.stage import Fuse, Split, Stage
from autosched.te.tensor import ComputeOp, Operation, Tensor
from autosched.tir import expr as E
from autosched.tir.axis import REDUCE, SPATIAL, IterVar, Range, Reduce
from autosched.tir.buffer import ProducerLoad
from autosched.tir.expr import PrimExpr, Var
from autosched.tir.functor import rewrite, substitute


def rewire(op: Operation, tensors: Mapping[Tensor, Tensor]) -> Operation:
    """The operation reading other tensors in place of some; the same object if it reads none of them."""
    if not any(t in tensors for t in op.input_tensors):
        return op
    if isinstance(op, ExternOp | ScanOp):
        return op.with_inputs(tensors)
    if not isinstance(op, ComputeOp):
        return op

    def step(x: object) -> object:
        if isinstance(x, ProducerLoad) and x.producer in tensors:
            return ProducerLoad(tensors[x.producer], x.indices)
        return x

    return dataclasses.replace(op, body=tuple(rewrite(b, step) for b in op.body), _cache={})


def _fresh(axis: IterVar, suffix: str = "") -> IterVar:
    return IterVar(axis.dom, Var(f"{axis.var.name}{suffix}", axis.var.dtype), axis.kind)


def reading_copy(source: Tensor, scope: str) -> ComputeOp:
    """A copy of a tensor, element by element, called "A.shared"."""
    axes = tuple(
        IterVar(Range(E.const(0, extent.dtype), extent), Var(f"ax{i}", extent.dtype), SPATIAL)
        for i, extent in enumerate(source.shape)
    )
    body = ProducerLoad(source, tuple(a.var for a in axes))
    return ComputeOp(f"{source.op.name}.{scope}", axes, (body,))


def cached_computation(op: ComputeOp, scope: str) -> tuple[ComputeOp, ComputeOp]:
    """(the computation under axes of its own, called "C.local"; the copy of it with the name and axes of `op`)."""
    axes = tuple(_fresh(a, ".c") for a in op.axis)
    values = {a.var: new.var for a, new in zip(op.axis, axes, strict=True)}
    cache = ComputeOp(f"{op.name}.{scope}", axes, _reductions(op, values), op.tag, op.attrs)
    at = tuple(a.var for a in op.axis)
    copy = ComputeOp(op.name, op.axis, tuple(ProducerLoad(cache.output(i), at) for i in range(op.num_outputs)))
    return cache, copy


def _reductions(op: ComputeOp, values: Mapping[Var, PrimExpr]) -> tuple[PrimExpr, ...]:
    """The bodies at other indices; reduction axes stay the objects they are."""
    bodies: list[PrimExpr] = []
    for body in op.body:
        if isinstance(body, Reduce):
            bodies.append(
                dataclasses.replace(
                    body,
                    source=tuple(substitute(s, values) for s in body.source),
                    condition=substitute(body.condition, values),
                    init=tuple(substitute(i, values) for i in body.init),
                )
            )
        else:
            bodies.append(substitute(body, values))
    return tuple(bodies)


def factored_reduction(stage: Stage, axis: IterVar, factor_axis: int) -> tuple[ComputeOp, ComputeOp]:
    """(partial results per iteration of `axis`, called "B.rf"; their reduction with the name and axes of the stage).

    Raises ValueError where the stage is no reduction, or `axis` is not made of its reduction axes alone.
    """
    op = stage.op
    if not isinstance(op, ComputeOp) or not isinstance(op.body[0], Reduce):
        raise InvalidValueError(f"rfactor: '{op.name}' is no reduction")
    if axis.kind != REDUCE:
        raise InvalidValueError(f"rfactor: '{axis.var.name}' is no reduction axis", where=f"stage {op.name}")
    place = factor_axis if factor_axis >= 0 else len(op.axis) + 1 + factor_axis
    if not 0 <= place <= len(op.axis):
        raise InvalidValueError(f"rfactor: factor_axis {factor_axis} of {len(op.axis) + 1} axes")
    reduce: Reduce = op.body[0]
    spatial = [_fresh(a, "") for a in op.axis]
    factor = IterVar(axis.dom, Var(axis.var.name, axis.var.dtype), SPATIAL)
    rest = tuple(_fresh(leaf) for leaf in stage.leaf_iter_vars if leaf.kind == REDUCE and leaf is not axis)
    leaves = [leaf for leaf in stage.leaf_iter_vars if leaf.kind == REDUCE and leaf is not axis]
    known: dict[IterVar, PrimExpr] = {a: b.var for a, b in zip(leaves, rest, strict=True)}
    known[axis] = factor.var
    conditions = _root_values(stage, known)
    values: dict[Var, PrimExpr] = {a.var: b.var for a, b in zip(op.axis, spatial, strict=True)}
    values |= {a.var: E.add(known[a], a.dom.min) for a in op.reduce_axis}
    condition = (
        E.all_of(substitute(reduce.condition, values), *conditions)
        if conditions
        else substitute(reduce.condition, values)
    )
    source = tuple(substitute(s, values) for s in reduce.source)
    identity = reduce.combiner.identity_element
    bodies: list[PrimExpr] = []
    for i in range(op.num_outputs):
        if rest:
            bodies.append(Reduce(reduce.combiner, source, rest, condition, i, ()))
        else:
            bodies.append(E.if_then_else(condition, source[i], identity[i]))
    axes = (*spatial[:place], factor, *spatial[place:])
    partial = ComputeOp(f"{op.name}.rf", axes, tuple(bodies), op.tag, op.attrs)
    last = IterVar(axis.dom, Var(f"{axis.var.name}.v", axis.var.dtype), REDUCE)
    at = [a.var for a in op.axis]
    at.insert(place, last.var)
    loads = tuple(ProducerLoad(partial.output(i), tuple(at)) for i in range(op.num_outputs))
    always = E.const(1, "bool")
    finals = tuple(Reduce(reduce.combiner, loads, (last,), always, i, reduce.init) for i in range(op.num_outputs))
    return partial, ComputeOp(op.name, op.axis, finals, op.tag, FrozenDict(op.attrs))


def _root_values(stage: Stage, known: dict[IterVar, PrimExpr]) -> list[PrimExpr]:
    """Work out what axes were split and fused from, from the values of the leaves; gives the guards of the tails."""
    conditions: list[PrimExpr] = []
    for relation in reversed(stage.relations):
        match relation:
            case Split(parent, outer, inner) if outer in known and inner in known:
                value = E.add(E.mul(known[outer], inner.dom.extent), known[inner])
                known[parent] = value
                sizes = [E.const_int(iv.dom.extent) for iv in (parent, outer, inner)]
                total, n_outer, n_inner = sizes
                if total is None or n_outer is None or n_inner is None or n_outer * n_inner != total:
                    conditions.append(E.compare(E.LT, value, parent.dom.extent))
            case Split(parent, outer, inner) if parent.kind == REDUCE:
                raise InvalidValueError(
                    f"rfactor: '{parent.var.name}' is fused with other axes", where=f"stage {stage.op.name}"
                )
            case Fuse(axes, fused) if fused in known:
                rest = known[fused]
                for axis in reversed(axes[1:]):
                    known[axis] = E.floormod(rest, axis.dom.extent)
                    rest = E.floordiv(rest, axis.dom.extent)
                known[axes[0]] = rest
    return conditions


__all__ = ["cached_computation", "factored_reduction", "reading_copy", "rewire"]
