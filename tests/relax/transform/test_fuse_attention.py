import numpy as np
import pytest

import autosched
from autosched import relax
from autosched.relax import op
from autosched.relax.evaluate import evaluate
from autosched.relax.expr import Call
from autosched.relax.transform import DeadCodeElimination, FuseAttention
from tests.relax.transform.graphs import Weights, assert_same_results, calls, graph

W = Weights()
B, S, H, D = 2, 5, 3, 4


def _fused(module, expected, shares_heads=False):
    result = DeadCodeElimination()(FuseAttention(shares_heads)(module))
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
        scores = bb.emit(op.divide(bb.emit(op.matmul(q, k, "float32")), relax.const(2.0)))
        out = bb.emit(op.matmul(bb.emit(op.nn.softmax(scores)), v, "float32"))
        return op.reshape(bb.emit(op.permute_dims(out, (0, 2, 1, 3))), (B, S, H * D))

    call = _fused(graph(SPLIT, build), ["reshape", "reshape", "reshape", "nn.attention", "reshape"])
    assert call.attrs["layouts"] == ("BSHD",) * 4
    assert call.attrs["scale"] == 0.5


def test_a_scale_below_a_reshape():
    def build(bb, q, k, v):
        q = bb.emit(op.reshape(bb.emit(op.multiply(q, relax.const(0.5))), (B, H, S, D)))
        k = bb.emit(op.permute_dims(k, (0, 1, 3, 2)))
        return op.matmul(bb.emit(op.nn.softmax(bb.emit(op.matmul(q, k)))), v)

    call = _fused(graph({**PLAIN, "q": (1, B, H, S, D)}, build), ["reshape", "nn.attention"])
    assert call.attrs["scale"] == 0.5


def test_scale_on_query_and_key_and_an_added_mask():
    mask = relax.const(np.where(np.tri(S), 0, -np.inf).astype(np.float32))

    def build(bb, q, k, v):
        q = bb.emit(op.multiply(q, relax.const(0.5)))
        k = bb.emit(op.multiply(bb.emit(op.permute_dims(k, (0, 1, 3, 2))), relax.const(0.5)))
        scores = bb.emit(op.add(bb.emit(op.matmul(q, k)), mask))
        return op.matmul(bb.emit(op.nn.softmax(scores)), v)

    call = _fused(graph(PLAIN, build), ["nn.attention"])
    assert call.attrs["layouts"] == ("BHSD",) * 4
    assert call.attrs["scale"] == 0.25
    assert call.attrs["causal_mask"] == "TopLeft"


def test_boolean_mask_and_transposition_in_two_steps():
    seen = relax.const(np.tri(S).astype(bool))

    def build(bb, x, y, z):
        q, v = _heads(bb, x, (0, 2, 1, 3)), _heads(bb, z, (0, 2, 1, 3))
        k = bb.emit(op.permute_dims(_heads(bb, y, (0, 2, 1, 3)), (0, 1, 3, 2)))
        scores = bb.emit(op.where(seen, bb.emit(op.matmul(q, k)), relax.const(-1e9)))
        return op.matmul(bb.emit(op.nn.softmax(scores)), v)

    call = _fused(graph(SPLIT, build), ["reshape", "reshape", "reshape", "nn.attention"])
    assert call.attrs["layouts"] == ("BSHD", "BSHD", "BSHD", "BHSD")
    assert call.attrs["causal_mask"] == "TopLeft"


@pytest.mark.parametrize("key, value, shared", [(2, 2, 2), (2, 4, 1), (1, 1, 4)])
def test_heads_of_queries_that_share_keys(key, value, shared):
    """Keys [B, heads, S, D], values [B, S, heads, D]: the two axes that heads may have."""

    def repeated(bb, x, axis, count):
        shape = list(x.struct_info.static_shape)
        wide = bb.emit(op.expand_dims(x, axis + 1))
        wide = bb.emit(op.broadcast_to(wide, (*shape[: axis + 1], count, *shape[axis + 1 :])))
        return bb.emit(op.reshape(wide, (*shape[:axis], shape[axis] * count, *shape[axis + 1 :])))

    def build(bb, q, k, v):
        k = bb.emit(op.permute_dims(repeated(bb, k, 1, 4 // key), (0, 1, 3, 2)))
        v = bb.emit(op.permute_dims(repeated(bb, v, 2, 4 // value), (0, 2, 1, 3)))
        return op.matmul(bb.emit(op.nn.softmax(bb.emit(op.matmul(q, k)))), v)

    shapes = {"q": (B, 4, S, D), "k": (B, key, S, D), "v": (B, S, value, D)}
    copies = [] if shared > 1 else ["expand_dims", "broadcast_to", "reshape"]
    call = _fused(graph(shapes, build), [*copies, *copies, "nn.attention"], shares_heads=True)
    assert call.attrs["shared"] == shared


def test_three_dimensions():
    def build(bb, q, k, v):
        scores = bb.emit(op.matmul(q, bb.emit(op.permute_dims(k, (0, 2, 1)))))
        return op.matmul(bb.emit(op.nn.softmax(scores)), v)

    shapes = {name: (6, S, D) for name in "qkv"}
    expected = ["permute_dims", "reshape", "reshape", "reshape", "nn.attention", "reshape"]
    assert _fused(graph(shapes, build), expected) is not None


@pytest.mark.parametrize("batch, made", [((B, H), []), ((6,), ["reshape"])])
def test_elements_in_front_of_tokens(batch, made):
    def build(bb, q, k, v):
        swap = (*range(len(batch)), len(batch) + 1, len(batch))
        scores = bb.emit(op.matmul(bb.emit(op.permute_dims(q, swap)), k))
        weights = bb.emit(op.permute_dims(bb.emit(op.nn.softmax(scores)), swap))
        return op.matmul(v, weights)

    shapes = {"q": (*batch, D, S), "k": (*batch, D, S + 2), "v": (*batch, D - 1, S + 2)}
    before = ["permute_dims"] * (1 + len(made)) + made * 3
    call = _fused(graph(shapes, build), [*before, "nn.attention", *made, "permute_dims"])
    assert call.attrs["layouts"][2] == "BHSD"  # the values are moved: they are read in vectors


def _masked(rows, mask, shapes=None):
    """Attention of `rows` queries to S keys; mask(bb, scores, **parameters) hides scores."""

    def build(bb, q, k, v, **more):
        scores = bb.emit(op.matmul(q, bb.emit(op.permute_dims(k, (0, 1, 3, 2)))))
        return op.matmul(bb.emit(op.nn.softmax(mask(bb, scores, **more))), v)

    own = {"q": (B, H, rows, D), "k": PLAIN["k"], "v": PLAIN["v"], **(shapes or {})}
    return graph(own, lambda bb, q, k, v, *more: build(bb, q, k, v, **dict(zip(shapes or {}, more, strict=True))))


def _tri(rows, shift, low=-np.inf):
    return np.where(np.tri(rows, S, shift), 0, low).astype(np.float32)


@pytest.mark.parametrize(
    "rows, mask, kind",
    [
        (S, _tri(S, 0), "TopLeft"),
        (S, _tri(S, 0, -1e4), "TopLeft"),
        (S, np.broadcast_to(_tri(S, 0, np.finfo("f").min), (B, 1, S, S)), "TopLeft"),
        (3, _tri(3, 0), "TopLeft"),
        (3, _tri(3, S - 3), "BottomRight"),
        (7, _tri(7, 0), "TopLeft"),
        (S, _tri(S, 1), None),
        (S, _tri(S, -1, -1e9), None),
        (7, _tri(7, S - 7, -1e9), None),
        (S, _tri(S, 0, -9.0), None),
        (1, _tri(1, S), None),
        (S, np.tril(np.full((S, S), 1.0, "f"), -1) + _tri(S, 0), None),
        (S, np.where(np.arange(S * S).reshape(S, S) == 1, 0, _tri(S, 0)), None),
        (S, np.stack([_tri(S, 0), np.zeros((S, S), "f")])[:, None], None),
    ],
)
def test_a_causal_mask_is_known_by_all_its_elements(rows, mask, kind):
    module = _masked(rows, lambda bb, scores: bb.emit(op.add(scores, relax.const(mask.astype("f")))))
    call = _fused(module, ["nn.attention" if kind else "nn.attention_bias"])
    assert call.attrs["causal_mask"] == kind


@pytest.mark.parametrize("below", [0, -1])
def test_a_causal_mask_that_is_computed(below):
    """Exporters write large masks as a triangle of ones and a choice, which are not folded."""

    def mask(bb, scores):
        ones = bb.emit(op.broadcast_to(relax.const(np.ones((1, 1), "f")), (S, S)))
        hidden = bb.emit(op.equal(bb.emit(op.tril(ones, k=below)), relax.const(np.float32(0))))
        low = [relax.const(np.float32(x)) for x in (-np.inf, 0.0)]
        return bb.emit(op.add(scores, bb.emit(op.where(hidden, *low))))

    module = _masked(S, mask)
    if below:
        result = DeadCodeElimination()(FuseAttention()(module))
        assert "nn.attention_bias" in calls(result)
        return
    assert _fused(module, ["nn.attention"]).attrs["causal_mask"] == "TopLeft"


def test_scores_replaced_where_a_mask_is_false_or_true():
    seen = np.tri(S).astype(bool)

    def hide(condition, low, swap):
        def mask(bb, scores):
            sides = (relax.const(low), scores) if swap else (scores, relax.const(low))
            return bb.emit(op.where(relax.const(condition), *sides))

        return mask

    for condition, swap in ((seen, False), (~seen, True)):
        for low in (-np.inf, -1e4):
            call = _fused(_masked(S, hide(condition, np.float32(low), swap)), ["nn.attention"])
            assert call.attrs["causal_mask"] == "TopLeft"
    call = _fused(_masked(S, hide(seen.T, np.float32(-1e9), False)), ["nn.attention_bias"])
    assert call.attrs["causal_mask"] is None
    assert _fused_or_none(_masked(S, hide(np.tri(S, S, -1).astype(bool), np.float32(-1e4), False))) is None
    assert _fused_or_none(_masked(S, hide(seen, np.float32(-9), False))) is None


@pytest.mark.parametrize("low, kind", [(-np.inf, "TopLeft"), (-1e4, None)])
def test_a_causal_mask_beside_one_of_the_input(low, kind):
    def mask(bb, scores, padding):
        hidden = bb.emit(op.where(relax.const(np.tri(S).astype(bool)), scores, relax.const(np.float32(low))))
        return bb.emit(op.add(hidden, padding))

    module = _masked(S, mask, {"padding": (B, 1, 1, S)})
    result = DeadCodeElimination()(FuseAttention()(module))
    assert_same_results(module, result)
    (call,) = (b.value for b in result["main"].bindings() if b.value.op_name == "relax.nn.attention_bias")
    assert call.attrs["causal_mask"] == kind


def test_layers_have_what_a_mask_adds_in_common():
    def build(bb, q, k, v, padding):
        seen = bb.emit(op.equal(padding, relax.const(np.float32(0))))
        for _ in range(2):
            scores = bb.emit(op.matmul(q, bb.emit(op.permute_dims(k, (0, 1, 3, 2)))))
            scores = bb.emit(op.where(seen, scores, relax.const(np.float32(-np.inf))))
            q = bb.emit(op.matmul(bb.emit(op.nn.softmax(scores)), v))
        return op.abs(q)

    module = graph({**PLAIN, "padding": (B, 1, 1, S)}, build)
    result = DeadCodeElimination()(FuseAttention()(module))
    assert calls(result) == ["equal", "where", "nn.attention_bias", "nn.attention_bias", "abs"]


def test_keys_transposed_with_batch_and_heads_as_one():
    def build(bb, x, y, z):
        q, k, v = (_heads(bb, a, (0, 2, 1, 3)) for a in (x, y, z))
        flat = bb.emit(op.permute_dims(bb.emit(op.reshape(k, (B * H, S, D))), (0, 2, 1)))
        scores = bb.emit(op.matmul(q, bb.emit(op.reshape(flat, (B, H, D, S)))))
        return op.matmul(bb.emit(op.nn.softmax(scores)), v)

    call = _fused(graph(SPLIT, build), ["reshape", "reshape", "reshape", "nn.attention"])
    assert call.attrs["layouts"] == ("BSHD", "BSHD", "BSHD", "BHSD")


@pytest.mark.parametrize("what", ["axis", "shared", "broadcast", "mask before scale", "type"])
def test_what_is_no_attention_stays(what):
    def build(bb, q, k, v):
        keys = bb.emit(op.permute_dims(k, (0, 1, 3, 2)))
        scores = bb.emit(op.matmul(q, keys))
        if what == "mask before scale":
            scores = bb.emit(op.multiply(bb.emit(op.add(scores, W(S, S))), relax.const(0.5)))
        weights = bb.emit(op.nn.softmax(scores, axis=2 if what == "axis" else -1))
        factor = W(1, 1, S, D) if what == "broadcast" else v
        out = op.matmul(weights, factor, "float64" if what == "type" else None)
        return (weights, bb.emit(out)) if what == "shared" else out

    assert _fused_or_none(graph(PLAIN, build)) is None


def _fused_or_none(module):
    result = DeadCodeElimination()(FuseAttention()(module))
    assert_same_results(module, result)
    found = [b.value for b in result["main"].bindings() if isinstance(b.value, Call)]
    return next((c for c in found if "attention" in c.op_name), None)


def _zeroed(kind):
    """Attention whose rows without weights are set to 0 as exporters (IsNaN) and PyTorch (all scores -inf) write it."""

    def build(bb, q, k, v, bias):
        scores = bb.emit(op.add(bb.emit(op.matmul(q, bb.emit(op.permute_dims(k, (0, 1, 3, 2))))), bias))
        weights = bb.emit(op.nn.softmax(scores))
        if kind == "nan":
            hidden = bb.emit(op.isnan(weights))
        else:
            largest = bb.emit(op.max(scores, axis=[-1], keepdims=True, keep_nan=True))
            hidden = bb.emit(op.equal(largest, relax.const(np.float32(-np.inf))))
        return op.matmul(bb.emit(op.where(hidden, relax.const(np.float32(0)), weights)), v)

    return graph({**PLAIN, "bias": (B, 1, S, S)}, build)


@pytest.mark.parametrize("kind", ["nan", "masked", None])
def test_queries_that_see_no_key(kind):
    """The fused operator gives what its parts give: 0 where weights are set to 0, NaN elsewhere and without that."""
    module = _zeroed(kind) if kind else _masked(S, lambda bb, s, bias: bb.emit(op.add(s, bias)), {"bias": (B, 1, S, S)})
    call = _fused(module, ["nn.attention_bias"])
    assert call.attrs["zero_rows"] == kind
    q, k, v = (np.random.default_rng(n).standard_normal((B, H, S, D)).astype("f") for n in range(3))
    bias = np.where(np.tri(S, S, -1), 0, -np.inf).astype("f") * np.ones((B, 1, 1, 1), "f")  # query 0 sees no key
    q[1, 0, 3] = np.nan
    found = autosched.build(module, target="cpu")(q, k, v, bias).numpy()
    with np.errstate(invalid="ignore"):
        expected = evaluate(module, [q, k, v, bias])
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)
    assert np.isnan(found[0, 0, 0]).all() if kind is None else not found[:, :, 0].any()
    assert np.isnan(found[1, 0, 3]).any() == (kind != "nan")


@pytest.mark.parametrize("what", ["other value", "other rows", "read elsewhere"])
def test_weights_that_are_set_otherwise_stay(what):
    def build(bb, q, k, v):
        scores = bb.emit(op.matmul(q, bb.emit(op.permute_dims(k, (0, 1, 3, 2)))))
        weights = bb.emit(op.nn.softmax(scores))
        hidden = bb.emit(op.isnan(scores if what == "other rows" else weights))
        put = bb.emit(op.where(hidden, relax.const(np.float32(what == "other value")), weights))
        out = bb.emit(op.matmul(put, v))
        return (weights, out) if what == "read elsewhere" else out

    assert _fused_or_none(graph(PLAIN, build)) is None
