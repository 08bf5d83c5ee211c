import pytest

from autosched.errors import SpaceError
from autosched.space import Knob, boolean, choice, int_range, split


def test_split_by_factors_keeps_the_product() -> None:
    knob = split("tile", 12, 3)
    assert all(a * b * c == 12 for a, b, c in knob.values)  # type: ignore[misc]
    assert len(knob.values) == 18  # ordered factorisations of 12 into three


def test_split_by_powers_of_two_covers_the_extent() -> None:
    knob = split("tile", 12, 2, policy="power2", max_inner=4)
    assert knob.values == ((12, 1), (6, 2), (3, 4))


def test_range_and_bool() -> None:
    assert int_range("n", 2, 9, 3).values == (2, 5, 8)
    assert boolean("on").values == (False, True) and boolean("on", True).default is True


def test_position_does_not_mix_bools_and_ints() -> None:
    assert choice("x", [0, 1]).position(True) == -1
    assert boolean("x").position(1) == -1
    assert choice("x", [0, 1]).position([1]) == -1


def test_including_keeps_ints_sorted() -> None:
    assert choice("x", [1, 4, 8]).including(6).values == (1, 4, 6, 8)


@pytest.mark.parametrize("values", [(), (1, 1), (1, "a"), (True, 0), ((1, 2), (1, 2, 3)), (1.5,)])
def test_refuses_candidates(values: tuple[object, ...]) -> None:
    with pytest.raises(SpaceError):
        Knob("x", values)  # type: ignore[arg-type]


def test_refuses_default_and_name() -> None:
    with pytest.raises(SpaceError, match="default"):
        choice("x", [1, 2], default=3)
    with pytest.raises(SpaceError, match="identifier"):
        choice("x y", [1])
