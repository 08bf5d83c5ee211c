"""Drawing tokens from probabilities."""

from __future__ import annotations

import numpy as np

from autosched import te
from autosched.errors import ShapeError
from autosched.frontend.nn.core import Tensor, wrap_nested
from autosched.frontend.nn.op.arguments import value_of
from autosched.frontend.nn.op.own import tensor_expr_op
from autosched.frontend.nn.op.reductions import cumsum
from autosched.relax import op as R
from autosched.relax.expr import Constant, Expr, ShapeExpr
from autosched.tir.expr import IntImm, PrimExpr, cast, select


def _rows(prob: Tensor, uniform_sample: Tensor, sample_indices: Tensor | None) -> Expr:
    """[n, 1]: the row of `prob` that each sample is drawn from. Raises ShapeError where they do not fit."""
    n = uniform_sample.shape[0]
    if sample_indices is not None:
        if list(sample_indices.shape) != list(uniform_sample.shape):
            raise ShapeError(f"sample_indices of shape {sample_indices.shape}, samples of {uniform_sample.shape}")
        return sample_indices._expr
    if not isinstance(n, int) or prob.shape[0] != n:
        raise ShapeError(f"{n} samples of {prob.shape[0]} distributions", hint="sample_indices says which")
    return Constant(np.arange(n).reshape(n, 1))


def multinomial_from_uniform(
    prob: Tensor, uniform_sample: Tensor, sample_indices: Tensor | None = None, dtype: str = "int64",
    name: str = "multinomial_from_uniform",
) -> Tensor:  # fmt: skip
    """[n, 1]: an index drawn from the rows of `prob` by numbers between 0 and 1."""
    rows = _rows(prob, uniform_sample, sample_indices)
    result: Tensor = wrap_nested(R.multinomial_from_uniform(prob._expr, uniform_sample._expr, rows, dtype), name)
    return result


def _kept(total: te.Tensor, top_p: te.Tensor, top_k: te.Tensor) -> te.Tensor:
    """[batch, 1]: the last of the sorted values that are kept, where `total` are their running sums."""
    batch, size = total.shape
    k = te.reduce_axis((0, size), "k")

    def below(i: PrimExpr, _: PrimExpr) -> PrimExpr:
        inside = te.all(total(i, k) < top_p(i, 0), cast(top_k.dtype, k.var + 1) < top_k(i, 0))
        return te.sum(select(inside, IntImm(1, "int64"), IntImm(0, "int64")), axis=k)

    count = te.compute((batch, 1), below, name="kept")
    return te.compute((batch, 1), lambda i, j: te.min(count[i, j], cast("int64", size - 1)), name="last")


def _at_last(values: te.Tensor, total: te.Tensor, top_p: te.Tensor, top_k: te.Tensor) -> te.Tensor:
    last = _kept(total, top_p, top_k)
    return te.compute((values.shape[0], 1), lambda i, j: values[i, last[i, j]], name="at_last")


def sample_top_p_top_k_from_sorted_prob(
    sorted_prob: Tensor, sorted_index: Tensor, top_p: Tensor, top_k: Tensor, uniform_sample: Tensor,
    sample_indices: Tensor | None = None,
) -> Tensor:  # fmt: skip
    """[n, 1]: indices drawn from probabilities in falling order, of which `top_p` and `top_k` keep some in each row."""
    rows = R.reshape(_rows(sorted_prob, uniform_sample, sample_indices), ShapeExpr((uniform_sample.shape[0],)))
    total = cumsum(sorted_prob, axis=1)
    whole = tensor_expr_op(_at_last, "get_renorm_prob", [total, total, top_p, top_k])

    def draw(total: te.Tensor, index: te.Tensor, whole: te.Tensor, sample: te.Tensor) -> te.Tensor:
        n, size = total.shape
        k = te.reduce_axis((0, size), "k")

        def below(i: PrimExpr, j: PrimExpr) -> PrimExpr:
            passed = sample[i, j] >= total[i, k] / whole[i, 0]
            return te.sum(select(passed, IntImm(1, "int64"), IntImm(0, "int64")), axis=k)

        count = te.compute((n, 1), below, name="passed")
        return te.compute((n, 1), lambda i, j: index[i, te.min(count[i, j], cast("int64", size - 1))], name="drawn")

    chosen = (wrap_nested(R.take(t._expr, rows, axis=0), "rows") for t in (total, sorted_index, whole))
    result: Tensor = tensor_expr_op(draw, "get_index_from_sorted", [*chosen, uniform_sample])
    return result


def renormalize_top_p_top_k_prob(prob: Tensor, sorted_prob: Tensor, top_p: Tensor, top_k: Tensor) -> Tensor:
    """The probabilities that `top_p` and `top_k` keep, with a sum of 1; the others are 0."""
    total = cumsum(sorted_prob, axis=1)
    least = tensor_expr_op(_at_last, "get_renorm_cutoff", [sorted_prob, total, top_p, top_k])
    kept = R.where(R.greater_equal(value_of(prob, "renormalize"), least._expr), prob._expr, R.zeros_like(prob._expr))
    filtered = wrap_nested(kept, "filtered")
    result: Tensor = wrap_nested(R.divide(filtered._expr, R.sum(filtered._expr, axis=1, keepdims=True)), "renormalized")
    return result
