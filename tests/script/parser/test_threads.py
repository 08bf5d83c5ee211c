"""Threads of a GPU as low-level scripts declare them."""

import numpy as np
import pytest

from autosched.errors import ScriptError
from autosched.ir.node import preorder
from autosched.ir.structural import structural_equal
from autosched.script import from_source
from autosched.script import tir as T
from autosched.tir.interpret import interpret
from autosched.tir.stmt import Block, For

HEAD = """
@T.prim_func
def main(A: T.Buffer((8, 32), "float32"), B: T.Buffer((8, 32), "float32")):
"""
BOUND = """
    for bx in T.thread_binding(8, thread="blockIdx.x"):
        for tx in T.thread_binding(32, thread="threadIdx.x"):
            B[bx, tx] = A[bx, tx] + T.float32(1)
"""
WAYS = {
    "statements": """
    bx = T.env_thread("blockIdx.x")
    tx = T.env_thread("threadIdx.x")
    T.launch_thread(bx, 8)
    T.launch_thread(tx, 32)
    B[bx, tx] = A[bx, tx] + T.float32(1)
""",
    "with": """
    bx = T.env_thread("blockIdx.x")
    tx = T.env_thread("threadIdx.x", dtype="int32")
    with T.launch_thread(bx, 8):
        with T.launch_thread(tx, 32):
            B[bx, tx] = A[bx, tx] + T.float32(1)
""",
    "named": """
    with T.launch_thread("blockIdx.x", 8) as bx:
        tx = T.launch_thread("threadIdx.x", 32)
        B[bx, tx] = A[bx, tx] + T.float32(1)
""",
}


@pytest.mark.parametrize("way", WAYS)
def test_launches(way):
    func = from_source(HEAD + WAYS[way])
    assert structural_equal(func, from_source(HEAD + BOUND))
    assert structural_equal(func, from_source(func.script()))
    a = np.random.default_rng(0).standard_normal((8, 32)).astype("f")
    b = np.zeros_like(a)
    interpret(func, [a, b])
    np.testing.assert_array_equal(b, a + 1)


def test_an_axis_that_is_launched_twice():
    text = """
    tx = T.env_thread("threadIdx.x")
    with T.launch_thread(tx, 32):
        B[0, tx] = A[0, tx]
    with T.launch_thread(tx, 16):
        B[1, tx] = A[1, tx]
"""
    loops = [n for n in preorder(from_source(HEAD + text).body) if isinstance(n, For)]
    assert [n.extent.value for n in loops] == [32, 16] and loops[0].loop_var is not loops[1].loop_var


def test_a_number_of_64_bits():
    text = """
    tx = T.env_thread("threadIdx.x", "int64")
    T.launch_thread(tx, 32)
    B[0, tx] = A[0, tx]
"""
    (loop,) = (n for n in preorder(from_source(HEAD + text).body) if isinstance(n, For))
    assert loop.loop_var.dtype == loop.extent.dtype == "int64"


def test_a_block_uses_the_threads_around():
    """One without axes gets one for each loop that it uses, as the printed form shows."""

    @T.prim_func
    def main(A: T.Buffer((8, 32), "float32"), B: T.Buffer((8, 32), "float32")):
        bx = T.env_thread("blockIdx.x")
        tx = T.env_thread("threadIdx.x")
        T.launch_thread(bx, 8)
        T.launch_thread(tx, 32)
        T.attr("default", "async_scope", 1)
        with T.block("outer"):
            S = T.alloc_buffer((32,), "float32", scope="shared")
            T.reads(A[bx, 0:32])
            T.writes(B[bx, 0:32])
            S[tx] = A[bx, tx]
            with T.block("inner"):
                B[bx, tx] = S[tx]

    blocks = {n.name_hint: n for n in preorder(main.body) if isinstance(n, Block)}
    assert [[iv.kind for iv in blocks[name].iter_vars] for name in ("outer", "inner")] == [["opaque"] * 2] * 2
    again = from_source(main.script())
    assert structural_equal(main, again) and again.script() == main.script()
    a = np.random.default_rng(0).standard_normal((8, 32)).astype("f")
    b = np.zeros_like(a)
    interpret(main, [a, b])
    np.testing.assert_array_equal(b, a)


@pytest.mark.parametrize(
    "text, why",
    [
        (
            '    tx = T.env_thread("threadIdx.w")\n    T.launch_thread(tx, 32)\n    B[0, 0] = A[0, 0]',
            "unknown thread axis",
        ),
        ('    tx = T.env_thread("threadIdx.x")\n    B[0, tx] = A[0, tx]', "tx"),
        ("    T.launch_thread(tx, 32)\n    B[0, 0] = A[0, 0]", "tx|string"),
        (
            '    tx = T.env_thread("threadIdx.x")\n    T.attr(tx, "thread_extent", 32)\n    B[0, tx] = A[0, tx]',
            "launch_thread",
        ),
    ],
)
def test_what_is_refused(text, why):
    with pytest.raises(ScriptError, match=why):
        from_source(HEAD + text)
