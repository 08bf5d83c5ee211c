"""Small graphs that the tests of the passes share, and the check that a pass keeps their results."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from autosched import relax
from autosched.ir import IRModule
from autosched.relax import TensorStructInfo, op
from autosched.relax.expr import Call
from autosched.relax.op.call import is_call_tir, tir_target
from autosched.tir.evaluate import evaluate as evaluate_tir


class Weights:
    """Seeded constants."""

    def __init__(self, seed: int = 0):
        self.rng = np.random.default_rng(seed)

    def __call__(self, *shape: int) -> relax.Constant:
        return relax.const(self.rng.standard_normal(shape).astype(np.float32))

    def positive(self, *shape: int) -> relax.Constant:
        return relax.const(self.rng.random(shape).astype(np.float32) + np.float32(0.5))


def graph(shapes: dict[str, Sequence[int]], build: Callable[..., Any]) -> IRModule:
    """A module whose `main` has float32 parameters of these names and shapes; build(bb, *params) gives the result."""
    params = [relax.Var(name, TensorStructInfo(tuple(shape), "float32")) for name, shape in shapes.items()]
    bb = relax.BlockBuilder()
    with bb.function("main", params):
        with bb.dataflow():
            result = build(bb, *params)
            results = [bb.emit_output(r) for r in (result if isinstance(result, tuple) else (result,))]
        bb.emit_func_output(results if isinstance(result, tuple) else results[0])
    module = bb.get()
    relax.verify(module)
    return module


def small_network() -> IRModule:
    """Convolutions with batch norm, a shortcut, a pool, a dense layer; 20 channels fill no block of 8."""
    w = Weights()

    def build(bb: relax.BlockBuilder, x: relax.Var) -> Any:
        conv = bb.emit(op.nn.conv2d(x, w(20, 3, 3, 3), padding=1))
        norm = bb.emit(op.nn.batch_norm(conv, w(20), w(20), w(20), w.positive(20), training=False))
        first = bb.emit(op.nn.relu(bb.emit(relax.TupleGetItem(norm, 0))))
        second = bb.emit(op.nn.conv2d(first, w(20, 20, 3, 3), padding=1))
        joined = bb.emit(op.nn.relu(op.add(second, first)))
        pooled = bb.emit(op.nn.max_pool2d(joined, pool_size=2, strides=2))
        mean = bb.emit(op.nn.adaptive_avg_pool2d(pooled, output_size=1))
        flat = bb.emit(op.reshape(mean, (1, 20)))
        return op.add(op.matmul(flat, w(20, 10)), w(10))

    return graph({"x": (1, 3, 8, 8)}, build)


def run_tir(func: Any, arrays: Sequence[np.ndarray]) -> Any:
    """A kernel in the reference evaluator, as `relax.evaluate` takes it."""
    results = evaluate_tir(func, list(arrays))
    return results[0] if len(results) == 1 else tuple(results)


def run(module: IRModule, seed: int = 1) -> list[np.ndarray]:
    """The results on seeded inputs, in float64; kernels run in the reference evaluator."""
    rng = np.random.default_rng(seed)
    inputs = [rng.standard_normal(p.struct_info.static_shape).astype(np.float32) for p in module["main"].params]
    result = relax.evaluate(module, inputs, dtype="float64", run_tir=run_tir)
    return list(result) if isinstance(result, tuple) else [result]


def assert_same_results(before: IRModule, after: IRModule, tolerance: float = 1e-5) -> None:
    """Both are well-formed and compute the same, but for float32 rounding of folded constants."""
    relax.verify(after)
    for a, b in zip(run(before), run(after), strict=True):
        assert a.shape == b.shape
        np.testing.assert_allclose(b, a, rtol=tolerance, atol=tolerance * max(1.0, float(np.abs(a).max())))


def calls(module: IRModule) -> list[str]:
    """What `main` calls, in order: operators without "relax.", kernels and functions by their name."""
    names = []
    for b in module["main"].bindings():
        if is_call_tir(b.value):
            names.append(tir_target(b.value).name)
        elif isinstance(b.value, Call):
            names.append(b.value.op_name.removeprefix("relax.") or b.value.op.name)
    return names
