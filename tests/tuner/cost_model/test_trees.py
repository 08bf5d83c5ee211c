import numpy as np

from autosched.tuner.cost_model import BoostedTrees


def test_they_rank_and_repeat(rng: np.random.Generator) -> None:
    numbers = rng.uniform(0, 4, (120, 3))
    log_s = (numbers[:, 0] - 1) ** 2 + 0.3 * numbers[:, 1]
    model, again = BoostedTrees(seed=0), BoostedTrees(seed=0)
    model.fit(numbers[:80], log_s[:80])
    mean, deviation = model.predict(numbers[80:])
    target = np.minimum(log_s[80:], np.quantile(log_s[:80], 0.6))
    assert np.corrcoef(mean, target)[0, 1] > 0.8 and (deviation > 0).any()
    again.fit(numbers[:80], log_s[:80])
    assert np.array_equal(again.predict(numbers[80:])[0], mean)
