import numpy as np
import pytest

from autosched import relax
from autosched.relax import op
from autosched.relax.expr import Call
from autosched.relax.transform import DeadCodeElimination, FuseAttention
from tests.relax.transform.graphs import Weights, assert_same_results, calls, graph

W = Weights()
B, S, H, D = 2, 5, 3, 4


def _fused(module, expected):
    result = DeadCodeElimination()(FuseAttention()(module))
    assert_same_results(module, result)
    assert calls(result) == expected
    found = [b.value for b in result["main"].bindings() if isinstance(b.value, Call)]
    return next((c for c in found if "attention" in c.op_name), None)


def _heads(bb, x, axes):
    return bb.emit(op.permute_dims(bb.emit(op.reshape(x, (B, S, H, D))), axes))


SPLIT = {"x": (B, S, H * D), "y": (B, S, H * D), "z": (B, S, H * D)}
PLAIN = {"q": (B, H, S, D), "k": (B, H, S, D), "v": (B, H, S, D)}


def test_split_heads_with_the_scale_on_the_scores():
    def build(bb, x, y, z):
        q, k, v = (
            _heads(bb, a, axes) for a, axes in ((x, (0, 2, 1, 3)), (y, (0, 2, 3, 1)), (z, (0, 2, 1, 3)))
        )  # fmt: skip
        scores = bb.emit(op.divide(bb.emit(op.matmul(q, k)), relax.const(2.0)))
        out = bb.emit(op.matmul(bb.emit(op.nn.softmax(scores)), v))
        return op.reshape(bb.emit(op.permute_dims(out, (0, 2, 1, 3))), (B, S, H * D))

    call = _fused(graph(SPLIT, build), ["reshape", "reshape", "reshape", "nn.attention", "reshape"])
    assert call.attrs["layouts"] == ("BSHD",) * 4
    assert call.attrs["scale"] == 0.5


def test_scale_on_query_and_key_and_an_added_mask():
    mask = relax.const(np.where(np.tri(S), 0, -np.inf).astype(np.float32))

    def build(bb, q, k, v):
        q = bb.emit(op.multiply(q, relax.const(0.5)))
        k = bb.emit(op.multiply(bb.emit(op.permute_dims(k, (0, 1, 3, 2))), relax.const(0.5)))
        scores = bb.emit(op.add(bb.emit(op.matmul(q, k)), mask))
        return op.matmul(bb.emit(op.nn.softmax(scores)), v)

    call = _fused(graph(PLAIN, build), ["nn.attention_bias"])
    assert call.attrs["layouts"] == ("BHSD",) * 4
    assert call.attrs["scale"] == 0.25


def test_boolean_mask_and_transposition_in_two_steps():
    seen = relax.const(np.tri(S).astype(bool))

    def build(bb, x, y, z):
        q, v = _heads(bb, x, (0, 2, 1, 3)), _heads(bb, z, (0, 2, 1, 3))
        k = bb.emit(op.permute_dims(_heads(bb, y, (0, 2, 1, 3)), (0, 1, 3, 2)))
        scores = bb.emit(op.where(seen, bb.emit(op.matmul(q, k)), relax.const(-1e9)))
        return op.matmul(bb.emit(op.nn.softmax(scores)), v)

    expected = ["reshape", "reshape", "reshape", "where", "nn.attention_bias"]
    assert _fused(graph(SPLIT, build), expected).attrs["layouts"] == ("BSHD", "BSHD", "BSHD", "BHSD")


def test_three_dimensions():
    def build(bb, q, k, v):
        scores = bb.emit(op.matmul(q, bb.emit(op.permute_dims(k, (0, 2, 1)))))
        return op.matmul(bb.emit(op.nn.softmax(scores)), v)

    shapes = {name: (6, S, D) for name in "qkv"}
    expected = ["permute_dims", "reshape", "reshape", "reshape", "nn.attention", "reshape"]
    assert _fused(graph(shapes, build), expected) is not None


@pytest.mark.parametrize("what", ["axis", "shared", "broadcast", "mask before scale"])
def test_what_is_no_attention_stays(what):
    def build(bb, q, k, v):
        keys = bb.emit(op.permute_dims(k, (0, 1, 3, 2)))
        scores = bb.emit(op.matmul(q, keys))
        if what == "mask before scale":
            scores = bb.emit(op.multiply(bb.emit(op.add(scores, W(S, S))), relax.const(0.5)))
        weights = bb.emit(op.nn.softmax(scores, axis=2 if what == "axis" else -1))
        out = op.matmul(weights, W(1, 1, S, D) if what == "broadcast" else v)
        return (weights, bb.emit(out)) if what == "shared" else out

    assert _fused_or_none(graph(PLAIN, build)) is None


def _fused_or_none(module):
    result = DeadCodeElimination()(FuseAttention()(module))
    assert_same_results(module, result)
    found = [b.value for b in result["main"].bindings() if isinstance(b.value, Call)]
    return next((c for c in found if "attention" in c.op_name), None)
