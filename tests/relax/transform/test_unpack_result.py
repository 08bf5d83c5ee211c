from __future__ import annotations

from autosched import relax
from autosched.relax import op
from autosched.relax.struct_info import TensorStructInfo
from autosched.relax.transform import CanonicalizeBindings, UnpackResult
from autosched.relax.verify import verify


def module(nested: bool):
    builder = relax.BlockBuilder()
    x = relax.Var("x", TensorStructInfo((2, 3), "float32"))
    with builder.function("main"):
        with builder.dataflow():
            a, b = builder.emit(op.exp(x)), builder.emit(op.split(x, indices_or_sections=(1,), axis=1))
            pair = relax.Tuple((a, b))
            result = builder.emit_output(relax.Tuple((builder.emit(pair), x)) if nested else pair)
        builder.emit_func_output(result, [x])
    return builder.get()


def test_a_named_tuple_is_returned_as_its_parts():
    mod = CanonicalizeBindings()(UnpackResult()(module(nested=False)))
    verify(mod)
    first, second = mod["main"].body.body.fields
    assert first.struct_info.static_shape == (2, 3) and len(second.fields) == 2


def test_nested_tuples():
    mod = UnpackResult()(module(nested=True))
    verify(mod)
    inner, last = mod["main"].body.body.fields
    assert last is mod["main"].params[0] and len(inner.fields[1].fields) == 2


def test_other_results_stay():
    mod = UnpackResult()(module(nested=False))
    assert UnpackResult()(mod) is mod
