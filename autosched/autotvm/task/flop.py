"""How many operations a schedule's expressions do."""

from __future__ import annotations

import math
from collections.abc import Iterable

from autosched.errors import TVMError
from autosched.te import ComputeOp, Schedule
from autosched.tir import expr as E
from autosched.tir.axis import Reduce
from autosched.tir.buffer import ProducerLoad
from autosched.tir.dtypes import is_float, is_int
from autosched.tir.expr import PrimExpr, const_int


def compute_flop(sch: Schedule) -> int:
    """Additions, multiplications, comparisons … one each, a reduction's per point. Raises TVMError for none."""
    total = sum(_of_operation(stage.op) for stage in sch.stages if isinstance(stage.op, ComputeOp))
    if total <= 0:
        raise TVMError("Cannot find float number operation in this operator", hint="use cfg.add_flop(n)")
    return total


def _of_operation(op: ComputeOp) -> int:
    points = _product(iv.dom.extent for iv in op.axis)
    body = op.body[0]
    if isinstance(body, Reduce):
        inside = _product(iv.dom.extent for iv in body.axis)
        combine = sum(_count(r) for r in body.combiner.result)
        return points * inside * (combine + sum(_count(s) for s in body.source))
    return points * sum(_count(b) for b in op.body)


def _product(extents: Iterable[object]) -> int:
    sizes = [const_int(extent) for extent in extents]
    if any(size is None for size in sizes):
        raise TVMError("FLOP estimator needs constant shapes", hint="use cfg.add_flop(n)")
    return math.prod(size for size in sizes if size is not None)


def _count(x: PrimExpr) -> int:
    match x:
        case ProducerLoad() | E.IntImm() | E.FloatImm() | E.Var():
            return 0
        case E.Cast():
            return _count(x.value)
        case E.Select():
            return _count(x.condition) + max(_count(x.true_value), _count(x.false_value))
        case E.And() | E.Or():
            return _count(x.a) + _count(x.b)
        case E.Not():
            return _count(x.a)
        case E.BinaryOp():
            return _count(x.a) + _count(x.b) + (1 if is_float(x.a.dtype) or is_int(x.a.dtype) else 0)
        case E.Call():
            own = 0 if x.op == "if_then_else" else 1
            return own + sum(_count(arg) for arg in x.args)
    raise TVMError(f"FLOP estimator fails for {type(x).__name__}", hint="use cfg.add_flop(n)")
