from __future__ import annotations

import pytest

from autosched.driver.tune.shapes import between, has_ranges, lies_in, representatives
from autosched.errors import UsageError


def test_no_size_is_more_than_twice_as_far() -> None:
    points = [point["x"][0] for point in representatives({"x": (range(1, 513), 784)})]
    assert points == [1, 4, 16, 64, 256, 512]
    for size in range(1, 513):
        assert any(max(size / p, p / size) <= 2 for p in points), size


def test_few_shapes_and_ranges_that_grow_together() -> None:
    points = representatives({"x": (range(1, 9), 3), "y": (range(2, 17),), "z": (5,)})
    assert points[0] == {"x": (1, 3), "y": (2,), "z": (5,)} and points[-1] == {"x": (8, 3), "y": (16,), "z": (5,)}
    assert len(points) == 3
    assert len(representatives({"x": (range(1, 1 << 30),)})) == 8
    assert representatives({"x": (4, 3)}) == ({"x": (4, 3)},)
    assert {"x": (7,)} in representatives({"x": (range(1, 9),)}, {"x": (7,)})


@pytest.mark.parametrize("dim", [range(3, 3), range(0, 4), range(1, 9, 2), range(9, 1, -1)])
def test_no_range_of_sizes(dim: range) -> None:
    with pytest.raises(UsageError, match="no range"):
        representatives({"x": (dim,)})


def test_from_the_least_to_the_largest() -> None:
    ranges = between({"x": (1, 784)}, {"x": (512, 784)})
    assert ranges == {"x": (range(1, 513), 784)} and has_ranges(ranges) and not has_ranges({"x": (1,)})
    assert lies_in({"x": (512, 784)}, ranges) and not lies_in({"x": (513, 784)}, ranges)
    assert not lies_in({"x": (5, 785)}, ranges) and not lies_in({"y": (5, 784)}, ranges)
    for least, most in (({"x": (2,)}, {"x": (1,)}), ({"x": (1,)}, {"y": (2,)}), ({"x": (1,)}, {"x": (1, 2)})):
        with pytest.raises(UsageError):
            between(least, most)
