"""Kernels whose sizes come with the call, against NumPy in float64 at sizes around every width of vector."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import autosched
from autosched import relax
from autosched.codegen import counters
from autosched.relax.block_builder import BlockBuilder
from autosched.runtime.dynamic import DynamicExecutable
from autosched.templates.cpu.attention_sized import FEW_KEYS
from autosched.tir.expr import Var
from tests.spread import spread

OP, NN = relax.op, relax.op.nn
B, S, P = (Var(name, "int64") for name in "bsp")
SIZES = [(1, 1, 1), (2, 3, 5), (3, 8, 1), (1, 17, 16), (2, 33, 40), (5, 64, 2)]  # of b, s, p


def built(
    shapes: list[tuple[Any, ...]], body: Callable[..., Any], dtypes: list[str] | None = None
) -> DynamicExecutable:
    """A module of `body`, called with the builder and an input of each shape."""
    builder = BlockBuilder()
    kinds = dtypes or ["float32"] * len(shapes)
    inputs = [relax.Var(f"x{i}", relax.TensorStructInfo(s, d)) for i, (s, d) in enumerate(zip(shapes, kinds))]
    with builder.function("main", inputs):
        with builder.dataflow():
            out = builder.emit_output(body(builder.emit, *inputs))
        builder.emit_func_output(out)
    made = autosched.build(builder.get())
    assert isinstance(made, DynamicExecutable), made.reason
    return made


def softmax(x: np.ndarray) -> np.ndarray:
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def attended(q: np.ndarray, k: np.ndarray, v: np.ndarray, bias: Any = 0.0) -> np.ndarray:
    """Of [batch, heads, length, elements]."""
    return softmax(q @ k.swapaxes(-1, -2) * q.shape[-1] ** -0.5 + bias) @ v


def causal(x: np.ndarray) -> np.ndarray:
    n = x.shape[2]
    return attended(x, x, x, np.where(np.tri(n, dtype=bool), 0.0, -np.inf))


CASES: dict[str, tuple[list[tuple[Any, ...]], Callable[..., Any], Callable[..., np.ndarray]]] = {
    "transpose": ([(B, S, 3, 8)], lambda e, x: e(OP.permute_dims(x, (0, 2, 1, 3))), lambda x: x.transpose(0, 2, 1, 3)),
    "turn": ([(B, S, 6)], lambda e, x: e(OP.permute_dims(x, (2, 1, 0))), lambda x: x.transpose()),
    "images to channels last": (
        [(2, 20, S, P), (2, S, P, 36)],
        lambda e, x, y: e(OP.concat([e(OP.permute_dims(e(OP.exp(x)), (0, 2, 3, 1))), y], 3)),
        lambda x, y: np.concatenate([np.exp(x).transpose(0, 2, 3, 1), y], 3),
    ),
    "images to channels first": (
        [(B, S, P, 36)], lambda e, x: e(OP.permute_dims(x, (0, 3, 1, 2))), lambda x: x.transpose(0, 3, 1, 2),
    ),
    "rows of run-time length": ([(B, 3, S)], lambda e, x: e(NN.softmax(x, -1)), softmax),
    "position": (
        [(B, S, 5), (S, 5)], lambda e, x, y: e(NN.relu(e(OP.add(x, y)))), lambda x, y: np.maximum(x + y, 0),
    ),
    "sum over the first": ([(B, S, 7)], lambda e, x: e(OP.sum(x, 0)), lambda x: x.sum(0)),
    "largest over the second": ([(B, S, 7)], lambda e, x: e(OP.max(x, 1)), lambda x: x.max(1)),
    "first token": ([(B, S, 7)], lambda e, x: e(OP.take(x, relax.const(np.int64(0)), 1)), lambda x: x[:, 0]),
    "last token": ([(B, S, 7)], lambda e, x: e(OP.take(x, relax.const(np.int64(-1)), 1)), lambda x: x[:, -1]),
    "cache": (
        [(B, 2, P, 4), (B, 2, S, 4)], lambda e, x, y: e(OP.concat([x, y], 2)),
        lambda x, y: np.concatenate([x, y], 2),
    ),
    "attention over a cache": (
        [(B, P, 2, 8), (B, S, 2, 8)], lambda e, x, y: e(NN.attention(y, *[e(OP.concat([x, y], 1))] * 2)),
        lambda x, y: attended(
            *(a.transpose(0, 2, 1, 3) for a in (y, *[np.concatenate([x, y], 1)] * 2))
        ).transpose(0, 2, 1, 3),
    ),
    "product": (
        [(B, S, 9), (B, P, 9)], lambda e, x, y: e(OP.matmul(x, e(OP.permute_dims(y, (0, 2, 1))))),
        lambda x, y: x @ y.transpose(0, 2, 1),
    ),
    "product over a run-time length": (
        [(B, 5, S), (B, S, 20)], lambda e, x, y: e(OP.matmul(x, y)), lambda x, y: x @ y,
    ),
    "product of three run-time lengths": (
        [(B, S), (S, P), (B, P)], lambda e, x, y, z: e(NN.relu(e(OP.add(e(OP.matmul(x, y)), z)))),
        lambda x, y, z: np.maximum(x @ y + z, 0),
    ),
    "product of few columns": ([(B, S), (S, 3)], lambda e, x, y: e(OP.matmul(x, y)), lambda x, y: x @ y),
    "product of few columns, transposed": (
        [(B, S), (3, S)], lambda e, x, y: e(OP.matmul(x, e(OP.permute_dims(y)))), lambda x, y: x @ y.T,
    ),
    "product of few rows": ([(3, S), (S, P)], lambda e, x, y: e(OP.matmul(x, y)), lambda x, y: x @ y),
    "product of heads": (
        [(B, 2, S, P), (B, 2, P, 24)], lambda e, x, y: e(OP.matmul(x, y)), lambda x, y: x @ y,
    ),
    "attention": (
        [(B, S, 2, 8), (B, P, 2, 8)], lambda e, x, y: e(NN.attention(x, y, y)),
        lambda x, y: attended(*(a.transpose(0, 2, 1, 3) for a in (x, y, y))).transpose(0, 2, 1, 3),
    ),
    "masked attention": (
        [(B, S, 2, 20), (B, 1, 1, S)], lambda e, x, m: e(NN.attention(x, x, x, m)),
        lambda x, m: attended(*[x.transpose(0, 2, 1, 3)] * 3, m).transpose(0, 2, 1, 3),
    ),
    "causal attention": (
        [(B, S, 2, 24)], lambda e, x: e(NN.attention(x, x, x, causal_mask="TopLeft")),
        lambda x: causal(x.transpose(0, 2, 1, 3)).transpose(0, 2, 1, 3),
    ),
}  # fmt: skip


@spread(2, "case", CASES)
def test_every_size_is_right_and_compiles_nothing(case: str) -> None:
    shapes, body, reference = CASES[case]
    made = built(shapes, body)
    before, rng = counters.COMPILES.value, np.random.default_rng(0)
    for b, s, p in SIZES:
        values = {B: b, S: s, P: p}
        arrays = [rng.standard_normal([values.get(d, d) for d in shape]).astype("float32") for shape in shapes]
        expected = reference(*(a.astype("float64") for a in arrays))
        np.testing.assert_allclose(made(*arrays).numpy(), expected, rtol=2e-5, atol=2e-6, err_msg=f"{b} {s} {p}")
    assert counters.COMPILES.value == before


def test_products_test_no_length_in_their_loops() -> None:
    made = built([(S, P), (P, B)], lambda e, x, y: e(OP.matmul(x, y)))
    (source,) = (k.source for k in made.kernels.values())
    lines = source.splitlines()
    (update,) = (n for n, line in enumerate(lines) if "x0[" in line and "= matmul_local[" in line)
    assert all("# " in line and "for ax" in line for line in lines[update - 3 : update]), source


def test_one_axis_of_run_time_length() -> None:
    made = built([(S,)], lambda e, x: e(OP.exp(x)))
    for n in (1, 7, 4096, 4097, 9000):
        x = np.random.default_rng(n).standard_normal(n).astype("float32")
        np.testing.assert_allclose(made(x).numpy(), np.exp(x), rtol=1e-6)


def test_embeddings_of_tokens_with_their_positions() -> None:
    table = np.random.default_rng(0).standard_normal((11, 6)).astype("float32")
    made = built(
        [(B, S), (S, 6)], lambda e, i, p: e(OP.add(e(OP.take(relax.const(table), i, 0)), p)), ["int64", "float32"]
    )
    for b, s, _ in SIZES:
        tokens = np.random.default_rng(s).integers(0, 11, (b, s))
        places = np.random.default_rng(b).standard_normal((s, 6)).astype("float32")
        np.testing.assert_allclose(made(tokens, places).numpy(), table[tokens] + places, rtol=1e-6)


def test_attention_of_few_keys_computes_no_whole_tiles() -> None:
    made = built([(B, S, 2, 64)], lambda e, x: e(NN.attention(x, x, x)))
    (source,) = (k.source for k in made.kernels.values() if "attention" in k.source)
    assert source.count(f"if s <= {FEW_KEYS}:") == 1
    rng = np.random.default_rng(0)
    for n in range(1, 2 * FEW_KEYS):
        x = rng.standard_normal((3, n, 2, 64)).astype("float32")
        expected = attended(*[x.astype("float64").transpose(0, 2, 1, 3)] * 3).transpose(0, 2, 1, 3)
        np.testing.assert_allclose(made(x).numpy(), expected, rtol=2e-5, atol=2e-6, err_msg=str(n))


@pytest.mark.parametrize("elements", [8, 64, 80])
def test_one_query_and_any_number_of_keys(elements: int) -> None:
    """A step of a decoder: no tiles of queries, no panels of keys."""
    made = built(
        [(B, 1, 2, elements), (B, S, 2, elements), (B, 1, 1, S)], lambda e, q, k, m: e(NN.attention(q, k, k, m))
    )
    (source,) = (k.source for k in made.kernels.values() if "attention" in k.source)
    assert "k_global" not in source
    rng = np.random.default_rng(0)
    for n in (1, 2, 5, 16, 17, 100):
        q, k = (rng.standard_normal((3, rows, 2, elements)).astype("float32") for rows in (1, n))
        mask = np.where(rng.random((3, 1, 1, n)) < 0.3, -20.0, 0.0).astype("float32")
        expected = attended(*(x.astype("float64").transpose(0, 2, 1, 3) for x in (q, k, k)), mask).transpose(0, 2, 1, 3)
        np.testing.assert_allclose(made(q, k, mask).numpy(), expected, rtol=2e-5, atol=2e-6, err_msg=str(n))


def test_products_of_attention_test_no_length_in_their_loops() -> None:
    made = built([(B, S, 2, 8)], lambda e, x: e(NN.attention(x, x, x)))
    (source,) = (k.source for k in made.kernels.values() if "attention" in k.source)
    lines = source.splitlines()
    for name in ("attention_scores", "attention_context"):
        updates = [n for n, line in enumerate(lines) if line.count(f"{name}[") == 2]
        assert updates, name
        for at in updates:
            assert all("# " in line and " if " not in line for line in lines[at - 3 : at + 1]), "\n".join(
                lines[at - 3 : at + 1]
            )


@pytest.mark.parametrize(
    ("shape", "order"),
    [
        ((B, S), (1, 0)),
        ((40, S), (1, 0)),
        ((B, 40), (1, 0)),
        ((B, 24, S, P), (0, 2, 3, 1)),
        ((B, S, P, 24), (0, 3, 1, 2)),
    ],
)
def test_open_transpositions_turn_squares_in_registers(shape: tuple[Any, ...], order: tuple[int, ...]) -> None:
    made = built([shape], lambda e, x: e(OP.permute_dims(x, order)))
    before = counters.COMPILES.value
    for b, s, p in ((1, 1, 1), (2, 15, 3), (16, 16, 1), (17, 31, 7), (33, 32, 16), (5, 100, 17), (64, 65, 2)):
        sizes = tuple({B: b, S: s, P: p}.get(n, n) for n in shape)
        x = np.arange(np.prod(sizes), dtype="float32").reshape(sizes)
        np.testing.assert_array_equal(made(x).numpy(), x.transpose(order))
    assert counters.COMPILES.value == before
