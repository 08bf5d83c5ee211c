"""TVM's passes of the graph level: what they change, and what those that are absent say."""

from __future__ import annotations

import numpy as np
import pytest

import autosched
from autosched import relax
from autosched.ir import IRModule
from autosched.relax import transform
from autosched.relax.dpl import is_op, wildcard
from autosched.relax.transform.absent_passes import ABSENT
from autosched.relax.transform.inline_calls import inline_calls
from autosched.script import from_source

X = np.arange(-3, 3, dtype=np.float32).reshape(2, 3)


def module(body: str, params: str = 'x: R.Tensor((2, 3), "float32")') -> IRModule:
    lines = "\n".join(f"    {line}" for line in body.strip("\n").split("\n"))
    return IRModule({"main": from_source(f"@R.function\ndef main({params}):\n{lines}\n")})


def run(mod: IRModule, *arrays: np.ndarray) -> np.ndarray:
    built = relax.VirtualMachine(relax.build(mod, "llvm"), autosched.cpu())
    result: np.ndarray = built["main"](*(autosched.nd.array(a) for a in arrays)).numpy()
    return result


def names(mod: IRModule) -> list[str]:
    return [b.var.name for b in mod["main"].bindings()]


CHAINS = """
with R.dataflow():
    a = R.exp(x)
    b = R.tanh(x)
    a1 = R.exp(a)
    b1 = R.tanh(b)
    c = R.add(a1, b1)
    R.output(c)
return c
"""


@pytest.mark.parametrize(
    ("order", "direction", "expected"),
    [
        ("depth-first", "from-inputs", ["a", "a1", "b", "b1", "c"]),
        ("breadth-first", "from-inputs", ["a", "b", "a1", "b1", "c"]),
        ("depth-first", "from-outputs", ["b", "b1", "a", "a1", "c"]),
        ("breadth-first", "from-outputs", ["b", "a", "b1", "a1", "c"]),
    ],
)
def test_topological_sort(order: str, direction: str, expected: list[str]) -> None:
    mod = module(CHAINS)
    made = transform.TopologicalSort(order, direction)(mod)
    assert sorted(names(made)) == sorted(names(mod))
    assert names(made) in (expected, _mirrored(expected))
    seen: set[str] = set()
    for b in made["main"].bindings():
        assert {v.name for v in relax.analysis.free_vars(b.value)} <= seen | {"x"}
        seen.add(b.var.name)


def _mirrored(order: list[str]) -> list[str]:
    return [n.translate(str.maketrans("ab", "ba")) for n in order]


def test_topological_sort_refuses_another_order() -> None:
    with pytest.raises(ValueError, match="order 'x'"):
        transform.TopologicalSort("x")


def test_purity_is_checked_no_more() -> None:
    mod = module('y = R.call_pure_packed("f.twice", x, sinfo_args=R.Tensor((2, 3), "float32"))\nreturn y')
    made = transform.RemovePurityChecking()(mod)
    assert made["main"].attrs["relax.force_pure"] and "call_pure_packed" not in made.script()
    autosched.register_func("f.twice", lambda x: autosched.nd.array(x.numpy() * 2), override=True)
    np.testing.assert_array_equal(run(made, X), X * 2)


def test_changes_of_layout_that_undo_each_other_go() -> None:
    mod = module("""
a = R.layout_transform(x, src_layout="NCHW", dst_layout="NCHW4c")
b = R.layout_transform(a, src_layout="NCHW4c", dst_layout="NCHW")
c = R.add(b, b)
return c
""", 'x: R.Tensor((1, 8, 2, 2), "float32")')  # fmt: skip
    made = transform.OptimizeLayoutTransform()(mod)
    assert names(made) == ["c"]
    data = np.random.default_rng(0).random((1, 8, 2, 2), dtype=np.float32)
    np.testing.assert_array_equal(run(made, data), data + data)


def test_those_that_pad_stay() -> None:
    mod = module("""
a = R.layout_transform(x, src_layout="NCHW", dst_layout="NCHW4c")
b = R.layout_transform(a, src_layout="NCHW4c", dst_layout="NCHW")
return b
""", 'x: R.Tensor((1, 6, 2, 2), "float32")')  # fmt: skip
    assert transform.OptimizeLayoutTransform()(mod) is mod


def marked() -> IRModule:
    form = is_op("relax.nn.relu")(is_op("relax.exp")(wildcard()))
    mod = module("a = R.exp(x)\nb = R.nn.relu(a)\nc = R.add(b, b)\nreturn c")
    mod = transform.ConvertToDataflow()(mod)
    return transform.FuseOpsByPattern([("shop.exp_relu", form)], annotate_codegen=True)(mod)


def test_run_codegen_calls_what_is_registered() -> None:
    asked = []

    def generate(functions, options, constants):  # type: ignore[no-untyped-def]
        asked.append((len(functions), options, constants))

        def kernel(x, out):  # type: ignore[no-untyped-def]
            out.copyfrom(np.maximum(np.exp(x.numpy()), 0) + 1)

        return [{f.attrs["global_symbol"]: kernel for f in functions}]

    autosched.register_func("relax.ext.shop", generate, override=True)
    made = transform.RunCodegen({"shop": {"speed": 3}})(marked())
    assert asked == [(1, {"speed": 3}, {})]
    assert "call_dps_packed" in made.script() and "Codegen" not in made.script()
    np.testing.assert_allclose(run(made, X), 2 * (np.exp(X) + 1), rtol=1e-6)


def test_run_codegen_says_what_is_missing() -> None:
    autosched.register_func("relax.ext.shop", lambda functions, options, constants: [{}], override=True)
    with pytest.raises(ValueError, match="has made no function"):
        transform.RunCodegen()(marked())


def test_functions_are_put_in_the_place_of_their_calls() -> None:
    mod = module("a = R.exp(x)\nb = R.nn.relu(a)\nreturn b")
    fused = autosched.relay.transform.FuseOps()(mod)
    assert any(f.attrs.get("Primitive") for _, f in fused.functions_items() if isinstance(f, relax.Function))
    back = inline_calls(fused, lambda f: bool(f.attrs.get("Primitive")))
    assert not any(f.attrs.get("Primitive") for _, f in back.functions_items() if isinstance(f, relax.Function))
    np.testing.assert_allclose(run(back, X), np.maximum(np.exp(X), 0), rtol=1e-6)


def test_the_default_build_s_pipeline_leaves_its_marks() -> None:
    made = relax.get_pipeline("default_build")(module("y = R.exp(x)\nreturn y"))
    assert made["main"].attrs["relax.force_pure"]
    np.testing.assert_allclose(run(made, X), np.exp(X), rtol=1e-6)


def test_a_nested_call_that_is_used_twice_is_bound_once() -> None:
    x = relax.Var("x", relax.TensorStructInfo((2, 3), "float32"))
    y: relax.Expr = x
    for _ in range(40):
        y = relax.op.multiply(y, relax.op.add(y, y))
    made = transform.Normalize()(IRModule({"main": relax.Function([x], relax.SeqExpr([], y))}))
    assert len(names(made)) == 80
    relax.verify(made)


def test_layouts_by_call() -> None:
    mod = module('y = R.nn.conv2d(x, w)\nz = R.nn.conv2d(y, w)\nreturn z',
                 'x: R.Tensor((1, 4, 6, 6), "float32"), w: R.Tensor((4, 4, 1, 1), "float32")')  # fmt: skip
    first = next(iter(mod["main"].bindings())).value

    def choose(call):  # type: ignore[no-untyped-def]
        return {"relax.nn.conv2d": ["NCHW", "OIHW"]} if call.args[0] is first.args[0] else {}

    made = transform.ConvertLayout({"relax.nn.conv2d": ["NHWC", "OHWI"]}, choose)(mod)
    layouts = [b.value.attrs["data_layout"] for b in made["main"].bindings() if b.value.op_name == "relax.nn.conv2d"]
    assert layouts == ["NCHW", "NHWC"]


@pytest.mark.parametrize("name", sorted(ABSENT))
def test_what_is_absent_says_what_to_do(name: str) -> None:
    assert not hasattr(transform, name)
    with pytest.raises(AttributeError, match=f"no pass relax.transform.{name} .*; ..."):
        getattr(transform, name)
