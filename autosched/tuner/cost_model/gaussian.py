"""An exact Gaussian process: Matern 5/2 with one length scale per column, fitted by maximum a posteriori.

Source: Rasmussen, Williams 2006, chapters 2 and 5; the length scales' prior is that of Hvarfner et al. 2024, Vanilla
Bayesian optimization performs great in high dimensions.
"""

from __future__ import annotations

import numpy as np

MAX_TRIALS = 400  # of more, the best half and the latest half are used: the cost grows with the cube
ROOT5 = float(np.sqrt(5.0))
NOISE_PRIOR = (np.log(1e-3), 2.0)  # mean and deviation of the logarithm of the noise's variance
SIGNAL_PRIOR = (0.0, 1.0)


class GaussianProcess:
    """Predicts a mean and a deviation from numbers [n, columns]; `scale` [columns] is the spread of each column."""

    def __init__(self, scale: np.ndarray):
        self.used = np.flatnonzero(scale > 0)
        self.scale = scale[self.used]
        n = len(self.used)
        self._length_prior = (np.sqrt(2) + 0.5 * np.log(max(n, 1)) - np.log(ROOT5), np.sqrt(3))
        self.parameters = np.array([*np.full(n, self._length_prior[0]), SIGNAL_PRIOR[0], NOISE_PRIOR[0]])
        self._points = np.zeros((0, n))
        self._factor = np.zeros((0, 0))
        self._weights = np.zeros(0)

    def fit(self, numbers: np.ndarray, target: np.ndarray, iterations: int = 40) -> None:
        """Find length scales, signal and noise, starting from those of before, then condition on the data.

        iterations  0 keeps the parameters and only takes the data
        """
        self._points, self._target = self._select(numbers, target)
        if iterations and len(self._target) >= 4:
            self._optimise(iterations)
        kernel = self._kernel(self._points, self._points)
        kernel[np.diag_indices_from(kernel)] += np.exp(self.parameters[-1]) + 1e-8
        self._factor = np.linalg.cholesky(kernel)
        self._weights = _solve(self._factor, _solve(self._factor, self._target), transposed=True)

    def predict(self, numbers: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Mean [n], variance [n] and whitened cross-covariances [trials, n], from which joint ones follow."""
        cross = self._kernel(self._points, self._scaled(numbers))
        white = _solve(self._factor, cross)
        variance = np.exp(self.parameters[-2]) - np.einsum("ij,ij->j", white, white)
        return cross.T @ self._weights, np.maximum(variance, 1e-12), white

    def covariance(self, numbers: np.ndarray, white: np.ndarray, i: int) -> np.ndarray:
        """Posterior covariance [n] of all rows of `numbers` with row `i`; `white` as `predict` gave it."""
        points = self._scaled(numbers)
        return np.asarray(self._kernel(points, points[i : i + 1])[:, 0] - white.T @ white[:, i])

    @property
    def noise(self) -> float:
        """The variance of the noise."""
        return float(np.exp(self.parameters[-1]))

    def _scaled(self, numbers: np.ndarray) -> np.ndarray:
        return np.asarray(numbers[:, self.used] / self.scale)

    def _select(self, numbers: np.ndarray, target: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        if len(target) > MAX_TRIALS:
            best = np.argsort(target, kind="stable")[: MAX_TRIALS // 2]
            latest = np.setdiff1d(np.arange(len(target)), best)[-MAX_TRIALS // 2 :]
            keep = np.concatenate([best, latest])
            numbers, target = numbers[keep], target[keep]
        return self._scaled(numbers), target

    def _kernel(self, a: np.ndarray, b: np.ndarray) -> np.ndarray:
        lengths = np.exp(self.parameters[:-2])
        a, b = a / lengths, b / lengths
        square = (a * a).sum(axis=1)[:, None] + (b * b).sum(axis=1)[None, :] - 2 * a @ b.T
        r = ROOT5 * np.sqrt(np.maximum(square, 0.0))
        return np.asarray(np.exp(self.parameters[-2]) * (1 + r + r * r / 3) * np.exp(-r))

    def _optimise(self, iterations: int) -> None:
        from scipy.optimize import minimize

        differences = (self._points[:, None, :] - self._points[None, :, :]) ** 2
        bounds = [(-4.0, 6.0)] * len(self.used) + [(-4.0, 4.0), (np.log(1e-6), 0.0)]
        found = minimize(
            self._loss,
            self.parameters,
            args=(differences,),
            jac=True,
            method="L-BFGS-B",
            bounds=bounds,
            options={"maxiter": iterations},
        )
        if np.isfinite(found.fun):
            self.parameters = found.x

    def _loss(self, parameters: np.ndarray, differences: np.ndarray) -> tuple[float, np.ndarray]:
        """Negative log posterior of the parameters, and its gradient."""
        n = len(self._target)
        inverse_square = np.exp(-2 * parameters[:-2])
        r = ROOT5 * np.sqrt(differences @ inverse_square)
        decay = np.exp(parameters[-2] - r)
        kernel = decay * (1 + r + r * r / 3)
        noisy = kernel + (np.exp(parameters[-1]) + 1e-8) * np.eye(n)
        try:
            factor = np.linalg.cholesky(noisy)
        except np.linalg.LinAlgError:
            return 1e10, np.zeros_like(parameters)
        inverse_factor = _solve(factor, np.eye(n))
        inverse = inverse_factor.T @ inverse_factor
        weights = inverse @ self._target
        slope = inverse - np.outer(weights, weights)  # twice the loss's derivative by the kernel
        shared = slope * decay * (5 / 3) * (1 + r)
        gradient = np.empty_like(parameters)
        gradient[:-2] = 0.5 * np.einsum("ij,ijk->k", shared, differences) * inverse_square
        gradient[-2] = 0.5 * np.sum(slope * kernel)
        gradient[-1] = 0.5 * np.trace(slope) * np.exp(parameters[-1])
        loss = 0.5 * self._target @ weights + np.log(np.diag(factor)).sum()
        means = np.array([*np.full(len(self.used), self._length_prior[0]), SIGNAL_PRIOR[0], NOISE_PRIOR[0]])
        deviations = np.array([*np.full(len(self.used), self._length_prior[1]), SIGNAL_PRIOR[1], NOISE_PRIOR[1]])
        z = (parameters - means) / deviations
        return float(loss + 0.5 * z @ z), gradient + z / deviations


def _solve(factor: np.ndarray, right: np.ndarray, transposed: bool = False) -> np.ndarray:
    from scipy.linalg import solve_triangular

    return np.asarray(solve_triangular(factor, right, lower=True, trans=1 if transposed else 0, check_finite=False))
