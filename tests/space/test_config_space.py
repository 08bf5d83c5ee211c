import itertools
from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autosched.errors import SpaceError
from autosched.space import Config, ConfigSpace, boolean, choice, split
from autosched.space.config_space import unique_rows


def small() -> ConfigSpace:
    knobs = [choice("a", [1, 2, 3]), choice("b", [1, 2, 4]), choice("o", ["mn", "nm"]), boolean("on")]
    return ConfigSpace("t", knobs, ["a * b <= limit", "o == 'mn' or not on"], values={"limit": 4})


def brute_force(space: ConfigSpace) -> set[Config]:
    names = [k.name for k in space.knobs]
    every = (Config(space.name, dict(zip(names, v))) for v in itertools.product(*(k.values for k in space.knobs)))
    return {c for c in every if c["a"] * c["b"] <= 4 and (c["o"] == "mn" or not c["on"])}


def test_count_iteration_and_membership_agree_with_brute_force() -> None:
    space, expected = small(), brute_force(small())
    assert space.count() == len(expected) == 18 and space.count_is_exact and space.combinations == 36
    assert set(space) == expected and len(list(space)) == 18
    assert next(iter(space)) == space.default
    assert all(c in space for c in expected)


@settings(max_examples=30, deadline=None)
@given(
    sizes=st.lists(st.integers(1, 5), min_size=1, max_size=5),
    limits=st.lists(st.tuples(st.integers(0, 4), st.integers(0, 4), st.integers(1, 12)), max_size=3),
    seed=st.integers(0, 9),
)
def test_random_spaces(sizes: list[int], limits: list[tuple[int, int, int]], seed: int) -> None:
    knobs = [choice(f"k{i}", range(1, size + 1)) for i, size in enumerate(sizes)]
    n = len(sizes)
    space = ConfigSpace("t", knobs, [f"k{i % n} * k{j % n} <= {limit}" for i, j, limit in limits])
    every = list(itertools.product(*(range(1, size + 1) for size in sizes)))
    expected = [v for v in every if all(v[i % n] * v[j % n] <= limit for i, j, limit in limits)]
    assert space.count() == len(expected)
    rows = {tuple(c.knobs.values()) for c in space}
    assert rows == set(expected)
    sample = space.sample(seed, 7)
    assert len(set(sample)) == len(sample) == min(7, len(expected)) and all(c in space for c in sample)


def test_sampling_is_uniform_over_valid_ones() -> None:
    space, rng = small(), np.random.default_rng(0)
    counts = Counter(config for _ in range(3000) for config in space.sample(rng, 2))
    assert len(counts) == 18
    assert sum((n - 1000 / 3) ** 2 / (1000 / 3) for n in counts.values()) < 41  # chi square, 17 degrees, 0.1 %


def test_seed_decides_the_sample() -> None:
    assert small().sample(3, 5) == small().sample(3, 5) != small().sample(4, 5)


def test_a_large_space_is_counted_by_groups_without_listing_it() -> None:
    knobs = [choice(f"k{i}", range(1, 33)) for i in range(8)]
    space = ConfigSpace("big", knobs, ["k0 * k1 <= 64", "k2 + k3 == 33"])
    pairs = sum(a * b <= 64 for a in range(1, 33) for b in range(1, 33))
    assert space.count() == pairs * 32 * 32**4 and space.count_is_exact
    assert len(set(space.sample(0, 100))) == 100


def test_a_group_that_is_too_large_is_sampled_by_rejection_and_estimated() -> None:
    knobs = [choice(f"k{i}", range(1, 17)) for i in range(4)]
    exact = ConfigSpace("t", knobs, ["k0 + k1 + k2 + k3 <= 30"])
    rough = ConfigSpace("t", knobs, ["k0 + k1 + k2 + k3 <= 30"], group_limit=100)
    assert exact.count_is_exact and not rough.count_is_exact
    assert rough.count() == pytest.approx(exact.count(), rel=0.05)
    assert all(c in exact for c in rough.sample(0, 50))
    assert set(itertools.islice(rough, 1000)) <= set(exact)


def test_neighbours_differ_in_one_knob() -> None:
    space = small()
    near = space.neighbours(space.default)
    assert near and all(c in space for c in near) and space.default not in near
    for config in near:
        assert sum(config[k.name] != space.default[k.name] for k in space.knobs) == 1
    assert len(near) == 2 + 2 + 1 + 1


def test_why_not_gives_the_reason() -> None:
    space = small()
    good = space.default
    assert space.why_not(good) == ""
    assert "a * b <= limit" in space.why_not(good.with_knobs(a=3, b=4))
    assert "no candidate" in space.why_not(good.with_knobs(a=7))
    assert "no knob c" in space.why_not(good.with_knobs(c=7))
    assert "no knob 'b'" in space.why_not(Config("t", {"a": 1}))
    assert "template 'u'" in space.why_not(Config("u", dict(good.knobs)))
    assert 3 not in space


def test_default_that_breaks_a_constraint_gives_way_to_a_valid_one() -> None:
    space = ConfigSpace("t", [choice("a", [4, 1]), choice("b", [4, 1])], ["a * b < 8"])
    assert space.default in space
    with pytest.raises(SpaceError, match="no valid"):
        _ = ConfigSpace("t", [choice("a", [1])], ["a > 1"]).default


def test_with_default_makes_its_values_candidates() -> None:
    space = small().with_default(Config("t", {"a": 1, "b": 3, "o": "mn", "on": False}))
    assert space.default["b"] == 3 and space.default in space
    with pytest.raises(SpaceError, match="breaks"):
        small().with_default(Config("t", {"a": 2, "b": 3, "o": "mn", "on": False}))
    with pytest.raises(SpaceError, match="differs"):
        small().with_default(Config("t", {"a": 1}))


def test_splits_can_be_constrained_by_their_parts() -> None:
    space = ConfigSpace("t", [split("tile", 16, 2), choice("v", [1, 2])], ["tile[1] * v <= 4"])
    assert space.count() == 3 + 2
    assert space.encode(list(space)).shape == (5, 3)


def test_encode_gives_different_rows_for_different_configurations() -> None:
    space = small()
    numbers = space.encode(list(space))
    assert numbers.shape == (18, len(space.columns)) and len(np.unique(numbers, axis=0)) == 18


@pytest.mark.parametrize(
    ("knobs", "constraints", "values"),
    [
        ([choice("a", [1]), choice("a", [2])], [], {}),
        ([choice("template", [1])], [], {}),
        ([choice("a", [1])], ["a < b"], {}),
        ([choice("a", [1])], [], {"a": 3}),
    ],
)
def test_refuses_names(knobs: list[object], constraints: list[str], values: dict[str, int]) -> None:
    with pytest.raises(SpaceError):
        ConfigSpace("t", knobs, constraints, values=values)  # type: ignore[arg-type]


def test_a_constraint_without_knobs_empties_the_space() -> None:
    space = ConfigSpace("t", [choice("a", [1, 2])], ["lanes > 4"], values={"lanes": 4})
    assert space.count() == 0 and list(space) == [] and space.sample(0, 3) == []


def test_table() -> None:
    listed = [{"a": 1, "b": 2}, {"a": 2, "b": 1}]
    space = ConfigSpace.from_table("t", [choice("a", [1, 2]), choice("b", [1, 2])], listed)
    assert space.count() == 2 and {tuple(c.knobs.values()) for c in space} == {(1, 2), (2, 1)}
    assert Config("t", {"a": 1, "b": 1}) not in space and Config("t", {"a": 1, "b": 2}) in space
    assert space.neighbours(Config("t", {"a": 1, "b": 2})) == []


def test_a_tied_space_of_a_billion_is_not_listed() -> None:
    """Listing it takes longer than anybody waits."""
    knobs = [choice(f"k{i}", [1, 2, 3, 4, 6, 8, 12, 16]) for i in range(10)]
    space = ConfigSpace("t", knobs, [f"k{i} * k{i + 1} <= 48" for i in range(9)])
    assert space.count() > 10**8 and not space.count_is_exact and space.combinations == 8**10
    assert len(set(space.sample(0, 100))) == 100


@pytest.mark.parametrize("sizes", [(3, 2, 4), (2,), (2**40, 3, 2**40)])  # the last do not fit one number
def test_rows_come_once_in_the_order_of_their_first(sizes: tuple[int, ...]) -> None:
    rng = np.random.default_rng(0)
    few = np.stack([rng.integers(0, size, 9) for size in sizes], axis=1)
    rows = few[rng.integers(0, len(few), 200)]
    wanted = np.array(list(dict.fromkeys(map(tuple, rows.tolist()))))
    assert (unique_rows(rows) == wanted).all()
    assert unique_rows(rows[:0]).shape == (0, len(sizes))
