"""What calls are filed under."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from autosched.errors import UsageError
from autosched.own.workload import bucket_of, describe

X = np.zeros((3, 5), np.float32)


def test_without_a_key_shapes_and_types_count() -> None:
    found = describe("own/m:f", {"x": X, "n": 7, "a": 2.0, "p": (np.zeros(2), True)}, None)
    assert found.dtypes == ("float32", "int64", "float64", "float64", "bool")
    assert found.shapes == ((3, 5), (), (), (2,), ())
    assert str(found) == "own/m:f 3x5 scalar scalar 2 scalar"
    assert found == describe("own/m:f", {"x": X, "n": 8, "a": 3.0, "p": (np.zeros(2), False)}, None)


def test_with_a_key_the_named_values_count() -> None:
    one, other, third = (describe("own/m:f", {"x": X, "n": n, "mode": "a"}, ["n", "mode"]) for n in (5, 8, 9))
    assert one == other != third and one.shapes == ((8,),) and one.attrs["mode"] == "a"
    assert describe("own/m:f", {"x": X}, ["x"]).shapes == ((4, 8),)


@pytest.mark.parametrize(
    ("value", "bucket"),
    [(0, (0,)), (1, (1,)), (3, (4,)), (4, (4,)), (-3, -4), (np.int64(9), (16,)), (True, True), ("a", "a"), (None, None),
     (0.75, 1.0), (-3.0, -4.0), (0.0, 0.0)],
)  # fmt: skip
def test_buckets(value: Any, bucket: Any) -> None:
    found = bucket_of(value)
    assert found == bucket and type(found) is type(bucket)


def test_what_has_no_bucket() -> None:
    with pytest.raises(UsageError):
        bucket_of((1, 2))
