import numpy as np
import pytest

from autosched.errors import SpaceError
from autosched.space import Config, ConfigSpace, choice, union


def two() -> ConfigSpace:
    first = ConfigSpace("direct", [choice("rows", [1, 2, 4]), choice("cols", [1, 2])], ["rows * cols <= 4"])
    second = ConfigSpace("winograd", [choice("tile", [2, 4])])
    return union([first, second])


def test_first_knob_is_the_template() -> None:
    space = two()
    assert space.knobs[0].name == "template" and space.knobs[0].values == ("direct", "winograd")
    assert {c.template for c in space} == {"direct", "winograd"}


def test_count_membership_and_defaults() -> None:
    space = two()
    assert space.count() == 5 + 2 == len(list(space)) == len(set(space))
    assert Config("winograd", {"tile": 4}) in space
    assert "template 'fft'" in space.why_not(Config("fft", {}))
    assert "no knob rows" in space.why_not(Config("winograd", {"tile": 2, "rows": 1}))
    assert [c.template for c in space.starting_points()] == ["direct", "winograd"]
    assert next(iter(space)) == space.default
    assert space.with_default(Config("winograd", {"tile": 4})).default == Config("winograd", {"tile": 4})


def test_rows_round_trip_and_neighbours_include_other_templates() -> None:
    space = two()
    configs = list(space)
    assert space.to_configs(space.to_rows(configs)) == configs
    near = space.neighbours(Config("winograd", {"tile": 2}))
    assert set(near) == {Config("winograd", {"tile": 4}), space.default}


def test_samples_come_from_all_members() -> None:
    sample = two().sample(0, 7)
    assert len(set(sample)) == 7
    assert len(set(two().sample(1, 6))) == 6


def test_encoding_tells_all_apart_and_fills_foreign_columns_with_one_value() -> None:
    space = two()
    numbers = space.encode(list(space))
    assert numbers.shape == (7, len(space.columns)) and len(np.unique(numbers, axis=0)) == 7
    winograd = numbers[:, 1] == 1
    direct_columns = [i for i, name in enumerate(space.columns) if name.startswith("direct:")]
    assert len(np.unique(numbers[winograd][:, direct_columns], axis=0)) == 1


def test_union_of_one_and_of_none() -> None:
    only = ConfigSpace("t", [choice("a", [1])])
    assert union([only]) is only
    with pytest.raises(SpaceError):
        union([])
    with pytest.raises(SpaceError):
        union([only, only])
