"""What is known of a kernel once it is compiled and before it runs, and how long kernels take by that.

One model serves all shapes and operators: it sees what a loop nest and its machine code do for each operation, beside
what the task's default does, and predicts how many times as long as the default a kernel takes. It is an exact Gaussian
process on a few hundred kernels: far from all it has seen it says that it does not know.

Source: Rasmussen, Williams 2006, chapters 2 and 5.4.2 (leave-one-out predictions).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from autosched.codegen.cpu.instructions import COUNTS, KINDS
from autosched.codegen.cuda.compiled import KINDS as GPU_KINDS
from autosched.codegen.cuda.compiled import RESOURCES
from autosched.tuner.cost_model.loop_features import FEATURES, per_operation

LOOPS, INSTRUCTIONS = "loops", "instructions"  # where `Measurement.how` has the features of what was measured
N_RESOURCES = 4  # registers, shared memory, occupancy, threads: before a GPU's counts of instructions
_LENGTHS = (1.0, 2.0, 4.0)  # of the covariance, times the root of the number of columns
_NOISES = (0.003, 0.03, 0.3)  # of the targets' variance
_FMA_PER_CYCLE, _LOADS_PER_CYCLE, _STORES_PER_CYCLE, _INSTRUCTIONS_PER_CYCLE = 2, 2, 1, 4


def built_features(known: Mapping[str, object]) -> np.ndarray | None:
    """Columns for a model from what was noted of a compiled kernel [columns]; None where that is not all there."""
    loops, counts, resources = known.get(LOOPS), known.get(INSTRUCTIONS), known.get(RESOURCES)
    if _is_list(loops, len(FEATURES)) and _is_list(resources, N_RESOURCES + len(GPU_KINDS)):
        nest = per_operation(np.array([loops], dtype=np.float64))[0]
        return np.concatenate([nest, of_a_gpu(np.array(resources, dtype=np.float64))])
    if not _is_list(loops, len(FEATURES)) or not _is_list(counts, len(COUNTS)):
        return None
    nest = per_operation(np.array([loops], dtype=np.float64))[0]
    return np.concatenate([nest, per_step(np.array(counts, dtype=np.float64))])


def of_a_gpu(resources: np.ndarray) -> np.ndarray:
    """What a GPU's kernel takes of a multiprocessor, and its instructions by arithmetic one [columns].

    resources  registers, bytes of shared memory, occupancy, threads of a block, then counts in the order of `GPU_KINDS`
    """
    registers, shared, occupancy, threads = resources[:N_RESOURCES]
    counts = resources[N_RESOURCES:]
    work = max(float(counts[:3].sum()), 1.0)
    used = [registers / 32, np.log2(1 + shared), occupancy * 4, np.log2(1 + threads), np.log2(work)]
    return np.array([*used, *np.log2(1 + counts / work * 8)])


def per_step(counts: np.ndarray) -> np.ndarray:
    """What a kernel's hot loop does for each vector that it computes, by counts in the order of `COUNTS` [columns].

    Among them the cycles that a core of two multiply-adds, two loads, a store and four instructions a cycle needs.
    """
    fmas, arithmetic, loads, stores, shuffles, scalars, spills = counts[: len(KINDS)]
    work = max(fmas + arithmetic, 1.0)
    cycles = max(
        work / _FMA_PER_CYCLE,
        (loads + spills) / _LOADS_PER_CYCLE,
        stores / _STORES_PER_CYCLE,
        float(counts[: len(KINDS)].sum()) / _INSTRUCTIONS_PER_CYCLE,
    )
    shares = np.array([loads, stores, shuffles, scalars, spills, cycles]) / work
    return np.array([np.log2(work), *np.log2(1 + shares), np.log2(1 + counts[COUNTS.index("instructions")])])


def _is_list(values: object, n: int) -> bool:
    return isinstance(values, Sequence) and len(values) == n


class BuiltModel:
    """Predicts values from columns, with the deviation that its own leave-one-out errors justify."""

    def __init__(self) -> None:
        self._known: np.ndarray | None = None

    def fit(self, columns: np.ndarray, values: np.ndarray) -> None:
        """Train on at least two kernels: columns [n, columns], values [n]."""
        self._center, spread = columns.mean(axis=0), columns.std(axis=0)
        self._scale = np.where(spread > 1e-9, spread, np.inf)
        self._mean, self._variance = float(values.mean()), max(float(values.var()), 1e-12)
        points, target = self._points(columns), (values - self._mean) / np.sqrt(self._variance)
        fits = [_Fit.of(points, target, length, noise) for length in _LENGTHS for noise in _NOISES]
        self._known, self._fit = points, max(fits, key=lambda fit: fit.likelihood)

    def predict(self, columns: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Mean and deviation [n]."""
        assert self._known is not None, "called after `fit`"
        fit, across = self._fit, _covariance(self._points(columns), self._known, self._fit.length)
        variance = np.maximum(1 - ((across @ fit.inverse) * across).sum(axis=1), 0.0) + fit.noise
        deviation = np.sqrt(variance * self._variance) * fit.surprise
        return self._mean + np.sqrt(self._variance) * (across @ fit.weights), deviation

    def _points(self, columns: np.ndarray) -> np.ndarray:
        return np.asarray((columns - self._center) / self._scale)


class _Fit:
    """A Gaussian process for some length and noise, with what its leave-one-out predictions say of it."""

    def __init__(self, length: float, noise: float, inverse: np.ndarray, target: np.ndarray):
        self.length, self.noise, self.inverse, self.weights = length, noise, inverse, inverse @ target
        variance = 1 / np.diag(inverse)
        error = self.weights * variance
        self.surprise = max(1.0, float(np.sqrt(np.mean(error**2 / variance))))  # of errors, by the expected ones
        self.likelihood = float(-0.5 * np.sum(np.log(variance) + error**2 / variance))

    @staticmethod
    def of(points: np.ndarray, target: np.ndarray, length: float, noise: float) -> _Fit:
        own = _covariance(points, points, length) + noise * np.eye(len(points))
        return _Fit(length, noise, np.linalg.inv(own), target)


def _covariance(a: np.ndarray, b: np.ndarray, length: float) -> np.ndarray:
    """Matern 5/2 over all columns together [len(a), len(b)]."""
    apart2 = (a * a).sum(axis=1)[:, None] + (b * b).sum(axis=1)[None, :] - 2 * a @ b.T
    r = np.sqrt(5 * np.maximum(apart2, 0.0) / a.shape[1]) / length
    return np.asarray((1 + r + r * r / 3) * np.exp(-r))
