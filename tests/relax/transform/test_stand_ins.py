"""Numbers that stand for symbolic extents: with them symbolic models get the kernels of static ones."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from autosched import relax
from autosched.driver.build.graph import prepare
from autosched.ir import IRModule
from autosched.relax.block_builder import BlockBuilder
from autosched.relax.transform.stand_ins import MOST_SYMBOLS, StandIns
from autosched.target import Target
from autosched.tir.expr import Var, floordiv

OP, NN = relax.op, relax.op.nn


def tensor(*shape: Any) -> relax.Var:
    return relax.Var("x", relax.TensorStructInfo(shape, "float32"))


def test_equal_polynomials_have_equal_numbers_and_others_have_not() -> None:
    b, s = Var("b", "int64"), Var("s", "int64")
    sizes = StandIns()
    assert sizes.shape_of(tensor(b * s, 8)) == sizes.shape_of(tensor(s * b, 8))
    assert sizes.shape_of(tensor((b + 1) * s, 8)) == sizes.shape_of(tensor(b * s + s, 8))
    numbers = {sizes.shape_of(tensor(x))[0] for x in (b, s, b * s, b + s, b - s, b * b, s * s, b * 2, b * s + 1)}
    assert len(numbers) == 9
    (number,) = sizes.shape_of(tensor(b + 7))
    assert str(sizes.extents((number, 3))[0]) == str(b + 7)
    assert sizes.extents((3,)) == (3,)


def test_what_is_no_polynomial_is_a_symbol_of_its_own() -> None:
    s, n = Var("s", "int64"), Var("n", "int64")
    sizes = StandIns()
    half = sizes.shape_of(tensor(floordiv(s, 2) * 4))
    assert half == sizes.shape_of(tensor(4 * floordiv(s, 2)))
    others = (s, s * 2, floordiv(n, 2) * 4, floordiv(s, 3) * 4)
    assert len({half, *(sizes.shape_of(tensor(x)) for x in others)}) == 5


def test_more_symbols_than_there_are_numbers_for() -> None:
    sizes = StandIns()
    many = [sizes.shape_of(tensor(Var(f"v{i}", "int64"))) for i in range(MOST_SYMBOLS + 1)]
    assert all(many[:-1]) and not many[-1]


def weight(*shape: int) -> relax.Constant:
    return relax.const(np.random.default_rng(0).standard_normal(shape).astype("float32"))


def encoder(batch: Any, tokens: Any, masked: bool) -> IRModule:
    """Attention as exporters write it, a layer norm, a product with bias and activation."""
    builder, x = BlockBuilder(), relax.Var("x", relax.TensorStructInfo((batch, tokens, 16), "float32"))
    mask = relax.Var("mask", relax.TensorStructInfo((batch, 1, 1, tokens), "float32"))

    def dense(y: Any, n: int) -> Any:
        return builder.emit(OP.add(builder.emit(OP.matmul(y, weight(16, n))), weight(n)))

    def split(y: Any) -> Any:
        return builder.emit(OP.permute_dims(builder.emit(OP.reshape(y, (batch, tokens, 2, 8))), (0, 2, 1, 3)))

    with builder.function("main", [x, mask]):
        with builder.dataflow():
            q, k, v = (split(dense(x, 16)) for _ in range(3))
            scores = builder.emit(OP.matmul(q, builder.emit(OP.permute_dims(k, (0, 1, 3, 2)))))
            scores = builder.emit(OP.multiply(scores, relax.const(np.float32(0.3))))
            scores = builder.emit(OP.add(scores, mask)) if masked else scores
            mixed = builder.emit(OP.matmul(builder.emit(NN.softmax(scores, -1)), v))
            joined = builder.emit(OP.reshape(builder.emit(OP.permute_dims(mixed, (0, 2, 1, 3))), (batch, tokens, 16)))
            y = builder.emit(OP.add(x, dense(joined, 16)))
            y = builder.emit(NN.layer_norm(y, weight(16), weight(16), axes=[-1]))
            out = builder.emit_output(builder.emit(NN.gelu(dense(y, 24))))
        builder.emit_func_output(out)
    return builder.get()


@pytest.mark.parametrize("masked", [False, True])
def test_a_symbolic_encoder_has_the_kernels_of_the_static_one(masked: bool) -> None:
    def kernels(batch: Any, tokens: Any) -> list[str]:
        prepared = prepare(encoder(batch, tokens, masked), Target("llvm -mcpu=x86-64-v3"), {})
        calls = [b.value for b in prepared["main"].bindings() if getattr(b.value, "op_name", "") == "relax.call_tir"]
        return [call.args[0].name for call in calls]

    static = kernels(3, 5)
    assert any("attention" in name for name in static)
    assert kernels(Var("b", "int64"), Var("s", "int64")) == static
    assert kernels(Var("b", "int64"), 5) == static
