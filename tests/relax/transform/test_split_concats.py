"""Concatenations of many parts run in steps."""

import numpy as np

import autosched
from autosched.relax import op
from autosched.relax.expr import Tuple
from autosched.relax.transform import SplitConcats
from autosched.relax.transform.split_concats import MOST_PARTS
from tests.relax.transform.graphs import assert_same_results, calls, graph


def concat_of(n: int, axis: int):
    shapes = {f"x{i}": (2, 1 + i % 3) if axis == 1 else (1 + i % 3, 2) for i in range(n)}
    return graph(shapes, lambda bb, *xs: op.concat(Tuple(xs), axis=axis))


def test_few_parts_stay():
    module = concat_of(MOST_PARTS, 1)
    assert calls(SplitConcats()(module)) == ["concat"]


def test_many_parts_are_joined_in_pieces():
    for n, axis, steps in ((MOST_PARTS + 1, 1, 3), (300, -2, 6)):
        module = concat_of(n, axis)
        result = SplitConcats()(module)
        assert_same_results(module, result)
        assert calls(result) == ["concat"] * steps
        assert all(len(b.value.args[0].fields) <= MOST_PARTS for b in result["main"].bindings())


def test_pieces_of_pieces():
    n = MOST_PARTS**2 + 1
    module = graph({"x": (2, 3)}, lambda bb, x: op.concat(Tuple((x,) * n), axis=0))
    result = SplitConcats()(module)
    assert all(len(b.value.args[0].fields) <= MOST_PARTS for b in result["main"].bindings())
    assert calls(result) == ["concat"] * (65 + 2 + 1)


def test_hundreds_of_parts_compile_and_run():
    """Of three shapes, so pieces share their kernels; before, one kernel took a pointer and a branch for each."""
    executable = autosched.build(concat_of(200, 1), target="llvm -mcpu=x86-64-v3", records=[], threads=1)
    assert len(executable.kernels) <= 4
    parts = [np.full((2, 1 + i % 3), i, "float32") + [[0], [0.5]] for i in range(200)]
    inputs = {f"x{i}": p.astype("float32") for i, p in enumerate(parts)}
    np.testing.assert_array_equal(executable(**inputs).numpy(), np.concatenate(parts, 1))
