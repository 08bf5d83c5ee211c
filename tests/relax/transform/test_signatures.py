"""Parameters and results of private functions that go or are taken apart, and calls of what a text defines later."""

from __future__ import annotations

import numpy as np
import pytest

import autosched
from autosched import relax
from autosched.ir import IRModule
from autosched.relax import TensorStructInfo, transform
from autosched.script import from_source

X, Y = np.arange(4, dtype=np.float32), np.linspace(1, 2, 4, dtype=np.float32)
VECTOR = 'R.Tensor((4,), "float32")'


def module(main: str, inner: str, params: str, result: str) -> IRModule:
    """A module whose `main(x, y)` calls `cls.inner`."""
    return from_source(f"""
@I.ir_module
class Module:
    @R.function
    def main(x: {VECTOR}, y: {VECTOR}):
        cls = Module
{_indented(main)}
    @R.function(private=True)
    def inner({params}) -> {result}:
{_indented(inner)}
""")


def _indented(text: str) -> str:
    return "\n".join(f"        {line}" for line in text.strip().split("\n"))


def run(mod: IRModule) -> list[np.ndarray]:
    built = relax.VirtualMachine(relax.build(mod, "llvm"), autosched.cpu())
    found = built["main"](autosched.nd.array(X), autosched.nd.array(Y))
    return [x.numpy() for x in (found if isinstance(found, list | tuple) else [found])]


def same_results(a: IRModule, b: IRModule) -> None:
    for x, y in zip(run(a), run(b), strict=True):
        np.testing.assert_array_equal(x, y)


def test_unused_parameters_go_with_what_only_they_needed() -> None:
    mod = module(
        "z = R.exp(y)\nr = cls.inner(x, z)\nreturn r", "r = R.add(a, a)\nreturn r", f"a: {VECTOR}, b: {VECTOR}", VECTOR
    )
    made = transform.RemoveUnusedParameters()(mod)
    assert [p.name for p in made["inner"].params] == ["a"]
    assert [b.var.name for b in made["main"].bindings()] == ["r"]
    same_results(mod, made)
    assert transform.RemoveUnusedParameters()(made) is made


def test_public_functions_and_those_that_are_passed_on_keep_their_parameters() -> None:
    mod = module("return x", "return a", f"a: {VECTOR}, b: {VECTOR}", VECTOR)
    public = mod.with_functions({gv: f.with_attr("global_symbol", gv.name) for gv, f in mod.functions.items()})
    assert transform.RemoveUnusedParameters()(public) is public


def test_a_parameter_that_alone_gives_a_size_stays() -> None:
    mod = from_source("""
@I.ir_module
class Module:
    @R.function
    def main(x: R.Tensor(("n",), "float32"), y: R.Tensor(("n",), "float32")) -> R.Tensor(("n",), "float32"):
        cls = Module
        r = cls.inner(x, y)
        return r
    @R.function(private=True)
    def inner(a: R.Tensor(("m",), "float32"), b: R.Tensor(("m",), "float32")) -> R.Tensor(("m",), "float32"):
        m = T.int64()
        r = R.zeros(R.shape([m]), "float32")
        return r
""")
    made = transform.RemoveUnusedParameters()(mod)
    assert [p.name for p in made["inner"].params] == ["a"]
    (binding,) = made["main"].bindings()
    assert binding.var.struct_info.shape.values[0] is made["main"].params[0].struct_info.shape.values[0]


@pytest.mark.parametrize("nested", [False, True])
def test_expand_tuple_arguments(nested: bool) -> None:
    inside = f"R.Tuple({VECTOR}, {VECTOR})"
    tuple_, argument, read = (
        (f"R.Tuple({VECTOR}, {inside})", "(x, (y, x))", "u = t[1]\nr = R.subtract(u[0], t[0])")
        if nested
        else (inside, "(x, y)", "r = R.subtract(t[1], t[0])")
    )
    mod = module(f"r = cls.inner({argument})\nreturn r", f"{read}\nreturn r", f"t: {tuple_}", VECTOR)
    made = transform.ExpandTupleArguments()(mod)
    assert len(made["inner"].params) == (3 if nested else 2)
    same_results(mod, made)


THREE = f"R.Tuple({VECTOR}, {VECTOR}, {VECTOR})"
INNER = "p = R.add(a, a)\nq = R.exp(a)\ns = R.tanh(a)\nreturn (p, q, s)"


@pytest.mark.parametrize(
    ("main", "left"),
    [
        ("t = cls.inner(x)\nreturn t[1]", 1),
        ("t = cls.inner(x)\nreturn (t[0], t[2])", 2),
        ("t = cls.inner(x)\nu = cls.inner(y)\nr = R.add(t[0], u[2])\nreturn r", 2),
        ("t = cls.inner(x)\na = t[2]\nr = R.add(a, a)\nreturn r", 1),
        ("t = cls.inner(x)\nreturn t", 3),
        ("t = cls.inner(x)\nu = (t, t[0])\nreturn u[1]", 3),
    ],
)
def test_remove_unused_outputs(main: str, left: int) -> None:
    mod = module(main, INNER, f"a: {VECTOR}", THREE)
    made = transform.RemoveUnusedOutputs()(mod)
    info = made["inner"].ret_struct_info
    assert (1 if isinstance(info, TensorStructInfo) else len(info.fields)) == left
    assert len(list(made["inner"].bindings())) == left
    same_results(mod, made)


def test_update_param_struct_info() -> None:
    mod = IRModule(
        {"main": from_source(f"@R.function\ndef main(x: {VECTOR}, y: {VECTOR}):\n    z = R.add(x, y)\n    return z\n")}
    )
    made = transform.UpdateParamStructInfo(lambda v: TensorStructInfo((9,), "float32"))(mod)
    assert [p.struct_info.static_shape for p in made["main"].params] == [(9,), (9,)]
    assert made["main"].ret_struct_info.static_shape == (9,)
    assert transform.UpdateParamStructInfo(lambda v: None)(mod) is mod


def test_a_call_of_what_the_text_defines_later_has_its_type() -> None:
    mod = module(
        "t = cls.inner(x)\nr = R.add(t[0], t[1])\nreturn r",
        "return (a, a)",
        f"a: {VECTOR}",
        f"R.Tuple({VECTOR}, {VECTOR})",
    )
    np.testing.assert_array_equal(run(mod)[0], X + X)
