"""Splits of inputs become slices, which join the kernels that read them."""

import numpy as np
import pytest

import autosched
from autosched.relax import op
from autosched.relax.expr import Tuple, TupleGetItem
from autosched.relax.transform import SliceInputs
from tests.relax.transform.graphs import assert_same_results, calls, graph


def parts(bb, x, n: int, cut, axis: int):
    found = bb.emit(op.split(x, cut, axis=axis))
    return [bb.emit(TupleGetItem(found, i)) for i in range(n)]


@pytest.mark.parametrize(("n", "cut", "axis"), [(3, 3, 0), (2, 2, -1), (3, (1, 3), 1), (2, 2, 0)])
def test_each_part_is_a_slice(n, cut, axis):
    module = graph({"x": (5, 4, 6)}, lambda bb, x: Tuple(tuple(op.exp(p) for p in parts(bb, x, n, cut, axis))))
    result = SliceInputs()(module)
    assert_same_results(module, result)
    assert "split" not in calls(result) and calls(result).count("strided_slice") == n


def test_what_a_kernel_computes_is_split_as_before():
    module = graph({"x": (4, 6)}, lambda bb, x: Tuple(tuple(parts(bb, bb.emit(op.exp(x)), 2, 2, 0))))
    assert "split" in calls(SliceInputs()(module))


def test_a_cache_of_all_layers_is_read_by_the_concatenations_alone():
    def body(bb, cache, new):
        joined = [bb.emit(op.concat(Tuple((bb.emit(op.squeeze(p, [0])), new)), axis=1))
                  for p in parts(bb, cache, 3, 3, 0)]  # fmt: skip
        return Tuple(tuple(bb.emit(op.permute_dims(x, (0, 2, 1))) for x in joined))

    module = graph({"cache": (3, 2, 10, 8), "new": (2, 1, 8)}, body)
    built = autosched.build(module, target="cpu", threads=1)
    assert len(built.graph.nodes) == 3 and all("split" not in name for name in built.kernels)
    rng = np.random.default_rng(0)
    cache, new = (rng.standard_normal(s).astype("float32") for s in ((3, 2, 10, 8), (2, 1, 8)))
    for layer, result in zip(cache, built(cache, new), strict=True):
        np.testing.assert_array_equal(result.numpy(), np.concatenate([layer, new], 1).transpose(0, 2, 1))
