"""Reductions of rows and columns of open lengths, and what hangs on them, against NumPy in float64."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from autosched import relax
from autosched.codegen import counters
from autosched.runtime.size_expr import size_at
from autosched.tir.expr import Var
from tests.templates.cpu.test_sized import built, softmax

OP, NN = relax.op, relax.op.nn
N, M, P = (Var(name, "int64") for name in "nmp")
# Lengths around a vector, a step of four vectors and a tile of eight columns, of rows that fill no task.
LENGTHS = (1, 2, 7, 15, 16, 17, 31, 33, 48, 63, 64, 65, 100, 127, 128, 129, 200)


def layer_norm(x: np.ndarray) -> np.ndarray:
    return (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + 1e-5)


def emit_layer_norm(e: Any, x: Any) -> Any:
    centred = e(OP.subtract(x, e(OP.mean(x, -1, True))))
    spread = e(OP.mean(e(OP.multiply(centred, centred)), -1, True))
    return e(OP.divide(centred, e(OP.sqrt(e(OP.add(spread, relax.const(np.float32(1e-5))))))))


def log_softmax(x: np.ndarray) -> np.ndarray:
    return np.log(softmax(x))


CASES: dict[str, tuple[Callable[..., Any], Callable[[np.ndarray], np.ndarray]]] = {
    "softmax": (lambda e, x: e(NN.softmax(x, -1)), softmax),
    "log_softmax": (lambda e, x: e(NN.log_softmax(x, -1)), log_softmax),
    "layer norm": (emit_layer_norm, layer_norm),
    "sum": (lambda e, x: e(OP.sum(x, -1)), lambda x: x.sum(-1)),
    "prod": (lambda e, x: e(OP.prod(x, -1)), lambda x: x.prod(-1)),
    "max": (lambda e, x: e(OP.max(x, -1)), lambda x: x.max(-1)),
    "min": (lambda e, x: e(OP.min(x, -1, True)), lambda x: x.min(-1, keepdims=True)),
    "argmax": (lambda e, x: e(OP.argmax(x, -1)), lambda x: x.argmax(-1)),
    "argmin": (lambda e, x: e(OP.argmin(x, -1)), lambda x: x.argmin(-1)),
    "softmax of columns": (lambda e, x: e(NN.softmax(x, 0)), lambda x: softmax(x.T).T),
    "sum of columns": (lambda e, x: e(OP.sum(x, 0)), lambda x: x.sum(0)),
    "argmax of columns": (lambda e, x: e(OP.argmax(x, 0)), lambda x: x.argmax(0)),
    "sum of all": (lambda e, x: e(OP.sum(x)), lambda x: x.sum()),
}


@pytest.mark.parametrize("case", CASES)
def test_open_rows_and_columns(case: str) -> None:
    body, reference = CASES[case]
    made = built([(N, M)], body)
    before, rng = counters.COMPILES.value, np.random.default_rng(0)
    for number, length in enumerate(LENGTHS):
        for shape in ((1 + number % 6, length), (length, 1 + number % 3)):
            x = rng.standard_normal(shape).astype("float32")
            expected = reference(x.astype("float64"))
            np.testing.assert_allclose(made(x).numpy(), expected, rtol=3e-5, atol=1e-4, err_msg=str(shape))
    assert counters.COMPILES.value == before


@pytest.mark.parametrize(
    ("shape", "axes"),
    [((N, M, P), (1, 2)), ((N, 12, M), (2,)), ((N, 3, M), (1, 2)), ((N, M, 64), (0, 1, 2)), ((N, M, 4), (0, 1))],
)
def test_rows_of_several_axes(shape: tuple[Any, ...], axes: tuple[int, ...]) -> None:
    made = built([shape], lambda e, x: e(OP.sum(x, list(axes))))
    for n, m, p in ((1, 1, 1), (3, 17, 5), (2, 64, 3), (5, 100, 33), (9, 1, 130)):
        x = np.random.default_rng(m).standard_normal([{N: n, M: m, P: p}.get(d, d) for d in shape]).astype("float32")
        np.testing.assert_allclose(made(x).numpy(), x.astype("float64").sum(axes), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("case", ["max", "min", "argmax", "argmin", "softmax"])
def test_infinite_rows(case: str) -> None:
    body, reference = CASES[case]
    made = built([(N, M)], body)
    for length in (1, 5, 16, 63, 64, 70):
        x = np.full((3, length), -np.inf if case in ("max", "argmax", "softmax") else np.inf, "float32")
        if case == "softmax":
            x[:, length // 2] = 1
        x[1] = np.arange(length)
        np.testing.assert_allclose(made(x).numpy(), reference(x), rtol=1e-5, atol=1e-6)


def test_whole_vectors_have_no_masks_and_exponentials_are_computed_once() -> None:
    (source,) = (k.source for k in built([(N, M)], lambda e, x: e(NN.softmax(x, -1))).kernels.values())
    lines = source.splitlines()
    steps = [n for n, line in enumerate(lines) if "in vector(64)" in line]
    assert steps and not any(" if " in line for n in steps for line in lines[n : n + 2]), source
    assert source.count("def softmax_p") == 1, "one phase: all of a row while it is in the cache"
    assert sum("exp_below(" in line for line in lines) == 1 + 4, "whole steps, and four vectors of the rest"


@pytest.mark.parametrize(("shape", "axis"), [((N, 3, M), -1), ((N, M, P), -1), ((N, 4, M, P), 1), ((N, M, 6, P), 2)])
def test_rows_and_columns_of_several_open_axes_keep_to_their_task(shape: tuple[Any, ...], axis: int) -> None:
    """What a task keeps of its rows is as large as these: axes that are fused would make it as large as all of them."""
    made = built([shape], lambda e, x: e(NN.softmax(x, axis)))
    (kernel,) = made.kernels.values()
    assert kernel.sized is not None
    at = [dict(zip("nmp", sizes)) for sizes in ((2, 10, 9), (2000, 10, 9))]
    assert len({size_at(kernel.sized.own, {k: x[k] for k in kernel.sized.names}) for x in at}) == 1
    for n, m, p in ((1, 1, 1), (3, 17, 5), (2, 64, 3), (5, 100, 33), (2, 3, 140)):
        x = np.random.default_rng(m).standard_normal([{N: n, M: m, P: p}.get(d, d) for d in shape]).astype("float32")
        want = np.moveaxis(softmax(np.moveaxis(x.astype("float64"), axis, -1)), -1, axis)
        np.testing.assert_allclose(made(x).numpy(), want, rtol=2e-5, atol=1e-6)
