import numpy as np
import pytest

from autosched.tuner.cost_model.extra_trees import ExtraTrees
from autosched.tuner.cost_model.minimise import minimise
from autosched.tuner.cost_model.target import expected_improvement


def _data(n, seed=0, columns=8):
    random = np.random.default_rng(seed)
    numbers = random.normal(size=(n, columns)).astype(np.float32)
    return numbers, numbers[:, 0] * numbers[:, 1] + np.abs(numbers[:, 2]) + 0.1 * random.normal(size=n)


def _explained(predicted, target):
    return 1 - np.mean((predicted - target) ** 2) / target.var()


def test_trees_predict_as_those_of_scikit_learn():
    from sklearn.ensemble import ExtraTreesRegressor

    numbers, target = _data(300)
    tested, expected = _data(500, seed=1)
    ours = ExtraTrees(60, 0.5, bootstrap=True).fit(numbers, target)
    theirs = ExtraTreesRegressor(60, max_features=0.5, bootstrap=True, oob_score=True, random_state=0)
    theirs.fit(numbers, target)
    assert _explained(ours.predict(tested), expected) == pytest.approx(
        _explained(theirs.predict(tested), expected), abs=0.05
    )
    unseen = _explained(ours.predict_unseen(numbers), target)
    assert unseen == pytest.approx(_explained(theirs.oob_prediction_, target), abs=0.05)


def test_leaves_hold_what_was_seen():
    numbers, target = _data(100)
    model = ExtraTrees(5, 0.5).fit(numbers, target)
    assert np.allclose(model.predict_each(numbers), target)
    assert np.array_equal(model.predict(numbers), ExtraTrees(5, 0.5).fit(numbers, target).predict(numbers))
    assert not np.array_equal(model._limits, ExtraTrees(5, 0.5, seed=1).fit(numbers, target)._limits)


@pytest.mark.parametrize("numbers", [np.zeros((4, 3)), np.zeros((1, 1)), np.full((3, 2), np.float32(1e38))])
def test_equal_rows_are_one_leaf(numbers):
    target = np.arange(len(numbers), dtype=float)
    model = ExtraTrees(3, 0.5, bootstrap=False).fit(numbers, target)
    assert np.allclose(model.predict(numbers), target.mean())


def test_rows_that_every_tree_saw_have_no_prediction():
    numbers, target = _data(20)
    assert np.isnan(ExtraTrees(3, 0.5).fit(numbers, target).predict_unseen(numbers)).all()


def _rosenbrock(point):
    x, y = point
    return (1 - x) ** 2 + 100 * (y - x * x) ** 2, np.array([-2 * (1 - x) - 400 * x * (y - x * x), 200 * (y - x * x)])


@pytest.mark.parametrize("high", [(2.0, 2.0), (0.5, 2.0), (2.0, 0.3)])
def test_the_least_value_within_bounds(high):
    from scipy.optimize import minimize

    bounds = np.array([-1.5, -1.0]), np.array(high)
    point, value = minimise(_rosenbrock, np.array([-1.2, 0.2]), *bounds, 200)
    there = minimize(_rosenbrock, [-1.2, 0.2], jac=True, method="L-BFGS-B", bounds=list(zip(*bounds)))
    assert value == pytest.approx(there.fun, abs=1e-5)
    assert point == pytest.approx(there.x, abs=1e-2)
    assert (point >= bounds[0]).all() and (point <= bounds[1]).all()


def test_no_iteration_leaves_the_start():
    point, value = minimise(_rosenbrock, np.array([5.0, 5.0]), np.zeros(2), np.full(2, 2.0), 0)
    assert point.tolist() == [2, 2] and value == _rosenbrock(point)[0]


def test_expected_improvement_is_exact_far_below_and_above():
    from scipy.special import ndtr

    z = np.concatenate([np.linspace(-30, 20, 1001), [-50, 100]])
    density = np.exp(-0.5 * z * z) / np.sqrt(2 * np.pi)
    found = expected_improvement(-z, np.ones_like(z), 0.0)
    assert found == pytest.approx(np.maximum(z * ndtr(z) + density, 0), rel=1e-6)
