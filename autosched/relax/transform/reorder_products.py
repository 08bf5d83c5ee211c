"""Products in another order, and moves on the other side of products or concatenations: TVM's passes for LoRA."""

from __future__ import annotations

from collections.abc import Callable

from autosched.ir.module import IRModule
from autosched.ir.transform import Pass, graph_pass
from autosched.relax import op
from autosched.relax.analysis import computable_at_compile_time
from autosched.relax.expr import Call, Constant, Expr, Function, Tuple, Var
from autosched.relax.rewrite import CallTracker, map_functions
from autosched.relax.struct_info import Dim, TensorStructInfo, same_dims
from autosched.relax.transform.dead_code import remove_unused_bindings
from autosched.tir import expr as E
from autosched.tir.arith import products


class _Reorderer(CallTracker):
    """Knows which call each variable is bound to, and what is known before a model's inputs are."""

    def __init__(self, function: Function):
        super().__init__()
        n_inputs = function.attrs.get("num_input", len(function.params))
        self.early = {*function.params[n_inputs:], *computable_at_compile_time(function)}

    def call(self, call: Call, var: Var) -> Expr:
        return self.reordered(call) or call

    def reordered(self, call: Call) -> Expr | None:
        """The call in another order, None where it stays."""
        raise NotImplementedError

    def source(self, x: object, name: str) -> Call | None:
        """The call of operator `name` that computes `x`."""
        found = x if isinstance(x, Call) else self.call_of(x)
        return found if found is not None and found.op_name == f"relax.{name}" else None

    def is_early(self, *values: Expr) -> bool:
        return all(isinstance(x, Constant) or x in self.early for x in values)


def _dims(x: object) -> tuple[Dim, ...] | None:
    info = getattr(x, "struct_info", None)
    return info.dims if isinstance(info, TensorStructInfo) and info.shape is not None else None


def _pass(name: str, kind: Callable[[Function], _Reorderer]) -> Pass:
    def change(function: Function) -> Function:
        new = kind(function).rewrite(function)
        return function if new is function else remove_unused_bindings(new)

    def run(module: IRModule) -> IRModule:
        return map_functions(module, change)

    return graph_pass(name)(run)


def _product(dims: tuple[Dim, ...]) -> E.PrimExpr:
    total: E.PrimExpr = E.const(1, "int64")
    for d in dims:
        total = E.mul(total, E.cast("int64", E.to_expr(d)) if not isinstance(d, int) else d)
    return total


def _batch(a: tuple[Dim, ...], b: tuple[Dim, ...]) -> tuple[Dim, ...]:
    """The dimensions before the matrices, as a product of two broadcasts them."""
    x, y = a[:-2], b[:-2]
    if len(x) < len(y):
        x, y = y, x
    tail = [p if q == 1 else q for p, q in zip(x[len(x) - len(y) :], y, strict=True)]
    return (*x[: len(x) - len(y)], *tail)


class _MatmulOrder(_Reorderer):
    def reordered(self, call: Call) -> Expr | None:
        if call.op_name != "relax.matmul":
            return None
        left, right = call.args
        for inner, side in ((self.source(left, "matmul"), 0), (self.source(right, "matmul"), 1)):
            if inner is None or inner.attrs["out_dtype"] != call.attrs["out_dtype"]:
                continue
            a, b, c = (*inner.args, right) if side == 0 else (left, *inner.args)
            first = self.first(a, b, c, side)
            if first == side:
                continue
            dtype = call.attrs["out_dtype"]
            if first == 0:
                return op.matmul(op.matmul(a, b, dtype), c, dtype)
            return op.matmul(a, op.matmul(b, c, dtype), dtype)
        return None

    def first(self, a: Expr, b: Expr, c: Expr, now: int) -> int:
        """0 for (a b) c, 1 for a (b c)."""
        shapes = [_dims(x) for x in (a, b, c)]
        if any(s is None for s in shapes):
            return now
        x, y, z = (s for s in shapes if s is not None)
        vectors = len(x) == 1 or len(z) == 1
        if len(y) < 2 or (vectors and max(map(len, (x, y, z))) > 2):
            return now
        early = self.is_early(a, b), self.is_early(b, c)
        if early[0] != early[1]:
            return 0 if early[0] else 1
        m = x if len(x) > 1 else (1, *x)
        q = z if len(z) > 1 else (*z, 1)
        every = _batch((*_batch(m, y), 1, 1), q)
        outer = (m[-2], y[-2], y[-1], q[-1])
        left = E.add(
            _product((*_batch(m, y), outer[0], outer[1], outer[2])), _product((*every, outer[0], outer[2], outer[3]))
        )
        right = E.add(
            _product((*_batch(y, q), outer[1], outer[2], outer[3])), _product((*every, outer[0], outer[1], outer[3]))
        )
        if _surely_less(left, right):
            return 0
        return 1 if _surely_less(right, left) else now


def _surely_less(a: E.PrimExpr, b: E.PrimExpr) -> bool:
    """Whether a < b for all positive values of the symbols."""
    difference = products.terms(E.sub(b, a))
    return bool(difference) and all(n > 0 for n, _ in difference.values())


class _MatmulOfSum(_Reorderer):
    def reordered(self, call: Call) -> Expr | None:
        if call.op_name != "relax.matmul":
            return None
        x, weight = call.args
        turned = self.source(weight, "permute_dims")
        total = self.source(turned.args[0] if turned is not None else weight, "add")
        if total is None or self.is_early(*total.args):
            return None
        shape, other = map(_dims, total.args)
        if shape is None or other is None or not same_dims(shape, other) or len(shape) < 2:
            return None
        parts = total.args if turned is None else [op.permute_dims(p, turned.attrs["axes"]) for p in total.args]
        return op.add(*(op.matmul(x, p, call.attrs["out_dtype"]) for p in parts))


class _PermuteAfterConcat(_Reorderer):
    def reordered(self, call: Call) -> Expr | None:
        if call.op_name != "relax.concat" or not isinstance(call.args[0], Tuple):
            return None
        turned = [self.source(x, "permute_dims") for x in call.args[0].fields]
        if len(turned) < 2 or any(t is None for t in turned):
            return None
        calls = [t for t in turned if t is not None]
        orders = {self._order(t) for t in calls}
        axis = call.attrs["axis"]
        if len(orders) != 1 or None in orders or axis is None:
            return None
        (order,) = orders
        assert order is not None
        if list(order) == sorted(order):
            return None
        joined = op.concat(Tuple(tuple(t.args[0] for t in calls)), axis=order[axis % len(order)])
        return op.permute_dims(joined, calls[0].attrs["axes"])

    def _order(self, call: Call) -> tuple[int, ...] | None:
        dims, axes = _dims(call.args[0]), call.attrs["axes"]
        if dims is None:
            return None
        return tuple(range(len(dims)))[::-1] if axes is None else tuple(a % len(dims) for a in axes)


class _TakeAfterMatmul(_Reorderer):
    def reordered(self, call: Call) -> Expr | None:
        take = self.source(call.args[1], "take") if call.op_name == "relax.matmul" else None
        if take is None:
            return None
        x, (table, places) = call.args[0], take.args
        shape, rows, picks = _dims(x), _dims(table), _dims(places)
        axis = take.attrs["axis"]
        if shape is None or rows is None or picks is None or axis is None or len(picks) != 1 or len(shape) < 2:
            return None
        axis %= len(rows)
        dtype = call.attrs["out_dtype"]
        if len(rows) == 2 and axis == 1:  # columns of one matrix
            return op.take(op.matmul(x, table, dtype), places, axis=len(shape) - 1, mode=take.attrs["mode"])
        return None


def AdjustMatmulOrder() -> Pass:  # noqa: N802
    """`x (A B)` as `(x A) B`, or the other way round, where that is surely less work, or where what is known of the
    weights alone can be computed once."""
    return _pass("AdjustMatmulOrder", _MatmulOrder)


def ExpandMatmulOfSum() -> Pass:  # noqa: N802
    """`x (A + B)` as `x A + x B`, unless A + B is known before the model's inputs are."""
    return _pass("ExpandMatmulOfSum", _MatmulOfSum)


def ReorderPermuteDimsAfterConcat() -> Pass:  # noqa: N802
    """Transpositions of what is concatenated become one of the concatenation."""
    return _pass("ReorderPermuteDimsAfterConcat", _PermuteAfterConcat)


def ReorderTakeAfterMatmul() -> Pass:  # noqa: N802
    """A product with columns of a matrix that are looked up becomes a look-up of columns of the product with all."""
    return _pass("ReorderTakeAfterMatmul", _TakeAfterMatmul)
