"""Decorated Python functions and classes."""

from __future__ import annotations

import pytest

from autosched import relax, tir
from autosched.errors import ScriptError
from autosched.ir import IRModule, structural_equal
from autosched.script import from_source
from autosched.script import ir as I  # noqa: E741, N812
from autosched.script import relax as R  # noqa: N812
from autosched.script import tir as T  # noqa: N812
from autosched.script import tirx as X  # noqa: N812
from autosched.tir import PrimFunc

N = 16


def make_add(m: int) -> PrimFunc:
    @T.prim_func
    def add(A: T.Buffer((N, m), "float32"), B: T.Buffer((N, m), "float32")):  # type: ignore[valid-type]
        for i, j in T.grid(N, m):
            with T.block("B"):
                v_i, v_j = T.axis.remap("SS", [i, j])
                B[v_i, v_j] = A[v_i, v_j] + 1.0

    return add


def test_a_function_takes_sizes_from_its_surroundings() -> None:
    add = make_add(3)
    assert isinstance(add, PrimFunc)
    assert add.attrs["global_symbol"] == "add"
    assert [b.const_shape() for b in add.buffers] == [(16, 3), (16, 3)]
    assert structural_equal(add, make_add(3))
    assert not structural_equal(add, make_add(4))
    (block,) = (b for b in tir.functor.blocks(add) if b.name == "B")
    assert block.span is not None
    assert block.span.file == __file__


def test_a_class_becomes_a_module() -> None:
    @I.ir_module
    class Module:
        I.module_attrs({"version": 1})

        @X.prim_func(private=True, s_tir=True)
        def double(A: X.Buffer((4,), "float32"), B: X.Buffer((4,), "float32")):  # type: ignore[valid-type]
            for i in range(4):
                with X.sblock("B"):
                    v_i = X.axis.spatial(4, i)
                    B[v_i] = A[v_i] * 2.0

        @R.function
        def main(x: R.Tensor((4,), "float32")):  # type: ignore[valid-type]
            cls = Module
            with R.dataflow():
                y = R.call_tir(cls.double, (x,), out_sinfo=R.Tensor((4,), "float32"))
                z = R.nn.relu(y * 2.0) + x
                R.output(z)
            return z

    assert isinstance(Module, IRModule)
    assert [gv.name for gv in Module.get_global_vars()] == ["double", "main"]
    assert "global_symbol" not in Module["double"].attrs
    assert 'z: R.Tensor((4,), dtype="float32") = R.add(lv1, x)' in Module.script()
    assert structural_equal(Module, from_source(Module.script()))


def test_an_error_points_into_the_file() -> None:
    with pytest.raises(ScriptError, match="undefined name 'missing'") as caught:

        @T.prim_func
        def wrong(A: T.Buffer((4,), "float32")):  # type: ignore[valid-type]
            A[0] = missing  # noqa: F821

    assert f"--> {__file__}:" in str(caught.value)


def test_a_function_without_source_is_refused() -> None:
    scope = {"T": T}
    with pytest.raises(ScriptError, match="use from_source"):
        exec("@T.prim_func\ndef f(A: T.Buffer((4,), 'float32')):\n    A[0] = 1.0", scope)


def test_names_of_the_dialects_mean_nothing_to_python() -> None:
    assert repr(T.Buffer((4,), "float32")) == "T.Buffer(…)"
    assert repr(R.emit(1)["x"] + 3) == "R.emit(…)[…] …"
    with pytest.raises(AttributeError):
        T.__wrapped__  # noqa: B018


def test_operators_make_calls_outside_of_scripts() -> None:
    x = relax.Var("x", R.Tensor((2, 3), "float32"))
    assert R.nn.relu(R.add(x, x)).op.name == "relax.nn.relu"
    assert R.shape([2, n := tir.Var("n", "int64")]).values[1] is n


def test_other_prefixes() -> None:
    text = "from autosched.script import tir as tt\n@tt.prim_func\ndef f(n: tt.int32):\n    tt.evaluate(n)"
    assert "T.evaluate(n)" in str(from_source(text))
    with pytest.raises(ScriptError, match="unknown dialect"):
        from_source("from autosched.script import cuda as C")


def test_extra_names() -> None:
    text = "@T.prim_func\ndef f(A: T.Buffer((m,), kind)):\n    A[m - 1] = 0.0"
    func = from_source(text, extra_vars={"m": 5, "kind": "float32"})
    assert func.buffers[0].const_shape() == (5,)
    with pytest.raises(ScriptError, match="undefined name 'kind'"):
        from_source(text)
