"""Functions of the loop level: the whole text."""

from __future__ import annotations

import dataclasses

import pytest

from autosched import te
from autosched.script import script
from autosched.tir import IntImm
from tests.script import samples

SCHEDULED_MATMUL = """\
    # with T.block("root"):
    for i_0 in T.parallel(2):
        for i_1_init in range(4):
            for j_init in T.vectorized(9):
                with T.block("C_init"):
                    v_i = T.axis.spatial(7, i_0 * 4 + i_1_init)
                    v_j = T.axis.spatial(9, j_init)
                    T.where(i_0 * 4 + i_1_init < 7)
                    T.reads()
                    T.writes(C[v_i, v_j])
                    C[v_i, v_j] = T.float32(0.0)
        for k, i_1 in T.grid(5, 4):
            for j in T.vectorized(9):
                with T.block("C_update"):
                    v_i = T.axis.spatial(7, i_0 * 4 + i_1)
                    v_j, v_k = T.axis.remap("SR", [j, k])
                    T.where(i_0 * 4 + i_1 < 7)
                    T.reads(C[v_i, v_j], A[v_i, v_k], B[v_k, v_j])
                    T.writes(C[v_i, v_j])
                    C[v_i, v_j] = C[v_i, v_j] + A[v_i, v_k] * B[v_k, v_j]"""

FUSED_MATMUL_ADD = """\
# from autosched.script import tir as T

@T.prim_func(private=True)
def fused_matmul1_add1(lv3: T.Buffer((T.int64(1), T.int64(6)), "float32"), lv4: T.Buffer((T.int64(6), T.int64(3)), \
"float32"), fc2_bias: T.Buffer((T.int64(3),), "float32"), T_add_intermediate: T.Buffer((T.int64(1), T.int64(3)), \
"float32")):
    T.func_attr({"tir.noalias": T.bool(True)})
    # with T.block("root"):
    matmul_intermediate = T.alloc_buffer((T.int64(1), T.int64(3)))
    for i0, i1, k in T.grid(T.int64(1), T.int64(3), T.int64(6)):
        with T.block("matmul"):
            v_i0, v_i1, v_k = T.axis.remap("SSR", [i0, i1, k])
            T.reads(lv3[v_i0, v_k], lv4[v_k, v_i1])
            T.writes(matmul_intermediate[v_i0, v_i1])
            with T.init():
                matmul_intermediate[v_i0, v_i1] = T.float32(0.0)
            matmul_intermediate[v_i0, v_i1] = matmul_intermediate[v_i0, v_i1] + lv3[v_i0, v_k] * lv4[v_k, v_i1]
    for ax0, ax1 in T.grid(T.int64(1), T.int64(3)):
        with T.block("T_add"):
            v_ax0, v_ax1 = T.axis.remap("SS", [ax0, ax1])
            T.reads(matmul_intermediate[v_ax0, v_ax1], fc2_bias[v_ax1])
            T.writes(T_add_intermediate[v_ax0, v_ax1])
            T_add_intermediate[v_ax0, v_ax1] = matmul_intermediate[v_ax0, v_ax1] + fc2_bias[v_ax1]"""

LOWERED = """\
# from autosched.script import tir as T

@T.prim_func
def lowered(A: T.Buffer((16,), "float32"), B: T.Buffer((16,), "float32"), n: T.int32):
    T.func_attr({"sizes": [1, 2.5, "x"], "tir.noalias": T.bool(True)})
    with T.decl_buffer(()) as s:
        s[()] = T.float32(2.0)
        B[n] = s[()]
    with T.LetStmt(n + 1) as n_1:
        T.evaluate(n_1)
    with T.Assert(n > 0, "n must be \\"positive\\""):
        T.evaluate(0)
    for i in T.serial(2, 4, annotations={"pragma_unroll": 4}):
        t = T.decl_buffer((4,), "int32", scope="local")
        for j in T.unroll(4):
            t[j] = T.Cast("int32", A[i * 4 + j])
        if i > 0 and (i < 3 or n >= 2):
            x: T.float32 = T.exp(A[i])
            B[i] = T.Select(x > T.float32(1.0), x, T.float32(-1.5))
        else:
            T.evaluate(T.call_extern("int32", "trace", i))
        while t[0] > 0:
            t[0] = t[0] - 1"""

EVERY_BLOCK_PART = """\
    T.func_attr({"tir.noalias": T.bool(True)})
    with T.block("root"):
        T.reads()
        T.writes()
        T.block_attr({"tuned": 1})
        for io in T.unroll(4):
            for jo in T.thread_binding(4, thread="threadIdx.x"):
                with T.block("tile"):
                    vi = T.axis.spatial((1, 5), io + 1)
                    vj = T.axis.opaque(4, jo)
                    T.reads(A[vi * 4:vi * 4 + 4, vj * 4:vj * 4 + 4])
                    T.writes(B[0:16, vj])
                    T.block_attr({"auto": T.bool(True), "deep": {"e": T.int32(3), "k": [1, 2]}, "name": "a \\"b\\"", \
"none": None})
                    cache = T.alloc_buffer((4,), "float16", scope="shared")
                    s0 = T.int32()
                    tile = T.match_buffer(A[vi * 4:vi * 4 + 4, vj * 4:vj * 4 + 4], (4, 4), strides=(s0, 1), \
offset_factor=4)
                    cache[0] = T.Cast("float16", tile[0, 0])
                    B[vi, vj] = tile[1, 1] + T.Cast("float32", cache[0])"""

SYMBOLIC = """\
def main(var_x_data: T.handle, var_y: T.handle):
    T.func_attr({"tir.noalias": T.bool(True)})
    n = T.int32(is_size_var=True)
    x_data = T.match_buffer(var_x_data, (n, 4))
    y = T.match_buffer(var_y, (n, 4))
    # with T.block("root"):
    for i, j in T.grid(n, 4):"""


def test_a_scheduled_matmul_keeps_tails_and_names() -> None:
    assert script(samples.scheduled_matmul()).endswith(SCHEDULED_MATMUL)


def test_a_fused_function_is_private_with_int64_extents() -> None:
    assert script(samples.fused_matmul_add(), name="fused_matmul1_add1") == FUSED_MATMUL_ADD


def test_every_statement_of_a_lowered_function() -> None:
    assert script(samples.lowered()) == LOWERED


def test_every_part_of_a_block_and_an_explicit_root() -> None:
    assert script(samples.every_block_part()).endswith(EVERY_BLOCK_PART)


def test_symbolic_shapes_are_matched_in_the_body() -> None:
    assert SYMBOLIC in script(samples.symbolic())


def test_the_global_symbol_is_the_name_and_stays_an_attribute_only_where_it_differs() -> None:
    func = samples.symbolic()
    assert "def main(" in script(func)
    assert "global_symbol" not in script(func)
    assert '"global_symbol": "main"' in script(func, name="other")


def test_methods_of_a_function_print_it(capsys: pytest.CaptureFixture[str]) -> None:
    func = samples.fused_matmul_add()
    assert str(func) == func.script() == script(func)
    func.show()
    assert capsys.readouterr().out == script(func) + "\n"


def test_a_root_block_that_a_reader_could_not_infer_is_printed() -> None:
    func = samples.every_block_part()
    plain = dataclasses.replace(
        func.root,
        annotations={},
        body=samples.BufferStore(func.buffers[1], func.buffers[0][0, 0], (IntImm(0), IntImm(0))),
    )  # noqa: E501
    text = script(func.with_body(dataclasses.replace(func.body, block=plain)))
    assert '    with T.block("root"):' in text
    assert "# with" not in text


def test_sugar_can_be_left_out() -> None:
    text = script(samples.fused_matmul_add(), syntax_sugar=False)
    assert "T.grid" not in text
    assert "remap" not in text
    assert "for i0 in range(T.int64(1)):" in text
    assert "v_k = T.axis.reduce(T.int64(6), k)" in text


def test_dtypes_can_be_printed_bare() -> None:
    text = script(samples.fused_matmul_add(), int_dtype="int64", float_dtype="float32")
    assert "T.grid(1, 3, 6)" in text
    assert "= 0.0" in text
    assert 'T.alloc_buffer((1, 3), "float32")' in script(samples.fused_matmul_add(), int_dtype="int64", buffer_dtype="")


def test_prefixes_indent_and_line_numbers() -> None:
    text = script(samples.symbolic(), tir_prefix="tir", indent_spaces=2)
    assert text.startswith("# from autosched.script import tir as tir\n\n@tir.prim_func\n")
    assert "\n  for i, j in tir.grid(n, 4):" in text
    numbered = script(samples.symbolic(), print_line_numbers=True).splitlines()
    assert numbered[0].startswith(" 1 #")
    assert numbered[3].startswith(" 4 def main")


def test_an_unknown_option_is_refused() -> None:
    with pytest.raises(TypeError, match="unknown printing option colour"):
        script(samples.symbolic(), colour=True)
    with pytest.raises(ValueError, match="indent_spaces"):
        script(samples.symbolic(), indent_spaces=0)


def test_loops_whose_extents_depend_on_each_other_are_no_grid() -> None:
    a = samples.buffer("A", 8)
    i, j = samples.Var("i"), samples.Var("j")
    body = samples.loop(i, 4, samples.loop(j, i + 1, samples.BufferStore(a, te.const(0.0), (j,))))
    assert script(body) == "for i in range(4):\n    for j in range(i + 1):\n        A[j] = T.float32(0.0)"


def test_colours_are_escape_codes_around_the_same_text() -> None:
    pytest.importorskip("pygments")
    import re

    func = samples.fused_matmul_add()
    coloured = script(func, style="light")
    assert coloured != script(func)
    assert re.sub(r"\x1b\[[0-9;]*m", "", coloured) == script(func)
    with pytest.raises(ValueError, match="unknown style 'mauve-ish'"):
        script(func, style="mauve-ish")
