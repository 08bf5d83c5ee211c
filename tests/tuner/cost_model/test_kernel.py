import numpy as np
import pytest
from scipy.optimize import approx_fprime

from autosched.tuner.cost_model import kernel as kernel_module
from autosched.tuner.cost_model.kernel import FitKernel, Parameters, Points, SpaceKernel

ROOT5 = np.sqrt(5.0)


def matern(distance: float) -> float:
    r = ROOT5 * distance
    return float((1 + r + r * r / 3) * np.exp(-r))


def made(rng: np.random.Generator, n: int) -> tuple[SpaceKernel, Points]:
    tables = [np.arange(4.0)[:, None], rng.normal(size=(3, 2)), np.arange(2.0)[:, None]]
    codes = np.stack([rng.integers(0, len(table), n) for table in tables], axis=1)
    return SpaceKernel(tables, extras=1), Points(codes, rng.normal(size=(n, 1)))


def parameters(rng: np.random.Generator) -> Parameters:
    return Parameters(rng.normal(0.3, 0.5, 5 + 3 + 1))


def test_covariance_is_product_mean_and_mean_of_pairs(rng: np.random.Generator) -> None:
    kernel, points = made(rng, 2)
    chosen = parameters(rng)
    a, b = kernel.numbers(points)
    each = [matern(abs(x - y) / length) for x, y, length in zip(a, b, chosen.lengths, strict=True)]
    knobs = [each[0], each[1] * each[2], each[3], each[4]]
    pairs = [knobs[i] * knobs[j] for i in range(4) for j in range(4) if i != j]
    expected = chosen.amplitudes @ [np.prod(knobs), np.mean(knobs), np.mean(pairs)]
    found = kernel.cross(chosen, points, kernel.one_hot(points), points)
    assert found[0, 1] == pytest.approx(expected, rel=1e-4)
    assert found[0, 0] == pytest.approx(chosen.amplitudes.sum(), rel=1e-5)


def test_many_candidates_are_looked_up_instead(rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch) -> None:
    kernel, points = made(rng, 30)
    chosen = parameters(rng)
    expected = kernel.cross(chosen, points, kernel.one_hot(points), points[:7])
    monkeypatch.setattr(kernel_module, "ONE_HOT", 3)
    other = SpaceKernel(kernel.tables, 1)
    assert not other.is_one_hot and other.one_hot(points).shape == (30, 0)
    assert np.allclose(other.cross(chosen, points, other.one_hot(points), points[:7]), expected, rtol=1e-4)


def test_an_absent_knob_is_the_last_line_of_its_table() -> None:
    kernel = SpaceKernel([np.array([[0.0], [1.0], [0.5]])])
    absent, last = (Points(np.array([[code]]), np.zeros((1, 0))) for code in (-1, 2))
    assert np.array_equal(kernel.one_hot(absent), kernel.one_hot(last))
    assert np.array_equal(kernel.numbers(absent), kernel.numbers(last))


def test_the_form_for_fitting_agrees(rng: np.random.Generator) -> None:
    kernel, points = made(rng, 12)
    chosen = parameters(rng)
    found, _ = FitKernel(kernel, points).covariance(chosen)
    assert np.allclose(found, kernel.cross(chosen, points, kernel.one_hot(points), points), rtol=1e-4)


def test_gradient_with_groups_of_columns_and_hints(rng: np.random.Generator) -> None:
    kernel, points = made(rng, 12)
    form, at, outer = FitKernel(kernel, points), parameters(rng).vector, rng.normal(size=(12, 12))
    outer = outer + outer.T
    _, gradient = form.covariance(Parameters(at))
    expected = approx_fprime(at, lambda p: float(np.sum(outer * form.covariance(Parameters(p))[0])), 1e-6)
    assert gradient(outer) == pytest.approx(expected[:-1], abs=1e-3) and expected[-1] == 0
