"""Every operator, every sample: its compute against its NumPy reference, and its type rule against both."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import autosched
from autosched import relax, te, tir
from autosched.relax.op.registry import OPERATORS, OpDef, Sample, python_argument
from autosched.relax.struct_info import tensor_infos
from autosched.relax.te_call import make_te_call
from autosched.tir.evaluate import evaluate
from autosched.tir.interpret import interpret
from tests.relax.op_samples import arguments

CASES = [
    pytest.param(d, s, id=f"{d.name}-{i}") for d in OPERATORS.values() for i, s in enumerate(d.samples)
]  # fmt: skip


def _expected(definition: OpDef, sample: Sample, args: tuple[Any, ...]) -> tuple[np.ndarray, ...]:
    result = definition.run_reference([python_argument(a, lambda c: c.data) for a in args], sample.attrs)
    return result if isinstance(result, tuple) else (result,)


@pytest.mark.parametrize(("definition", "sample"), CASES)
def test_compute_agrees_with_reference(definition: OpDef, sample: Sample) -> None:
    args = arguments(definition, sample)
    call = definition.make(args, sample.attrs)
    want = definition.run_reference([python_argument(a, lambda c: c.data) for a in args], call.attrs)
    expected = want if isinstance(want, tuple) else (want,)
    infos = tensor_infos(call.struct_info)
    assert [(i.static_shape, i.dtype) for i in infos] == [(e.shape, str(e.dtype)) for e in expected]

    assert definition.compute is not None
    made = make_te_call(definition.compute, args, call.attrs)
    inputs = [a.data for a in made.args]
    got = evaluate(made.func, inputs)
    for g, e in zip(got, expected, strict=True):
        np.testing.assert_allclose(g, e, rtol=2e-5, atol=2e-5)

    outputs = [np.zeros(i.static_shape, i.dtype) for i in infos]
    interpret(made.func, [*inputs, *outputs])
    for g, e in zip(outputs, expected, strict=True):
        np.testing.assert_allclose(g, e, rtol=2e-5, atol=2e-5)


def test_every_operator_has_samples() -> None:
    assert not [d.name for d in OPERATORS.values() if not d.samples or d.reference is None or d.compute is None]


def test_attributes_by_position_and_keyword() -> None:
    x = relax.Var("x", relax.TensorStructInfo((1, 3, 8, 8)))
    w = relax.const(np.zeros((4, 3, 3, 3), "float32"))
    a = relax.op.nn.conv2d(x, w, 2, padding=1)
    assert a.attrs["strides"] == (2, 2) and a.attrs["padding"] == (1, 1, 1, 1)
    assert a.struct_info.static_shape == (1, 4, 4, 4)


@pytest.mark.parametrize(
    "make",
    [
        lambda x: relax.op.add(x, relax.const(np.zeros((3, 5), "float32"))),
        lambda x: relax.op.add(x, relax.const(np.zeros((3, 4), "int32"))),
        lambda x: relax.op.matmul(x, x),
        lambda x: relax.op.reshape(x, (5, 5)),
        lambda x: relax.op.concat([x, relax.const(np.zeros((4, 5), "float32"))], axis=0),
        lambda x: relax.op.permute_dims(x, axes=(0, 0)),
        lambda x: relax.op.squeeze(x, axis=0),
        lambda x: relax.op.nn.conv2d(x, x),
        lambda x: relax.op.sum(x, axis=2),
        lambda x: relax.op.nn.relu(x, alpha=1),
        lambda x: relax.op.nn.depth_to_space(relax.op.expand_dims(x, (0, 0)), strides=(0, 1)),
        lambda x: relax.op.nn.depth_to_space(relax.op.expand_dims(x, (0, 0)), strides=(1, 1, 1)),
        lambda x: relax.op.nn.depth_to_space(relax.op.expand_dims(x, (0, 0)), crop=(0, -1, 0, 0)),
        lambda x: relax.op.nn.depth_to_space(relax.op.expand_dims(x, (0, 0)), crop=(2, 0, 2, 0)),
        lambda x: relax.op.masked_fill(x, relax.const(np.zeros((2, 3, 4), "bool"))),
        lambda x: relax.op.masked_fill(x, relax.Var("m", relax.TensorStructInfo((tir.Var("n", "int64"), 4), "bool"))),
    ],
)
def test_what_does_not_fit_is_refused(make: Any) -> None:
    x = relax.Var("x", relax.TensorStructInfo((3, 4), "float32"))
    with pytest.raises((ValueError, TypeError)):
        make(x)


def test_kernels_round_halves_to_even() -> None:
    a = te.placeholder((7,), name="a")
    kernel = autosched.build(te.create_prim_func([a, te.compute((7,), lambda i: te.round(a[i]))]), "llvm")
    given, out = np.array([0.5, 1.5, 2.5, 3.5, -0.5, -1.5, -2.5], "float32"), np.zeros(7, "float32")
    kernel(given, out)
    np.testing.assert_array_equal(out, np.round(given))


def test_what_all_pools_take_does_not_change_a_maximum() -> None:
    x = relax.Var("x", relax.TensorStructInfo((1, 2, 6, 6), "float32"))
    pools = [relax.op.nn.max_pool2d(x, 3, padding=1, count_include_pad=counted) for counted in (False, True)]
    autosched.ir.assert_structural_equal(*pools)
