"""Masks of attention's scores: what is added to them, or hides some of them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from autosched.relax.expr import Constant, Expr
from autosched.relax.struct_info import Dim

HIDDEN = -1e4  # a score that this or less is added to gets no weight; models use -1e4, -1e9, the least number or -inf
SWALLOWS = -1e9  # the sum of a score and this is this in float32, whatever the score


@dataclass(frozen=True)
class Mask:
    """What scores are masked with: `value` is added; or, with `low`, scores where it is true are replaced by `low`.

    inverted  the scores where it is false are
    """

    value: Expr
    low: float | None = None
    inverted: bool = False

    @property
    def is_sum(self) -> bool:
        """Whether scores replaced by `low` have the weights of scores + low.

        A query that sees no key at all gives all keys the same weight, scores + low does not.
        """
        if self.low is None or self.low <= SWALLOWS:
            return True
        if self.low > HIDDEN or not isinstance(self.value, Constant):
            return False
        return bool(np.atleast_1d(self.value.data.astype(bool) == self.inverted).any(axis=-1).all())

    def added(self, dtype: str) -> Expr | None:
        """What to add to the scores, where it is known at build."""
        if self.low is None:
            return self.value
        if not isinstance(self.value, Constant):
            return None
        hidden = self.value.data.astype(bool) != self.inverted
        return Constant(np.where(hidden, self.low, 0.0).astype(dtype))


def causal_kind(mask: object, rows: Dim, columns: Dim, alone: bool) -> str | None:
    """ "TopLeft" where a mask known at build hides exactly the keys j > i of query i, "BottomRight" for j > i + T - S.

    mask   added to scores [.., rows, columns]
    alone  whether nothing else is: where another mask hides all that a query sees, only -inf hides the rest for good
    """
    if not isinstance(mask, Constant) or mask.data.shape[-2:] != (rows, columns):
        return None
    shape: tuple[int, ...] = mask.data.shape[-2:]
    n, m = shape
    values, most = mask.data.reshape(-1, n, m), HIDDEN if alone else -np.inf
    for kind, shift in (("TopLeft", 0), ("BottomRight", m - n)):
        seen = np.tri(n, m, shift, dtype=bool)
        if shift >= 0 and not seen.all() and bool(np.all(np.where(seen, values == 0, values <= most))):
            return kind
    return None
