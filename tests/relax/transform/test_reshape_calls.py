"""Reshapes, transposed products and global symbols: the passes keep results and change what they say."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from autosched import cpu, relax, te
from autosched.ir import IRModule, assert_structural_equal
from autosched.ir.transform import Pass
from autosched.relax import transform as RT
from autosched.relax.analysis import has_reshape_pattern
from autosched.script import from_source
from autosched.tir import PrimFunc
from autosched.tir.functor import free_vars

TEXT = """
@I.ir_module
class Module:
    @R.function
    def main(x: R.Tensor((2, 4), "float32"), y: R.Tensor((2, 4), "float32")):
        with R.dataflow():
            a = R.reshape(R.exp(x), (8,))
            b = R.reshape(a, (2, 4))
            c = R.add(b, y)
            f = R.tanh(R.matmul(x, R.permute_dims(c)))
            R.output(f)
        return f
"""
X, Y = (np.random.default_rng(0).normal(size=(2, 4)).astype("float32") for _ in range(2))


def module() -> IRModule:
    read = from_source(TEXT)
    assert isinstance(read, IRModule)
    return read


def run(mod: IRModule, *args: np.ndarray) -> np.ndarray:
    return relax.VirtualMachine(relax.build(mod, "llvm"), cpu())["main"](*args).numpy()  # type: ignore[no-any-return]


def result(mod: IRModule) -> np.ndarray:
    return run(mod, X, Y)


@pytest.mark.parametrize(
    ("passes", "present", "absent"),
    [
        ([RT.LegalizeOps(), RT.RewriteDataflowReshape()], "R.reshape(a", "call_tir(cls.reshape"),
        ([RT.RemoveRedundantReshape()], "R.add(lv, y)", "R.reshape"),
        ([RT.FuseTransposeMatmul()], "cls.NT_matmul, (x, c)", "R.permute_dims"),
        ([RT.FastMathTransform()], "cls.fast_exp", "R.tanh"),
    ],
)
def test_it_changes_calls_and_keeps_the_result(passes: list[Pass], present: str, absent: str) -> None:
    changed = RT.Sequential(passes)(module())
    assert present in changed.script() and absent not in changed.script()
    np.testing.assert_allclose(result(changed), result(module()), rtol=1e-5)
    assert_structural_equal(from_source(changed.script()), changed)


def test_transposed_products_are_broadcast() -> None:
    text = TEXT.replace("(2, 4), ", "(2, 3, 4), ").replace("(8,)", "(24,)").replace("(2, 4))", "(2, 3, 4))")
    mod = from_source(text.replace("R.permute_dims(c)", "R.permute_dims(c, [0, 2, 1])"))
    assert isinstance(mod, IRModule)
    changed = RT.FuseTransposeMatmul()(mod)
    assert "NT_matmul" in changed.script()
    x, y = (np.random.default_rng(1).normal(size=(2, 3, 4)).astype("float32") for _ in range(2))
    np.testing.assert_allclose(run(changed, x, y), run(mod, x, y), rtol=1e-5)


def copied(shape: tuple[int, ...], index: Callable[..., tuple[Any, ...]]) -> bool:
    A = te.placeholder((2, 4), name="A")
    return has_reshape_pattern(te.create_prim_func([A, te.compute(shape, lambda *p: A[index(*p)], name="B")]))


def test_reshape_pattern() -> None:
    assert copied((8,), lambda i: (i // 4, i % 4)) and copied((2, 2, 2), lambda i, j, k: (i, j * 2 + k))
    assert not copied((4, 2), lambda i, j: (j, i)) and not copied((4,), lambda i: (0, i))


def test_functions_are_called_by_their_symbols() -> None:
    mod = module()
    renamed = IRModule({"other": mod["main"], "main": mod["main"].without_attr("global_symbol")})
    assert sorted(gv.name for gv in RT.NormalizeGlobalVar()(renamed).get_global_vars()) == ["main", "main1"]
    assert RT.NormalizeGlobalVar()(mod) is mod


def test_a_function_that_says_no_result_has_one_for_its_callers() -> None:
    text = """
@I.ir_module
class Module:
    @R.function(private=True)
    def pair(a: R.Tensor((2,), "float32")):
        return (a, a)
    @R.function
    def main(x: R.Tensor((2,), "float32")):
        z = Module.pair(x)
        return z[1]
"""
    read = from_source(text)
    assert isinstance(read, IRModule) and read["main"].ret_struct_info.ndim == 1


def test_plain_blocks_become_dataflow_blocks_with_all_their_bindings() -> None:
    lines = ["a = R.add(x, y)", "d = a", "t = (d, x)", "f = t[0]", "c = R.multiply(f, t[1])"]
    head = TEXT.split("        with")[0]
    plain = from_source(head + "".join(f"        {line}\n" for line in lines) + "        return c\n")
    inside = "".join(f"            {line}\n" for line in [*lines, "R.output(c)"])
    wanted = from_source(f"{head}        with R.dataflow():\n{inside}        return c\n")
    assert_structural_equal(RT.ConvertToDataflow()(plain), wanted)


def test_canonical_bindings_keep_tuples() -> None:
    head = TEXT.split("        with")[0]
    before = from_source(f"{head}        t = (x, y)\n        a = t[0]\n        b = R.add(a, t[1])\n        return b\n")
    after = from_source(f"{head}        t = (x, y)\n        b = R.add(x, y)\n        return b\n")
    assert_structural_equal(RT.CanonicalizeBindings()(before), after)


def test_a_parameter_gives_the_size_that_shapes_before_it_name() -> None:
    text = """
@T.prim_func(private=True)
def double(a: T.Buffer(("n * T.int64(4)",), "float32"), n: T.int64, b: T.Buffer((n * T.int64(4),), "float32")):
    for i in range(n * T.int64(4)):
        with T.block("b"):
            v = T.axis.spatial(n * T.int64(4), i)
            b[v] = a[v] * T.float32(2)
"""
    read = from_source(text)
    assert isinstance(read, PrimFunc) and read.params[1] in set(free_vars(read.buffers[0].shape[0]))
    assert_structural_equal(from_source(read.script()), read)


def test_sizes_in_quotes_are_declared_behind_them() -> None:
    text = """
@T.prim_func
def copied(a: T.Buffer(("n", "m"), "float32"), b: T.Buffer((n, m), "float32")):
    n, m = T.int32(), T.int32()
    for i, j in T.grid(n, m):
        with T.block("b"):
            v, w = T.axis.remap("SS", [i, j])
            b[v, w] = a[v, w]
"""
    read = from_source(text)
    assert isinstance(read, PrimFunc) and [d.dtype for d in read.buffers[0].shape] == ["int32", "int32"]
    assert_structural_equal(from_source(read.script()), read)
    with pytest.raises(ValueError, match="no expression"):
        from_source(text.replace('"n"', '"n +"'))
