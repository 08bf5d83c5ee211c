import numpy as np

from autosched.tuner.cost_model import Feasibility, likely


def test_learns_what_fails(rng: np.random.Generator) -> None:
    numbers = rng.uniform(0, 1, (100, 2))
    ok = numbers[:, 0] < 0.5
    model = Feasibility()
    assert (model.predict(numbers) == 1).all()
    model.fit(numbers, ok)
    chance = model.predict(np.array([[0.1, 0.5], [0.9, 0.5]]))
    assert chance[0] > 0.9 and chance[1] < 0.1
    model.fit(numbers, np.ones(100, dtype=bool))
    assert (model.predict(numbers) == 1).all()


def test_likely_leaves_enough() -> None:
    success = np.array([0.9, 0.1, 0.6, 0.2])
    assert likely(success, 2).tolist() == [0, 2]
    assert likely(success, 3).tolist() == [0, 2, 3]
