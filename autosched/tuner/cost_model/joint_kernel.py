"""The plain covariance of a search space: Matern 5/2 of the scaled distance over all columns together.

It says only that near configurations have like times; `SpaceKernel` says in addition how knobs act together. Models of
both are asked, since neither is right for every kernel.

Source: Rasmussen, Williams 2006, equation 4.17 with one length scale a column.
"""

from __future__ import annotations

import numpy as np

from autosched.tuner.cost_model.kernel import ROOT5, FitForm, Gradient, Pairs, Parameters, Points, SpaceKernel


class JointKernel(SpaceKernel):
    """Covariances that fall with the distance; the columns are those of `SpaceKernel`."""

    parts, expected_variance = 1, 1.0

    def fitted_to(self, points: Points) -> FitForm:
        """The covariances between a few trials, for finding parameters."""
        return JointFit(self, points)

    def cross(self, parameters: Parameters, a: Points, hot: np.ndarray, b: Points) -> np.ndarray:
        """Covariances [len(a), len(b)]; `hot` is `one_hot(a)`, and its dtype that of the answer."""
        kind, lengths = hot.dtype.type, parameters.lengths
        tables = [self._apart2(i, lengths, b).astype(kind) for i in range(len(self.tables))]
        if self.is_one_hot and tables:
            apart2 = hot @ np.concatenate(tables)
        else:
            apart2 = np.zeros((len(a), len(b)), dtype=kind)
            for i, table in enumerate(tables):
                apart2 += table[a.codes[:, i]]
        for i, length in enumerate(lengths[len(lengths) - self.extras :]):
            apart2 += (((a.extras[:, i, None] - b.extras[None, :, i]) / length) ** 2).astype(kind)
        r = np.sqrt(apart2, out=apart2)
        r *= kind(ROOT5)
        polynomial = 1 + r + r * r / kind(3)
        polynomial *= np.exp(-r)
        covariance: np.ndarray = polynomial * kind(parameters.amplitudes[0])
        return covariance

    def _apart2(self, knob: int, lengths: np.ndarray, b: Points) -> np.ndarray:
        """Squared distances of a knob's candidates from those of `b` [candidates, len(b)]."""
        table, columns = self.tables[knob], slice(self._ends[knob], self._ends[knob + 1])
        apart = (table[:, None, :] - table[b.codes[:, knob]][None, :, :]) / lengths[columns]
        return np.asarray((apart * apart).sum(axis=-1))


class JointFit:
    """The same covariances between a few trials, with their derivatives; everything float64."""

    def __init__(self, kernel: SpaceKernel, points: Points):
        numbers, self.pairs = kernel.numbers(points).T, Pairs(len(points))
        self._apart2 = (numbers[:, self.pairs.first] - numbers[:, self.pairs.second]) ** 2  # [columns, pairs]

    def covariance(self, parameters: Parameters) -> tuple[np.ndarray, Gradient]:
        """As `FitForm` has it."""
        closeness, amplitude = parameters.lengths**-2.0, parameters.amplitudes[0]
        r = ROOT5 * np.sqrt(closeness @ self._apart2)
        decay = amplitude * np.exp(-r)
        covariance = (1 + r + r * r / 3) * decay

        def gradient(outer: np.ndarray) -> np.ndarray:
            weights = self.pairs.weights(outer)
            by_lengths = self._apart2 @ (weights * (1 + r) * decay) * (5 / 3) * closeness
            return np.append(by_lengths, weights @ covariance + np.trace(outer) * amplitude)

        return self.pairs.matrix(covariance, amplitude), gradient
