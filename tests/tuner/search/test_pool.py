import numpy as np
import pytest

from autosched.testing.tasks import bowl_space
from autosched.tuner.search.pool import Pool, spread


@pytest.mark.parametrize("listed", [0, 10_000])
def test_what_is_taken_does_not_come_again(listed: int) -> None:
    space = bowl_space((4, 4), "")
    pool = Pool(space, np.random.default_rng(0), listed)
    assert pool.is_listed == bool(listed) and pool.left == 16
    seen: set[bytes] = set()
    while len(rows := pool.random(5)):
        pool.take(rows)
        assert not seen & {row.tobytes() for row in rows}
        seen |= {row.tobytes() for row in rows}
    assert len(seen) == 16 and pool.left == 0
    one = np.frombuffer(next(iter(seen)), dtype=np.int32)
    pool.give_back(one)
    assert pool.left == 1 and np.array_equal(pool.random(3), one[None, :])


def test_candidates_of_a_large_space_are_valid_and_near_the_best() -> None:
    space = bowl_space((16,) * 6, "a * b <= 64")
    pool = Pool(space, np.random.default_rng(0))
    best = space.sample_rows(np.random.default_rng(1), 4)
    pool.take(best)
    rows, numbers = pool.candidates(best, 900)
    assert not pool.is_listed and 300 <= len(rows) <= 900 and numbers.shape == (len(rows), len(space.columns))
    assert space.valid_rows(rows).all()
    assert not {r.tobytes() for r in rows} & {r.tobytes() for r in best}
    assert ((rows != best[0]).sum(axis=1) == 1).any()


def test_spread_is_far_apart() -> None:
    line = np.linspace(0, 1, 101)[:, None]
    picked = spread(line, 3, np.array([[0.0]]), np.random.default_rng(0))
    assert picked[:2] == [100, 50]
    assert spread(line[:2], 5, np.zeros((0, 1)), np.random.default_rng(0)) != []
