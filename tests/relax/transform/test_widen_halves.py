"""Models of float16 on a CPU: computed as float32, with inputs and outputs of float16."""

from __future__ import annotations

import numpy as np
import pytest

import autosched
from autosched.relax import BlockBuilder, op
from autosched.relax.expr import Constant, Tuple, TupleGetItem, Var
from autosched.relax.op.registry import OPERATORS, OpDef, Sample
from autosched.relax.rewrite import bindings_of
from autosched.relax.struct_info import TensorStructInfo, tensor_infos
from autosched.relax.transform import WidenHalves
from autosched.relax.verify import verify
from tests.relax.op_samples import arguments

RNG = np.random.default_rng(0)
W = RNG.standard_normal((600, 8)).astype("float16")


def model() -> autosched.IRModule:
    """A product over 600 terms, parts of its result, one of them asked for as float32."""
    x = Var("x", TensorStructInfo((4, 600), "float16"))
    builder = BlockBuilder()
    with builder.function("main", [x]):
        with builder.dataflow():
            product = builder.emit(op.nn.relu(builder.emit(op.matmul(x, Constant(W)))))
            parts = builder.emit(op.split(product, indices_or_sections=2, axis=1))
            first = builder.emit_output(builder.emit(TupleGetItem(parts, 0)))
            second = builder.emit_output(op.astype(builder.emit(TupleGetItem(parts, 1)), "float32"))
        builder.emit_func_output(Tuple((first, second)))
    return builder.get()


def test_only_inputs_and_outputs_stay_halves() -> None:
    module = WidenHalves()(model())
    verify(module)
    calls = [b.value for b in bindings_of(module["main"].body)]
    halves = [i for v in calls for i in tensor_infos(v.struct_info) if i.dtype == "float16"]
    assert len(halves) == 1
    assert [i.dtype for i in tensor_infos(module["main"].body.body.struct_info)] == ["float16", "float32"]


def test_functions_without_halves_stay_the_same() -> None:
    x = Var("x", TensorStructInfo((4,), "float32"))
    builder = BlockBuilder()
    with builder.function("main", [x]):
        with builder.dataflow():
            out = builder.emit_output(op.exp(x))
        builder.emit_func_output(out)
    before = builder.get()
    assert WidenHalves()(before)["main"] is before["main"]


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_what_is_converted_and_back_is_rounded(dtype: str) -> None:
    """Also for who reads it as the narrow type; what is computed in that stays as exact as it was."""
    x = Var("x", TensorStructInfo((4, 600), "float32"))
    builder = BlockBuilder()
    with builder.function("main", [x]):
        with builder.dataflow():
            narrow = builder.emit(op.astype(x, dtype))
            back = builder.emit(op.astype(narrow, "float32"))
            product = builder.emit_output(op.matmul(back, Constant(W.astype("float32"))))
            double = builder.emit_output(op.astype(builder.emit(op.add(narrow, narrow)), "float32"))
        builder.emit_func_output(Tuple((product, double)))
    given = RNG.standard_normal((4, 600)).astype("float32")
    rounded = given.astype(dtype).astype("float64")
    first, second = (r.numpy() for r in autosched.build(builder.get(), target="cpu")(given))
    np.testing.assert_allclose(first, rounded @ W.astype("float64"), rtol=1e-4, atol=1e-4)
    np.testing.assert_array_equal(second, rounded + rounded)


def test_one_narrow_type_after_the_other() -> None:
    x = Var("x", TensorStructInfo((5,), "float16"))
    builder = BlockBuilder()
    with builder.function("main", [x]):
        with builder.dataflow():
            short = builder.emit(op.astype(x, "bfloat16"))
            back = builder.emit(op.astype(short, "float16"))
            whole = builder.emit_output(op.astype(short, "float32"))
            sums = builder.emit_output(op.astype(builder.emit(op.add(back, back)), "float32"))
        builder.emit_func_output(Tuple((whole, sums)))
    given = np.array([3.99, 126.6, 1e-3, 6.1e-5, -60000], "float16")
    first, second = (r.numpy() for r in autosched.build(builder.get(), target="cpu")(given))
    np.testing.assert_array_equal(first, given.astype("bfloat16").astype("float32"))
    np.testing.assert_array_equal(second, 2 * given.astype("bfloat16").astype("float16").astype("float32"))


def test_sums_of_a_build_lose_nothing() -> None:
    x = RNG.standard_normal((4, 600)).astype("float16")
    first, second = (r.numpy() for r in autosched.build(model())(x))
    exact = np.maximum(x.astype("float64") @ W.astype("float64"), 0)
    assert (first.dtype, second.dtype) == (np.float16, np.float32)
    np.testing.assert_array_equal(first, exact[:, :4].astype("float16"))
    np.testing.assert_allclose(second, exact[:, 4:], rtol=1e-5, atol=1e-4)


NARROW = ("float16", "bfloat16")
NARROW_SAMPLES = [
    pytest.param(definition, sample, id=f"{definition.name}-{number}")
    for definition in OPERATORS.values()
    for number, sample in enumerate(definition.samples)
    if any(isinstance(t, TensorStructInfo) and t.dtype in NARROW for t in sample.types)
]


@pytest.mark.parametrize("definition, sample", NARROW_SAMPLES)
def test_every_operator_of_halves_has_a_wide_form(definition: OpDef, sample: Sample) -> None:
    params = [Var(f"x{n}", a.struct_info) for n, a in enumerate(arguments(definition, sample))]
    builder = BlockBuilder()
    with builder.function("main", params):
        with builder.dataflow():
            out = builder.emit_output(builder.emit(definition.make(params, sample.attrs)))
        builder.emit_func_output(out)
    verify(WidenHalves(NARROW)(builder.get()))


def test_halves_that_are_only_moved_into_outputs_stay_halves() -> None:
    x = Var("x", TensorStructInfo((4, 6), "float16"))
    builder = BlockBuilder()
    with builder.function("main", [x]):
        with builder.dataflow():
            turned = builder.emit(op.permute_dims(x, axes=(1, 0)))
            moved = builder.emit_output(op.concat([turned, turned], axis=0))
            sums = builder.emit(op.permute_dims(x, axes=(1, 0)))
            both = builder.emit_output(op.concat([turned, builder.emit(op.nn.relu(sums))], axis=0))
        builder.emit_func_output(Tuple((moved, both)))
    module = WidenHalves()(builder.get())
    verify(module)
    found = [(b.value.op_name, b.value.struct_info.dtype) for b in bindings_of(module["main"].body)]
    assert ("relax.concat", "float16") in found and ("relax.concat", "float32") in found
    a = RNG.standard_normal((4, 6)).astype("float16")
    results = autosched.build(builder.get(), target="cpu")(a)
    np.testing.assert_array_equal(results[0].numpy(), np.concatenate([a.T, a.T]))
    np.testing.assert_array_equal(results[1].numpy(), np.concatenate([a.T, np.maximum(a.T, 0)]))
