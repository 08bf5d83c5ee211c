"""Causal attention: what the mask hides is not visited, and the results are those of masked attention."""

import numpy as np
import pytest

import autosched
from autosched import relax, te, topi
from autosched.codegen import compile_func
from autosched.codegen.native import native_object
from autosched.ir.node import preorder
from autosched.relax import op
from autosched.runtime import Module
from autosched.target import Target
from autosched.templates import apply_config, default_config
from autosched.templates.attention_form import causal_shift
from autosched.templates.classify import blocks_of
from autosched.tir.expr import select
from autosched.tir.stmt import IfThenElse
from tests.relax.transform.graphs import graph
from tests.spread import cover, spread

pytestmark = pytest.mark.host(runs=True)

HOST = Target("cpu")
AVX2 = Target("llvm -mcpu=x86-64-v3 -num-cores=2 -l1-bytes=32768 -l2-bytes=524288 -l3-bytes=33554432")
HEADS, SIZE = 3, 8


def attention(rows, columns, kind, window=None, masked=False, layouts=("BSHD",) * 4):
    sizes = {"B": 2, "S": rows, "H": HEADS, "D": SIZE}
    q = te.placeholder([sizes[x] for x in layouts[0]], name="q")
    sizes["S"] = columns
    k, v = (te.placeholder([sizes[x] for x in layouts[n]], name="kv"[n - 1]) for n in (1, 2))
    bias = [te.placeholder((2, 1, 1, columns), name="bias")] if masked else []
    out = topi.attention(q, k, v, bias[0] if masked else None, SIZE**-0.5, kind, window, layouts)
    return te.create_prim_func([q, k, v, *bias, out], "int64")


def reference(q, k, v, mask):
    """float64; q, k and v are [batch, rows, heads, elements]."""
    q, k, v = (x.astype("d").transpose(0, 2, 1, 3) for x in (q, k, v))
    scores = q @ k.swapaxes(-1, -2) * SIZE**-0.5 + mask
    e = np.exp(scores - scores.max(-1, keepdims=True))
    return (e / e.sum(-1, keepdims=True) @ v).transpose(0, 2, 1, 3)


def scaled_block(func):
    return next(b for b in blocks_of(func) if b.name_hint in ("attention_scaled", "attention_causal"))


@pytest.mark.parametrize(
    "rows, columns, kind, window, shift",
    [(9, 9, "TopLeft", None, 0), (4, 9, "BottomRight", None, 5), (9, 9, "TopLeft", 3, 0), (9, 9, None, None, None)],
)
def test_the_form_of_a_causal_mask(rows, columns, kind, window, shift):
    assert causal_shift(scaled_block(attention(rows, columns, kind, window))) == shift


@pytest.mark.parametrize(
    "seen, hidden",
    [
        (lambda i, j: j <= 2 * i, -np.inf),
        (lambda i, j: j >= i, -np.inf),
        (lambda i, j: j <= i, -1.0),
        (lambda i, j: te.any(j <= i, j < 2), -np.inf),
    ],
)
def test_other_masks_are_none(seen, hidden):
    x = te.placeholder((1, 1, 6, 6), name="x")
    low = te.const(hidden, "float32")
    y = te.compute(x.shape, lambda b, h, i, j: select(seen(i, j), x(b, h, i, j), low), name="y")
    assert causal_shift(blocks_of(te.create_prim_func([x, y], "int64"))[0]) is None


def compiled(func):
    """The function with its default schedule, called on arrays."""
    kernel = compile_func(apply_config(func, default_config(func, HOST), HOST).func, HOST, name="k").kernel
    return Module({"k": kernel}, native_object(), threads=1)


@pytest.mark.parametrize("kind, rows", [("TopLeft", 33), ("BottomRight", 5)])
def test_hidden_keys_are_not_visited(kind, rows):
    """No number where only hidden keys are: 0 * NaN is NaN, so a result without it has not seen them."""
    columns = 197
    first = 128 if kind == "TopLeft" else columns  # a granule behind the last query's last key
    rng = np.random.default_rng(0)
    q, k, v = (rng.standard_normal((2, n, HEADS, SIZE), "f") for n in (rows, columns, columns))
    mask = np.where(np.tri(rows, columns, 0 if kind == "TopLeft" else columns - rows), 0, -np.inf)
    expected = reference(q, k, v, mask)
    k[:, first:], v[:, first:] = np.nan, np.nan
    out = np.full(q.shape, 7, "f")
    compiled(attention(rows, columns, kind))(q, k, v, out)
    np.testing.assert_allclose(out, expected, atol=2e-6)


@cover(
    ("rows, columns", [(2, 9), (4, 12), (9, 9), (8, 15), (16, 16), (12, 30), (5, 49), (1, 12)]),
    ("kind", [None, "TopLeft"]),
    together=1,
)
def test_few_queries_and_keys(rows, columns, kind):
    """One tile would hold all scores: they are two, of the same or of different sizes."""
    rng = np.random.default_rng(0)
    q, k, v = (rng.standard_normal((2, n, HEADS, SIZE), "f") for n in (rows, columns, columns))
    mask = np.where(np.tri(rows, columns), 0, -np.inf) if kind else np.zeros((rows, columns))
    out = np.full(q.shape, 7, "f")
    compiled(attention(rows, columns, kind))(q, k, v, out)
    np.testing.assert_allclose(out, reference(q, k, v, mask), atol=2e-6)


def test_only_a_causal_mask_limits_loops():
    def limits(kind):
        func = attention(64, 64, kind)
        body = apply_config(func, default_config(func, AVX2), AVX2).func.body
        return sum(isinstance(x, IfThenElse) for x in preorder(body))

    assert limits("TopLeft") == 4  # panels of scores; the maximum, the exponential, the sum
    assert limits(None) == 0


@pytest.mark.parametrize("tokens", [1, 37, 101])
@spread(2, "low", [-np.inf, -1e9])
def test_a_model_with_a_causal_mask(tokens, low, tmp_path):
    """Masks as models have them, up to the saved artifact; one that lets a single later key through hides no more."""
    seen = np.tri(tokens, dtype=bool)
    seen[0, -1] |= tokens == 37
    mask = np.where(seen, 0, low).astype("f")
    shape = (2, tokens, HEADS, SIZE)

    def build(bb, q, k, v):
        q, k, v = (
            bb.emit(op.permute_dims(x, axes)) for x, axes in ((q, (0, 2, 1, 3)), (k, (0, 2, 3, 1)), (v, (0, 2, 1, 3)))
        )
        scores = bb.emit(op.multiply(bb.emit(op.matmul(q, k)), relax.const(np.float32(SIZE**-0.5))))
        weights = bb.emit(op.nn.softmax(bb.emit(op.add(scores, relax.const(mask)))))
        return op.permute_dims(bb.emit(op.matmul(weights, v)), (0, 2, 1, 3))

    built = autosched.build(graph(dict.fromkeys("qkv", shape), build), target=HOST, records=[], threads=1)
    (row,) = built.manifest["report"]
    assert ("attention_causal" in row["workload"]) == (tokens == 101)
    built.save(tmp_path / "model.asx")
    inputs = np.random.default_rng(0).standard_normal((3, *shape), "f")
    expected = reference(*inputs, mask.astype("d"))
    for executable in (built, autosched.load(tmp_path / "model.asx")):
        np.testing.assert_allclose(executable(*inputs), expected, atol=2e-6)
