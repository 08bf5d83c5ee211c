"""Softmax and its logarithm, shifted by the largest value so that nothing overflows."""

from __future__ import annotations

from autosched import te
from autosched.te import Tensor
from autosched.tir import expr as E
from autosched.tir.axis import IterVar
from autosched.tir.expr import ExprLike, PrimExpr
from autosched.topi.shapes import dims, one_axis


class _Along:
    """Computes over all dimensions but one, and over all."""

    def __init__(self, x: Tensor, axis: int):
        self.x, self.axis, self.shape = x, axis, dims(x.shape)
        self.rest = tuple(s for i, s in enumerate(self.shape) if i != axis)

    def reduce_axis(self) -> IterVar:
        return te.reduce_axis((0, self.shape[self.axis]), "k")

    def insert(self, index: tuple[PrimExpr, ...], k: IterVar) -> tuple[ExprLike, ...]:
        return (*index[: self.axis], k, *index[self.axis :])

    def without(self, index: tuple[PrimExpr, ...]) -> tuple[PrimExpr, ...]:
        return (*index[: self.axis], *index[self.axis + 1 :])

    def largest(self, name: str) -> Tensor:
        k = self.reduce_axis()
        return te.compute(self.rest, lambda *i: te.max(self.x(*self.insert(i, k)), axis=k), name=name)


def softmax(x: Tensor, axis: int = -1) -> Tensor:
    """exp(x) divided by its sum along `axis`."""
    a = _Along(x, one_axis(x, axis))
    largest = a.largest("T_softmax_maxelem")
    exp = te.compute(a.shape, lambda *i: te.exp(x(*i) - largest(*a.without(i))), name="T_softmax_exp")
    k = a.reduce_axis()
    total = te.compute(a.rest, lambda *i: te.sum(exp(*a.insert(i, k)), axis=k), name="T_softmax_expsum")
    one = E.const(1, x.dtype)  # a division a row, not an element
    return te.compute(a.shape, lambda *i: exp(*i) * (one / total(*a.without(i))), name="T_softmax_norm")


def log_softmax(x: Tensor, axis: int = -1) -> Tensor:
    """x less the logarithm of the sum of exp(x) along `axis`."""
    a = _Along(x, one_axis(x, axis))
    largest = a.largest("T_softmax_maxelem")
    k = a.reduce_axis()

    def exp_sum(*i: PrimExpr) -> PrimExpr:
        return te.sum(te.exp(x(*a.insert(i, k)) - largest(*i)), axis=k)

    total = te.compute(a.rest, exp_sum, name="T_softmax_expsum")
    return te.compute(a.shape, lambda *i: x(*i) - largest(*a.without(i)) - te.log(total(*a.without(i))), name="compute")
