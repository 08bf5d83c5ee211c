"""How durations, shapes, sweeps and task lists are written."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autosched.cli.values import (
    parse_duration,
    parse_indices,
    parse_percentiles,
    parse_shapes,
    parse_share,
    parse_sweep,
)
from autosched.durations import with_unit
from autosched.runtime.size_expr import format_shapes


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("90", 90), ("90s", 90), ("10m", 600), ("1h30m", 5400), ("1.5h", 5400), ("500ms", 0.5), ("1d 2h", 93600)],
)
def test_durations(text: str, seconds: float) -> None:
    assert parse_duration(text) == pytest.approx(seconds)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(10, "10 s"), (0.5, "0.5 s"), (90, "90 s"), (600, "10 min"), (5400, "1 h 30 min"), (7200, "2 h")],
)
def test_a_budget_is_said_with_its_unit(seconds: float, text: str) -> None:
    assert with_unit(seconds) == text


@pytest.mark.parametrize("text", ["", "ten", "0", "0s", "-5s", "10x", "m10", "5m3"])
def test_nonsense_is_no_duration(text: str) -> None:
    with pytest.raises(ValueError, match="duration|no time"):
        parse_duration(text)


@pytest.mark.parametrize(
    ("text", "shapes"),
    [
        ("x:1x3x224x224", {"x": (1, 3, 224, 224)}),
        ("x:1x3,y:7", {"x": (1, 3), "y": (7,)}),
        ("x[1,3,224,224]", {"x": (1, 3, 224, 224)}),
        ("x[1,3], gpu_0/data_0:5x5", {"x": (1, 3), "gpu_0/data_0": (5, 5)}),
        ("serving:0:2x2", {"serving:0": (2, 2)}),
        ("scalar:", {"scalar": ()}),
    ],
)
def test_shapes(text: str, shapes: dict[str, tuple[int, ...]]) -> None:
    assert parse_shapes(text) == shapes


@pytest.mark.parametrize("text", ["", "x", "1x3", "x:1x0", "x:axb", "x:1,x:2", "x[1,2", "x:-1x3"])
def test_nonsense_is_no_shape(text: str) -> None:
    with pytest.raises(ValueError, match="shape|dimension"):
        parse_shapes(text)


names = st.text("abcxyz_/.0123456789", min_size=1, max_size=12)
dims = st.lists(st.integers(1, 5000), max_size=5).map(tuple)


@given(st.dictionaries(names, dims, min_size=1, max_size=4))
def test_shapes_are_read_as_written(shapes: dict[str, tuple[int, ...]]) -> None:
    assert parse_shapes(format_shapes(shapes)) == shapes


def test_sweeps() -> None:
    assert parse_sweep("threads=1,2, 4") == ("threads", (1, 2, 4))
    assert parse_sweep("batch=1,8") == ("batch", (1, 8))
    for text in ("1,2", "cores=1", "threads=", "threads=0", "threads=a"):
        with pytest.raises(ValueError, match="no sweep"):
            parse_sweep(text)


def test_percentiles_and_shares() -> None:
    assert parse_percentiles("50,99.9,50") == (50, 99.9)
    assert parse_share("+5%") == parse_share("5 %") == parse_share("0.05") == 0.05
    for text in ("", "a", "50,,90", "101", "-1", "nan"):
        with pytest.raises(ValueError, match="percentiles"):
            parse_percentiles(text)
    for text in ("", "-5%", "fast", "5%%"):
        with pytest.raises(ValueError, match="no share"):
            parse_share(text)


def test_indices() -> None:
    assert parse_indices("0,3-5,4") == (0, 3, 4, 5)
    for text in ("", "a", "5-3", "1,,2", "-1"):
        with pytest.raises(ValueError, match="no list|backwards"):
            parse_indices(text)
