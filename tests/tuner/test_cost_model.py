import numpy as np

from autosched.tuner.cost_model import BoostedTrees, Feasibility, clip_log_times, expected_improvement


def test_clipping_keeps_order_of_the_fast_ones() -> None:
    clipped = clip_log_times(np.log([1.0, 2.0, 3.0, 100.0, 1000.0]))
    assert clipped[0] < clipped[1] < clipped[2] <= clipped[3] == clipped[4]
    assert np.isfinite(clip_log_times(np.zeros(5))).all()


def test_trees_rank_and_know_where_they_are_unsure(rng: np.random.Generator) -> None:
    numbers = rng.uniform(0, 4, (120, 3))
    log_s = (numbers[:, 0] - 1) ** 2 + 0.3 * numbers[:, 1]
    model = BoostedTrees(seed=0)
    model.fit(numbers[:80], log_s[:80])
    mean, deviation = model.predict(numbers[80:])
    target = np.minimum(log_s[80:], np.quantile(log_s[:80], 0.6))
    assert np.corrcoef(mean, target)[0, 1] > 0.8 and (deviation > 0).any()
    again = BoostedTrees(seed=0)
    again.fit(numbers[:80], log_s[:80])
    assert np.array_equal(again.predict(numbers[80:])[0], mean)


def test_feasibility(rng: np.random.Generator) -> None:
    numbers = rng.uniform(0, 1, (100, 2))
    ok = numbers[:, 0] < 0.5
    model = Feasibility()
    assert (model.predict(numbers) == 1).all()
    model.fit(numbers, ok)
    chance = model.predict(np.array([[0.1, 0.5], [0.9, 0.5]]))
    assert chance[0] > 0.9 and chance[1] < 0.1
    model.fit(numbers, np.ones(100, dtype=bool))
    assert (model.predict(numbers) == 1).all()


def test_expected_improvement() -> None:
    gain = expected_improvement(np.array([0.0, 0.0, 2.0]), np.array([1.0, 0.0, 1.0]), 0.0)
    assert gain[0] == np.testing.assert_allclose(gain[0], 1 / np.sqrt(2 * np.pi)) or gain[0] > gain[2] > gain[1]
