"""An exact Gaussian process over a search space, fitted by maximum a posteriori.

Source: Rasmussen, Williams 2006, chapters 2 and 5; the length scales' prior is that of Hvarfner et al. 2024, Vanilla
Bayesian optimization performs great in high dimensions.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass

import numpy as np

from autosched.tuner.cost_model.kernel import FitForm, Parameters, Points, SpaceKernel
from autosched.tuner.cost_model.minimise import minimise

FITTED = 120  # trials that length scales are fitted to: of more, the best half and the latest half
AMPLITUDE_SPREAD = 1.0  # deviation of the logarithm of each part's variance from the expected one
NOISE_PRIOR = (float(np.log(1e-3)), 2.0)
SIMILAR = 0.7  # deviation of a logarithmic length scale from that of similar times elsewhere
BLOCK = 64  # rows of a triangular system that are solved at once
JITTER = 1e-5  # variance that is added everywhere: predictions are float32
BOUNDS = ((-4.0, 6.0), (-6.0, 4.0), (float(np.log(1e-6)), 0.0))  # of lengths, amplitudes, noise


class GaussianProcess:
    """Fits the kernel's parameters; `condition` gives the predictions."""

    def __init__(self, kernel: SpaceKernel):
        self.kernel = kernel
        n, parts = kernel.n_columns, kernel.parts
        length = float(np.sqrt(2) + 0.5 * np.log(max(n, 1)))
        variance = float(np.log(kernel.expected_variance))
        self._prior_mean = np.array([*[length] * n, *[variance] * parts, NOISE_PRIOR[0]])
        self._prior_deviation = np.array([*[np.sqrt(3)] * n, *[AMPLITUDE_SPREAD] * parts, NOISE_PRIOR[1]])
        low, high = np.array([*[BOUNDS[0]] * n, *[BOUNDS[1]] * parts, BOUNDS[2]]).T
        self._bounds = low, high
        self.parameters = Parameters(np.clip(self._prior_mean, low, high), parts)

    def expect_lengths(self, lengths: np.ndarray) -> None:
        """Take the first columns' length scales, which similar times have elsewhere, as the prior's mean and start."""
        vector, n = self.parameters.vector.copy(), len(lengths)
        self._prior_mean[:n] = vector[:n] = np.log(lengths)
        self._prior_deviation[:n] = SIMILAR
        self.parameters = Parameters(vector, self.kernel.parts)

    def fit(self, points: Points, target: np.ndarray, iterations: int) -> None:
        """Find the parameters, starting from those of before, for trials with a standardised target [n]."""
        chosen = most_telling(target, FITTED)
        form, target = self.kernel.fitted_to(points[chosen]), target[chosen]
        vector, loss = minimise(
            lambda vector: self._loss(vector, form, target), self.parameters.vector, *self._bounds, iterations
        )
        if np.isfinite(loss):
            self.parameters = Parameters(vector, self.kernel.parts)

    def _loss(self, vector: np.ndarray, form: FitForm, target: np.ndarray) -> tuple[float, np.ndarray]:
        """Negative log posterior of the parameters, and its gradient."""
        parameters, n = Parameters(vector, self.kernel.parts), len(target)
        noisy, gradient_by = form.covariance(parameters)
        noisy = noisy + (parameters.noise + JITTER) * np.eye(n)
        try:
            factor = np.linalg.cholesky(noisy)
        except np.linalg.LinAlgError:
            return 1e10, np.zeros_like(vector)
        inverse_factor = _solve(factor, np.eye(n))
        inverse = inverse_factor.T @ inverse_factor
        weights = inverse @ target
        outer = 0.5 * (inverse - np.outer(weights, weights))
        gradient = np.append(gradient_by(outer), np.trace(outer) * parameters.noise)
        loss = 0.5 * target @ weights + np.log(np.diag(factor)).sum()
        z = (vector - self._prior_mean) / self._prior_deviation
        return float(loss + 0.5 * z @ z), gradient + z / self._prior_deviation

    def observed(self, points: Points) -> Observed:
        """The trials at `points`, for posteriors over different candidates."""
        own = self.kernel.cross(self.parameters, points, self.kernel.one_hot(points, np.float64), points)
        own[np.diag_indices(len(points))] += self.parameters.noise + JITTER
        return Observed(points, np.linalg.cholesky(own))

    def condition(
        self, points: Points | Observed, candidates: Points, hot: np.ndarray | None = None, capacity: int = 64
    ) -> Posterior:
        """What the trials at `points` say of `candidates`; `hot` is their one-hot matrix where it is known."""
        observed = self.observed(points) if isinstance(points, Points) else points
        return Posterior(self.kernel, self.parameters, observed, candidates, hot, capacity)


@dataclass(frozen=True, slots=True)
class Observed:
    """Trials and the lower triangular root of their covariances with noise [n, n]."""

    points: Points
    factor: np.ndarray


class Posterior:
    """Predictions for fixed candidates, to which trials can be added one by one.

    Trials are kept as whitened covariances: row t of `white` is what trial t says beyond those before it.
    """

    def __init__(
        self,
        kernel: SpaceKernel,
        parameters: Parameters,
        observed: Observed,
        candidates: Points,
        hot: np.ndarray | None,
        capacity: int,
    ):
        self.kernel, self.parameters, self.candidates = kernel, parameters, candidates
        self.hot = kernel.one_hot(candidates) if hot is None else hot
        self.n, self._noise = len(observed.points), parameters.noise + JITTER
        self._factor = np.zeros((self.n + capacity, self.n + capacity))
        self._factor[: self.n, : self.n] = observed.factor
        self._white = np.zeros((self.n + capacity, len(candidates)), dtype=np.float32)
        covariances = kernel.cross(parameters, candidates, self.hot, observed.points)
        self._white[: self.n] = _solve(observed.factor.astype(np.float32), covariances.T)
        used = self._white[: self.n]
        self.variance = np.maximum(parameters.amplitudes.sum() - np.einsum("ij,ij->j", used, used), 1e-9)

    @property
    def capacity(self) -> int:
        """How many trials fit in."""
        return len(self._white)

    @property
    def has_capacity(self) -> bool:
        """Whether another trial can be added."""
        return self.n < self.capacity

    def add(self, i: int) -> None:
        """Candidate `i` was measured: it becomes one more trial."""
        covariance = self.kernel.cross(self.parameters, self.candidates, self.hot, self.candidates[np.array([i])])[:, 0]
        known = self._white[: self.n, i].copy()
        deviation = float(np.sqrt(self.variance[i] + self._noise))
        share = (covariance - known @ self._white[: self.n]) / np.float32(deviation)
        self._factor[self.n, : self.n], self._factor[self.n, self.n] = known, deviation
        self._white[self.n] = share
        self.variance = np.maximum(self.variance - share * share, 1e-9)
        self.n += 1

    def among(self, positions: np.ndarray) -> Posterior:
        """The same for some of the candidates; what is added to it is not added here."""
        part = copy.copy(self)
        part.candidates, part.hot = self.candidates[positions], self.hot[positions]
        part._white, part.variance = self._white[:, positions], self.variance[positions]
        part._factor = self._factor.copy()
        return part

    def mean(self, target: np.ndarray) -> np.ndarray:
        """The expected target of each candidate, for the targets of all trials in their order."""
        weights = _solve(self._factor[: self.n, : self.n], target)
        return np.asarray(weights.astype(np.float32) @ self._white[: self.n])


def most_telling(target: np.ndarray, n: int) -> np.ndarray:
    """Positions of `n` trials: the best half and the latest half; all where there are no more."""
    if len(target) <= n:
        return np.arange(len(target))
    best = np.argsort(target, kind="stable")[: n // 2]
    latest = np.setdiff1d(np.arange(len(target)), best)[-(n - n // 2) :]
    return np.sort(np.concatenate([best, latest]))


def _solve(factor: np.ndarray, right: np.ndarray) -> np.ndarray:
    """Solve factor @ x = right for a lower triangular factor [n, n], by blocks; right is [n] or [n, columns].

    Blocks are inverted: products with many columns take a fraction of the time of solving for them.
    """
    result = np.empty(right.shape, np.result_type(factor, right))
    for start in range(0, len(factor), BLOCK):
        rows = slice(start, start + BLOCK)
        rest = right[rows] - factor[rows, :start] @ result[:start] if start else right[rows]
        inverse = np.linalg.inv(factor[rows, rows].astype(np.float64))
        result[rows] = inverse.astype(result.dtype) @ rest
    return result
