"""The graph of a batch of unknown size: shapes, bounds, and files that say what cannot be."""

from __future__ import annotations

import json
from typing import Any

import pytest

from autosched.errors import ShapeError
from autosched.runtime.dynamic import check_form
from autosched.runtime.graph import Node, Storage, Value
from autosched.runtime.graph_form import GraphForm, SizeLimit, SizeRange


def form(**changes: Any) -> GraphForm:
    """x [n, 4], mask [2 * n] -> a [n, 4] -> b [n, 4], which lies where a does -> y [n, 4]."""
    fields: dict[str, Any] = {
        "sizes": (SizeRange("n", 1, 64),),
        "values": (
            Value("x", (1, 4), "float32", Storage("input", 0)),
            Value("mask", (2,), "float32", Storage("input", 1)),
            Value("a", (1, 4), "float32", Storage("arena", -1)),
            Value("b", (1, 4), "float32", Storage("arena", -1)),
            Value("y", (1, 4), "float32", Storage("output", 0)),
        ),
        "shapes": (("n", 4), (("*", 2, "n"),), ("n", 4), ("n", 4), ("n", 4)),
        "numbers": (("n",), ("n",), ("n",)),
        "lives": ((2, 0, 2),),
        "inside": ((3, 2, 0),),
        "nodes": (Node("a", "f", (0, 1), (2,)), Node("b", "g", (2,), (3,)), Node("y", "g", (3,), (4,))),
        "inputs": (0, 1),
        "outputs": (4,),
    }
    return GraphForm(**{**fields, **changes})


def test_shapes_grow_with_the_batch_and_memory_is_planned_for_it() -> None:
    graph = form().at({"n": 7})
    assert [v.shape for v in graph.values] == [(7, 4), (14,), (7, 4), (7, 4), (7, 4)]
    assert graph.arena_bytes == 128 and graph.values[3].storage == graph.values[2].storage == Storage("arena", 0)
    assert form().describe(1) == "[2*n]" and form().describe(0) == "[n, 4]"


def test_the_size_follows_from_the_inputs() -> None:
    assert form().sizes_of({0: (7, 4), 1: (14,)}) == {"n": 7}
    with pytest.raises(ShapeError, match=r"'n' is 7 for input 'x' and 8 for input 'mask'"):
        form().sizes_of({0: (7, 4), 1: (16,)})
    with pytest.raises(ShapeError, match=r"'mask' has shape \[15\] instead of \[2\*n\]"):
        form().sizes_of({0: (7, 4), 1: (15,)})
    with pytest.raises(ShapeError, match="'n' is 65, and the model is built for 1 to 64"):
        form().sizes_of({0: (65, 4), 1: (130,)})


def test_a_manifest_gives_the_form_again() -> None:
    assert GraphForm.from_manifest(json.loads(json.dumps(form().to_manifest()))) == form()
    check_form(form())


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"shapes": (("n", 4), (2**62,), ("n", 4), ("n", 4), ("n", 4))}, "an extent is 4611686018427387904"),
        ({"lives": ((2, 0, 1),)}, "used by nodes outside of 0 to 1"),
        ({"lives": ((9, 0, 2),)}, "number of a value is 9"),
        ({"inside": ()}, "'b' has no memory"),
        ({"inside": ((3, 1, 0),)}, "lies in 'mask'"),
        ({"inside": ((3, 3, 0),)}, "lies in 'b'"),
        ({"sizes": (SizeRange("n", -1, 4),)}, "the least 'n'"),
        ({"sizes": (SizeRange("n"), SizeRange("n"))}, "two sizes have one name"),
    ],
)
def test_a_form_that_cannot_be_is_refused(changes: dict[str, Any], why: str) -> None:
    with pytest.raises(ValueError, match=why):
        check_form(form(**changes))


def test_a_file_of_the_time_of_one_size_gives_the_same_form() -> None:
    entry = json.loads(json.dumps(form().to_manifest()))
    for name in ("sizes", "shapes", "numbers"):
        entry.pop(name)
    entry |= {"size": ["n", 1, 64], "axes": [0, 0, 0, 0, 0]}
    entry["graph"]["values"][1][1] = [2]  # for one part
    assert GraphForm.from_manifest(entry) == form()


def two_sizes() -> GraphForm:
    """x [b, s, 4], rows [b * s], later [s + 1] -> y [b * s, 4]."""
    shapes = (("b", "s", 4), (("*", "b", "s"),), (("+", "s", 1),), (("*", "b", "s"), 4))
    kinds = ("input", "input", "input", "output")
    values = [Value(f"v{i}", (1,) * len(x), "float32", Storage(k, i)) for i, (x, k) in enumerate(zip(shapes, kinds))]
    nodes = (Node("y", "f", (0, 1, 2), (3,)),)
    sizes = SizeRange("b", 1, 8), SizeRange("s")
    return GraphForm(sizes, tuple(values), shapes, ((),), (), (), nodes, (0, 1, 2), (3,))


def test_sizes_follow_from_all_inputs_together() -> None:
    assert two_sizes().sizes_of({0: (3, 5, 4), 1: (15,), 2: (6,)}) == {"b": 3, "s": 5}
    assert list(two_sizes().sizes_of({1: (15,), 2: (6,)}).items()) == [("b", 3), ("s", 5)]  # in the order of names
    assert two_sizes().describe(2) == "[s+1]" and two_sizes().describe(3) == "[b*s, 4]"
    with pytest.raises(ShapeError, match=r"'v1' has shape \[16\] instead of \[b\*s\]"):
        two_sizes().sizes_of({0: (3, 5, 4), 1: (16,), 2: (6,)})
    with pytest.raises(ShapeError, match="'s' is 5 for input 'v0' and 4 for input 'v2'"):
        two_sizes().sizes_of({0: (3, 5, 4), 1: (15,), 2: (5,)})
    with pytest.raises(ShapeError, match="'b' is 9, and the model is built for 1 to 8"):
        two_sizes().sizes_of({0: (9, 5, 4), 1: (45,), 2: (6,)})
    with pytest.raises(ShapeError, match="does not follow"):
        two_sizes().sizes_of({1: (15,)})


def windows(**changes: Any) -> GraphForm:
    """`form` whose mask has n - 6 elements."""
    shapes = (("n", 4), (("-", "n", 6),), ("n", 4), ("n", 4), ("n", 4))
    return form(shapes=shapes, **changes)


def test_the_least_sizes_are_ones_of_which_no_value_is_empty() -> None:
    assert windows().least() == {"n": 7}
    check_form(windows())
    with pytest.raises(ShapeError, match=r"'mask' would have the shape \[-3\] for n 3"):
        windows().at({"n": 3})
    assert windows(sizes=(SizeRange("n", 1, 5),)).least() == {"n": 1}  # there are none


def test_a_limit_of_multiples() -> None:
    limit = SizeLimit(("-", "n", ("*", ("//", "n", 4), 4)), 0, 0, "'h'")
    assert form(limits=(limit,)).least() == {"n": 4}
    with pytest.raises(ShapeError, match="'h' needs n a multiple of 4, and gets n 7"):
        limit.check({"n": 7})
