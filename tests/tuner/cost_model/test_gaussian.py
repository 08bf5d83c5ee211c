import numpy as np
import pytest
from scipy.optimize import approx_fprime

from autosched.tuner.cost_model.gaussian import GaussianProcess, most_telling
from autosched.tuner.cost_model.kernel import FitKernel, Points, SpaceKernel


def made(rng: np.random.Generator, n: int = 60) -> tuple[SpaceKernel, Points, np.ndarray]:
    """Four knobs of eight candidates; the last one does not matter."""
    codes = rng.integers(0, 8, (n, 4))
    numbers = codes / 2.3
    target = np.sin(numbers[:, 0]) + 0.5 * numbers[:, 1] + 0.1 * numbers[:, 1] * numbers[:, 2]
    return SpaceKernel([np.arange(8.0)[:, None] / 2.3] * 4), Points(codes, np.zeros((n, 0))), target


def test_predicts_smooth_functions_and_finds_the_column_that_does_not_matter(rng: np.random.Generator) -> None:
    kernel, points, target = made(rng)
    model = GaussianProcess(kernel)
    model.fit(points, target, 60)
    _, unseen, truth = made(np.random.default_rng(5))
    posterior = model.condition(points, unseen)
    assert np.abs(posterior.mean(target) - truth).max() < 0.2 and (posterior.variance < 0.2).all()
    lengths = np.log(model.parameters.lengths)
    assert lengths[3] > lengths[0] + 1
    assert model.condition(points, points).variance.max() < 0.02  # certain where it was observed


def test_gradient_of_the_loss(rng: np.random.Generator) -> None:
    kernel, points, target = made(rng, 12)
    model, form = GaussianProcess(kernel), FitKernel(kernel, points)
    at = np.array([0.3, 0.8, 1.2, 0.1, -0.5, -1.0, -0.2, -3.0])
    _, gradient = model._loss(at, form, target)
    assert gradient == pytest.approx(approx_fprime(at, lambda p: model._loss(p, form, target)[0], 1e-6), abs=1e-3)


def test_adding_a_trial_is_conditioning_on_it(rng: np.random.Generator) -> None:
    kernel, points, target = made(rng, 20)
    model = GaussianProcess(kernel)
    model.fit(points, target, 20)
    _, unseen, truth = made(np.random.default_rng(5), 10)
    grown = model.condition(points, unseen)
    part = grown.among(np.array([3, 7]))
    grown.add(3)
    both = Points(np.vstack([points.codes, unseen.codes[3:4]]), np.zeros((21, 0)))
    whole = model.condition(both, unseen)
    assert np.allclose(grown.variance, whole.variance, atol=1e-4)
    places = np.append(target, truth[3])
    assert np.allclose(grown.mean(places), whole.mean(places), atol=1e-3)
    alone = model.condition(points, unseen)
    assert np.allclose(part.mean(target), alone.mean(target)[[3, 7]], atol=1e-5)
    assert np.allclose(part.variance, alone.variance[[3, 7]], atol=1e-5)
    part.add(0)
    assert np.allclose(part.variance, grown.variance[[3, 7]], atol=1e-5)


def test_a_posterior_has_bounded_room(rng: np.random.Generator) -> None:
    kernel, points, _ = made(rng, 5)
    posterior = GaussianProcess(kernel).condition(points, points, capacity=1)
    assert posterior.has_capacity
    posterior.add(0)
    assert not posterior.has_capacity and posterior.capacity == 6


def test_the_most_telling_trials_are_the_best_and_the_latest() -> None:
    target = np.array([5.0, 1.0, 4.0, 2.0, 9.0, 8.0])
    assert most_telling(target, 4).tolist() == [1, 3, 4, 5]
    assert most_telling(target, 6).tolist() == list(range(6))


def test_lengths_from_elsewhere_stay_where_the_trials_say_nothing(rng: np.random.Generator) -> None:
    kernel, points, target = made(rng, 6)
    model = GaussianProcess(kernel)
    model.expect_lengths(np.array([0.5, 2.0, 4.0, 8.0]))
    assert np.allclose(model.parameters.lengths, [0.5, 2.0, 4.0, 8.0])
    model.fit(points, target, 30)
    assert np.abs(np.log(model.parameters.lengths / [0.5, 2.0, 4.0, 8.0])).max() < 1.5
