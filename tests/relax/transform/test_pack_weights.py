"""Weights as integers in groups: how near they are, which stay floats, how a model with them runs."""

import numpy as np
import pytest

import autosched
from autosched.errors import InvalidValueError
from autosched.relax import BlockBuilder, op
from autosched.relax.expr import Call, Constant, Var
from autosched.relax.op.nbits import dequantize_nbits
from autosched.relax.struct_info import TensorStructInfo
from autosched.relax.transform import PackWeights
from autosched.relax.transform.pack_weights import quantize_nbits
from autosched.target import Target

pytestmark = pytest.mark.host(runs=True)

RNG = np.random.default_rng(0)


def model(weight: np.ndarray, *outer: int) -> autosched.IRModule:
    x = Var("x", TensorStructInfo((*outer, weight.shape[0]), "float32"))
    builder = BlockBuilder()
    with builder.function("main", [x]):
        with builder.dataflow():
            out = builder.emit_output(op.matmul(x, Constant(weight)))
        builder.emit_func_output(out)
    return builder.get()


def names(module: autosched.IRModule) -> list[str]:
    return [b.value.op_name for b in module["main"].bindings() if isinstance(b.value, Call)]


@pytest.mark.parametrize(("bits", "block"), [(4, 32), (8, 64)])
def test_a_value_is_at_most_half_a_step_off(bits: int, block: int) -> None:
    weight = RNG.standard_normal((6, 128)).astype("f4")
    weight[0, :block] = 0
    words, scales = quantize_nbits(weight, bits, block)
    assert words.dtype == "uint32" and words.shape == (6, 128 * bits // 32) and scales.shape == (6, 128 // block)
    back = dequantize_nbits(words, scales, None, bits, block)
    steps = np.abs(np.repeat(scales, block, axis=1))
    assert (np.abs(back - weight) <= steps * 1.001).all() and (back[0, :block] == 0).all()
    largest = np.abs(weight) >= np.repeat(np.abs(weight.reshape(6, -1, block)).max(2), block, axis=1)
    np.testing.assert_allclose(back[largest], weight[largest], rtol=1e-6)


@pytest.mark.parametrize("outer", [(1, 1), (2, 3), (1, 20)])
def test_a_model_runs_on_packed_weights(outer: tuple[int, ...]) -> None:
    weight = RNG.standard_normal((64, 24)).astype("f4")
    packed = PackWeights(4, 32)(model(weight, *outer))
    built = autosched.build(packed, records=[])
    (row,) = autosched.driver.build_report(built).rows
    assert row["template"] in ("matmul_nbits", "matmul_nbits_bytes")
    x = RNG.standard_normal((*outer, 64)).astype("f4")
    real = dequantize_nbits(*quantize_nbits(np.ascontiguousarray(weight.T), 4, 32), None, 4, 32)
    np.testing.assert_allclose(built(x).numpy(), x @ real.T, atol=1e-4)


def test_what_does_not_fit_stays_float() -> None:
    weight = RNG.standard_normal((48, 8)).astype("f4")
    assert names(PackWeights(4, 32)(model(weight, 2))) == ["relax.matmul"]
    assert names(PackWeights(4, 16)(model(weight, 2))) == ["relax.nn.matmul_nbits"]
    weight[0, 0] = np.nan
    assert names(PackWeights(4, 16)(model(weight, 2))) == ["relax.matmul"]


def test_sizes_that_there_are_not_are_refused() -> None:
    with pytest.raises(InvalidValueError, match="PackWeights: 3 bits"):
        PackWeights(3)
    with pytest.raises(InvalidValueError, match="PackWeights: groups of 12"):
        PackWeights(4, 12)
    with pytest.raises(InvalidValueError, match="PackWeights: activations of 7 bits"):
        PackWeights(4, 32, 7)


@pytest.mark.skipif("avx512vnni" not in Target("cpu").features, reason="elsewhere activations stay as they are")
def test_activations_are_rounded_where_that_was_allowed_alone() -> None:
    """Two kernels that differ in nothing else, side by side in one cache."""
    weight, x = (RNG.standard_normal(shape).astype("f4") for shape in ((64, 24), (3, 64)))
    words, scales = quantize_nbits(np.ascontiguousarray(weight.T), 4, 32)
    exact = x @ dequantize_nbits(words, scales, None, 4, 32).T
    off = {}
    for bits in (32, 8):
        built = autosched.build(PackWeights(4, 32, activation_bits=bits)(model(weight, 3)), records=[])
        off[bits] = np.abs(built(x).numpy() - exact).max() / np.abs(exact).max()
    assert off[32] < 1e-5 < 1e-4 < off[8] < 0.02
