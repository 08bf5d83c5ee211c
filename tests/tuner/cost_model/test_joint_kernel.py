import numpy as np
import pytest

from autosched.tuner.cost_model import kernel as kernel_module
from autosched.tuner.cost_model.gaussian import GaussianProcess
from autosched.tuner.cost_model.joint_kernel import JointKernel
from autosched.tuner.cost_model.kernel import Parameters, Points


def made(rng: np.random.Generator, n: int) -> tuple[JointKernel, Points]:
    tables = [np.arange(4.0)[:, None], rng.normal(size=(3, 2)), np.arange(2.0)[:, None]]
    codes = np.stack([rng.integers(0, len(table), n) for table in tables], axis=1)
    return JointKernel(tables, extras=1), Points(codes, rng.normal(size=(n, 1)))


def parameters(rng: np.random.Generator) -> Parameters:
    return Parameters(rng.normal(0.3, 0.5, 5 + 1 + 1), 1)


def test_covariance_falls_with_the_distance_over_all_columns(rng: np.random.Generator) -> None:
    kernel, points = made(rng, 2)
    chosen = parameters(rng)
    a, b = kernel.numbers(points)
    r = np.sqrt(5 * np.sum(((a - b) / chosen.lengths) ** 2))
    found = kernel.cross(chosen, points, kernel.one_hot(points), points)
    assert found[0, 1] == pytest.approx(chosen.amplitudes[0] * (1 + r + r * r / 3) * np.exp(-r), rel=1e-4)
    assert found[0, 0] == pytest.approx(chosen.amplitudes[0], rel=1e-5)


def test_many_candidates_are_looked_up_instead(rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch) -> None:
    kernel, points = made(rng, 30)
    chosen = parameters(rng)
    expected = kernel.cross(chosen, points, kernel.one_hot(points), points[:7])
    monkeypatch.setattr(kernel_module, "ONE_HOT", 3)
    other = JointKernel(kernel.tables, 1)
    assert not other.is_one_hot
    assert np.allclose(other.cross(chosen, points, other.one_hot(points), points[:7]), expected, rtol=1e-4)


def test_the_form_for_fitting_agrees(rng: np.random.Generator) -> None:
    kernel, points = made(rng, 12)
    chosen = parameters(rng)
    found, _ = kernel.fitted_to(points).covariance(chosen)
    assert np.allclose(found, kernel.cross(chosen, points, kernel.one_hot(points), points), rtol=1e-4)


def test_gradient_of_the_loss(rng: np.random.Generator) -> None:
    from scipy.optimize import approx_fprime

    kernel, points = made(rng, 12)
    model, form, target = GaussianProcess(kernel), kernel.fitted_to(points), rng.normal(size=12)
    at = parameters(rng).vector
    _, gradient = model._loss(at, form, target)
    assert gradient == pytest.approx(approx_fprime(at, lambda p: model._loss(p, form, target)[0], 1e-6), abs=1e-3)
