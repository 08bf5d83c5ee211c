"""Gradients against differences: every rule, in a function that ends with a sum."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from autosched import relax
from autosched.ir import IRModule
from autosched.relax import op
from autosched.relax.expr import Function
from autosched.relax.transform import BindParams, FoldConstant, Gradient

SHAPE = relax.ShapeExpr
STEP = 1e-2


def build(make: Callable[..., Any], shapes: list[tuple[int, ...]]) -> IRModule:
    builder = relax.BlockBuilder()
    params = [relax.Var(f"p{i}", relax.TensorStructInfo(s, "float32")) for i, s in enumerate(shapes)]
    with builder.function("main", params):
        with builder.dataflow():
            value = builder.emit(make(*params))
            weights = relax.const(np.cos(np.arange(np.prod(value.struct_info.static_shape))).reshape(
                value.struct_info.static_shape).astype("float32"))  # fmt: skip
            loss = builder.emit_output(op.sum(op.multiply(value, weights)))
        builder.emit_func_output(loss)
    return builder.get()


def run(mod: IRModule, name: str, arrays: list[np.ndarray]) -> Any:
    """What a function gives for constants."""
    function = mod[name]
    assert isinstance(function, Function)
    bound = BindParams("main", {p.name: a for p, a in zip(function.params, arrays, strict=True)})(
        IRModule({"main": function})
    )
    return relax.build(FoldConstant()(bound), "llvm")["main"]()


CASES: dict[str, tuple[Callable[..., Any], list[tuple[int, ...]]]] = {
    "add": (op.add, [(2, 3), (3,)]), "subtract": (op.subtract, [(2, 1), (2, 3)]),
    "multiply": (op.multiply, [(2, 3), (1, 3)]), "divide": (op.divide, [(2, 3), (2, 3)]),
    "power": (op.power, [(2, 3), ()]), "maximum": (lambda x, y: op.maximum(x, op.subtract(y, 2.0)), [(2, 3), (2, 3)]),
    "minimum": (lambda x, y: op.minimum(x, op.subtract(y, 2.0)), [(2, 3), (2, 3)]),
    "exp": (op.exp, [(4,)]), "log": (op.log, [(4,)]), "sqrt": (op.sqrt, [(4,)]), "rsqrt": (op.rsqrt, [(4,)]),
    "tanh": (op.tanh, [(4,)]), "sigmoid": (op.sigmoid, [(4,)]), "gelu": (op.nn.gelu, [(4,)]),
    "silu": (op.nn.silu, [(4,)]), "sin": (op.sin, [(4,)]), "square": (op.square, [(4,)]),
    "relu": (op.nn.relu, [(4,)]), "softmax": (op.nn.softmax, [(2, 4)]), "log_softmax": (op.nn.log_softmax, [(2, 4)]),
    "matmul": (op.matmul, [(2, 3), (3, 4)]), "matmul_batch": (op.matmul, [(2, 2, 3), (3, 4)]),
    "matmul_vector": (op.matmul, [(3,), (3, 4)]), "mean": (lambda x: op.mean(x, axis=1), [(2, 3)]),
    "permute": (lambda x: op.permute_dims(x, (1, 2, 0)), [(2, 3, 4)]),
    "variance": (lambda x: op.variance(x, axis=(0, 2)), [(2, 3, 4)]),
    "reshape": (lambda x: op.reshape(x, (3, 2)), [(2, 3)]),
    "concat": (lambda x, y: op.concat([x, y], axis=1), [(2, 3), (2, 1)]),
    "split": (lambda x: op.multiply(op.split(x, 2, axis=1)[0], op.split(x, 2, axis=1)[1]), [(2, 4)]),
    "conv2d": (lambda x, w: op.nn.conv2d(x, w, strides=2, padding=1), [(1, 2, 5, 6), (3, 2, 3, 3)]),
    "broadcast": (lambda x: op.broadcast_to(x, (3, 2)), [(1, 2)]),
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_rule(name: str) -> None:
    make, shapes = CASES[name]
    mod = Gradient("main")(build(make, shapes))
    rng = np.random.default_rng(0)
    arrays = [rng.uniform(0.5, 1.5, s).astype("float32") for s in shapes]
    _, gradients = run(mod, "main_adjoint", arrays)
    for i, gradient in enumerate(gradients):
        direction = rng.standard_normal(shapes[i]).astype("float32")
        ends = []
        for sign in (1, -1):
            moved = [a + sign * STEP * direction if j == i else a for j, a in enumerate(arrays)]
            ends.append(float(run(mod, "main", [np.asarray(m, "float32") for m in moved]).numpy()))
        slope = (ends[0] - ends[1]) / (2 * STEP)
        np.testing.assert_allclose((gradient.numpy() * direction).sum(), slope, rtol=2e-2, atol=5e-3)


def test_the_adjoint_returns_result_and_gradients() -> None:
    mod = Gradient("main", "p0")(build(op.multiply, [(2,), (2,)]))
    assert sorted(gv.name for gv in mod.get_global_vars()) == ["main", "main_adjoint"]
    fields = mod["main_adjoint"].ret_struct_info.fields
    assert len(fields) == 2 and len(fields[1].fields) == 1


def test_refused() -> None:
    mod = build(op.exp, [(2,)])
    with pytest.raises(ValueError, match="no function 'nobody'"):
        Gradient("nobody")(mod)
    with pytest.raises(ValueError, match="no parameter 'q'"):
        Gradient("main", "q")(mod)
    with pytest.raises(ValueError, match="target_index"):
        Gradient("main", target_index=1)(mod)
    with pytest.raises(ValueError, match="no gradient is known"):
        Gradient("main")(build(op.floor, [(2,)]))
