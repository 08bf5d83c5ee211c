import numpy as np
import pytest
from scipy.optimize import approx_fprime

from autosched.tuner.cost_model import gaussian
from autosched.tuner.cost_model.gaussian import GaussianProcess


def made(rng: np.random.Generator, n: int = 60) -> tuple[np.ndarray, np.ndarray]:
    numbers = rng.uniform(0, 4, (n, 4))
    numbers[:, 3] = 1.0  # a column without spread
    return numbers, np.sin(numbers[:, 0]) + 0.3 * numbers[:, 1]


def test_predicts_smooth_functions_and_finds_the_column_that_does_not_matter(rng: np.random.Generator) -> None:
    numbers, target = made(rng)
    model = GaussianProcess(numbers.std(axis=0))
    model.fit(numbers, target)
    unseen, truth = made(np.random.default_rng(5))
    mean, variance, _ = model.predict(unseen)
    assert np.abs(mean - truth).max() < 0.1 and (variance < 0.2).all()
    assert model.parameters[2] > model.parameters[0] + 1 and len(model.used) == 3
    assert model.predict(numbers)[1].max() < 0.01  # certain where it was told


def test_gradient_of_the_loss(rng: np.random.Generator) -> None:
    numbers, target = made(rng, 12)
    model = GaussianProcess(numbers.std(axis=0))
    model.fit(numbers, target, iterations=0)
    differences = (model._points[:, None, :] - model._points[None, :, :]) ** 2
    at = np.array([0.3, 0.8, 1.2, 0.2, -3.0])
    _, gradient = model._loss(at, differences)
    assert gradient == pytest.approx(approx_fprime(at, lambda p: model._loss(p, differences)[0], 1e-6), abs=1e-3)


def test_covariance_is_what_conditioning_needs(rng: np.random.Generator) -> None:
    numbers, target = made(rng, 20)
    model = GaussianProcess(numbers.std(axis=0))
    model.fit(numbers, target)
    unseen, _ = made(np.random.default_rng(5), 10)
    mean, variance, white = model.predict(unseen)
    covariance = model.covariance(unseen, white, 3)
    assert covariance[3] == pytest.approx(variance[3], abs=1e-9)
    lowered = variance - covariance**2 / (variance[3] + model.noise)
    model.fit(np.vstack([numbers, unseen[3]]), np.append(target, mean[3]), iterations=0)
    again, variance_again, _ = model.predict(unseen)
    assert np.allclose(variance_again, lowered, atol=1e-5) and np.allclose(again, mean, atol=1e-5)


def test_many_trials_are_cut_to_the_best_and_the_latest(
    rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gaussian, "MAX_TRIALS", 10)
    numbers, target = made(rng)
    model = GaussianProcess(numbers.std(axis=0))
    model.fit(numbers, target)
    assert len(model._target) == 10 and target.min() in model._target and target[-1] in model._target
