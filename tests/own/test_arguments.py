"""Arguments keep their layout, overlap and write protection on the way to a worker."""

from __future__ import annotations

import datetime
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from autosched.errors import UsageError
from autosched.own.arguments import store_arguments
from autosched.own.memory import Memory


def through(tmp_path: Path, **named: Any) -> Memory:
    return Memory(store_arguments(named, tmp_path, "key"))


WHOLE = np.arange(60, dtype=np.float32).reshape(6, 10)


@pytest.mark.parametrize(
    "array",
    [WHOLE, np.asfortranarray(WHOLE), WHOLE[:, 3], WHOLE[::-1, ::2], WHOLE[1:3].T, WHOLE[0, 0], np.zeros((3, 0)),
     np.array([1, 2], ">i4"), np.array([(1, 2.0)], [("a", "i4"), ("b", "f8")]), np.array(5.0), np.array([True, False])],
)  # fmt: skip
def test_an_array_has_the_same_layout_and_values(tmp_path: Path, array: Any) -> None:
    (found,) = through(tmp_path, x=np.asarray(array)).first.values
    expected = np.asarray(array)
    assert found.dtype == expected.dtype and found.shape == expected.shape and found.strides == expected.strides
    assert np.array_equal(found, expected)
    assert found.ctypes.data % 64 == expected.ctypes.data % 64


def test_views_of_one_array_stay_views_of_one_block(tmp_path: Path) -> None:
    x = np.arange(100.0)
    memory = through(tmp_path, a=x[:-1], b=x[1:], c=x)
    a, b, c = memory.first.values
    b[0] = -1.0
    assert a[1] == -1.0 and c[1] == -1.0 and x[1] == 1.0
    assert len(memory.contents) == 1


def test_write_protection_numbers_and_tuples(tmp_path: Path) -> None:
    fixed = np.arange(4)
    fixed.flags.writeable = False
    memory = through(tmp_path, fixed=fixed, pair=(np.ones(2), 3), n=np.float32(2), text="a", nothing=None)
    found, pair, n, text, nothing = memory.first.values
    assert not found.flags.writeable and pair[1] == 3 and n.dtype == np.float32 and text == "a" and nothing is None
    assert memory.labels == ["fixed", "pair[0]"]


@pytest.mark.parametrize("value", [[1, 2], {"a": 1}, datetime.date(2020, 1, 1), np.array([None])])
def test_what_cannot_be_sent_is_named(tmp_path: Path, value: Any) -> None:
    with pytest.raises(UsageError, match="argument 'x'"):
        through(tmp_path, x=value)


def test_the_guards_notice_writing_beside(tmp_path: Path) -> None:
    memory = through(tmp_path, x=np.ones(10))
    assert memory.first.guards_hold()
    (x,) = memory.first.values
    np.ndarray(12, "f8", memory.first.blocks[0]._block.data, x.ctypes.data - memory.first.blocks[0]._block.ctypes.data)[
        10
    ] = 0.0
    assert not memory.first.guards_hold()
