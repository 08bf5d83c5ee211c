"""TVM's passes of the loop level: each does what its name says and keeps the result, or is absent with a hint."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from autosched import tir
from autosched.codegen.lower.absent_passes import ABSENT
from autosched.codegen.lower.tvm_passes import NAMES
from autosched.errors import CodegenError, VerifyError
from autosched.ir import IRModule, preorder, structural_equal
from autosched.script import from_source
from autosched.target import Target
from autosched.tir import (
    Allocate,
    BlockRealize,
    BufferStore,
    For,
    IfThenElse,
    IntImm,
    LetStmt,
    LoopKind,
    PrimFunc,
    Select,
    interpret,
)  # fmt: skip
from tests.tir.programs import dense

HEAD = '@T.prim_func\ndef f(A: T.Buffer((4, 8), "float32"), B: T.Buffer((4, 8), "float32"), n: T.int32):\n'


def func(body: str) -> PrimFunc:
    return from_source(HEAD + body)


def after(name: str, f: PrimFunc, *args: object) -> PrimFunc:
    return getattr(tir.transform, name)(*args)(IRModule({"main": f}))["main"]


def result(f: PrimFunc, n: int = 2) -> np.ndarray:
    a, b = np.arange(32, dtype=np.float32).reshape(4, 8), np.zeros((4, 8), np.float32)
    interpret(f, [a, b, n] if len(f.params) == 3 else [a, b])
    return b


def count(f: PrimFunc, kind: type, holds: Callable[[object], bool] = lambda _: True) -> int:
    return sum(isinstance(x, kind) and holds(x) for x in preorder(f.body))


COPY = "    for i, j in T.grid(4, 8):\n        B[i, j] = A[i, j] * T.float32(2)\n"
CONDITIONS = """
    for i, j in T.grid(4, 8):
        if i < n:
            if i < n:
                B[i, j] = A[i, j]
        if j < 4:
            if j < 6:
                B[i, j] = B[i, j] + T.if_then_else(j < 5, T.float32(1), T.float32(9))
            if j >= 4:
                B[i, j] = T.float32(7)
        else:
            if j > 3:
                B[i, j] = B[i, j] - T.float32(1)
"""
INVARIANT = """
    for i in range(4):
        for j in range(8):
            if n < 3:
                B[i, j] = A[i, j]
            else:
                B[i, j] = T.float32(5)
"""
BLOCKS = """
    C = T.alloc_buffer((4, 8))
    for i, j in T.grid(4, 8):
        with T.block("C"):
            vi, vj = T.axis.remap("SS", [i, j])
            T.reads(A[vi, vj])
            T.writes(C[vi, vj])
            part = T.match_buffer(A[vi, vj], (), offset_factor=1)
            C[vi, vj] = part[()] * T.float32(3)
    for i, j, k in T.grid(4, 8, 2):
        with T.block("B"):
            vi, vj, vk = T.axis.remap("SSR", [i, j, k])
            with T.init():
                B[vi, vj] = T.float32(0)
            B[vi, vj] = B[vi, vj] + C[vi, vj]
"""
UNROLLED = """
    for i in range(4):
        for j in T.unroll(8):
            B[i, j] = A[i, j]
"""
KINDS = """
    for i in T.parallel(4):
        for j in T.vectorized(8):
            B[i, j] = A[i, j]
"""
SHARED = """
    for i, j in T.grid(4, 4):
        B[i, j * 2 + 1] = A[i, j * 2 + 1] + A[i, j * 2]
"""
CASES: dict[str, tuple[PrimFunc, Callable[[PrimFunc, PrimFunc], bool]]] = {
    "Simplify": (func(CONDITIONS), lambda old, new: (count(old, IfThenElse), count(new, IfThenElse)) == (6, 2)),
    "HoistIfThenElse": (func(INVARIANT), lambda old, new: isinstance(new.body, IfThenElse)),
    "HoistExpression": (
        func("    for i in range(4):\n        x: T.int32 = n * 2\n        B[i, 0] = T.Cast('float32', x)\n"),
        lambda old, new: isinstance(old.body, For) and isinstance(new.body, LetStmt),
    ),
    "RemoveNoOp": (
        func(COPY + "    for k in range(0):\n        B[k, 0] = T.float32(1)\n    T.evaluate(0)\n"),
        lambda old, new: count(new, For) == 2,
    ),
    "UnrollLoop": (func(UNROLLED), lambda old, new: count(new, BufferStore) == 8),
    "SkipVectorize": (func(KINDS), lambda old, new: _kinds(new) == {LoopKind.PARALLEL, LoopKind.SERIAL}),
    "ConvertForLoopsToSerial": (func(KINDS), lambda old, new: _kinds(new) == {LoopKind.SERIAL}),
    "LowerInitBlock": (func(BLOCKS), lambda old, new: not any(r.block.init for r in _realizes(new))),
    "LowerMatchBuffer": (func(BLOCKS), lambda old, new: not any(r.block.match_buffers for r in _realizes(new))),
    "LowerOpaqueBlock": (func(BLOCKS), lambda old, new: not _realizes(new) and count(new, Allocate) == 1),
    "LoopPartition": (
        func("    for i, j0, j1 in T.grid(4, 3, 3):\n        if j0 * 3 + j1 < 8:\n"
             "            B[i, j0 * 3 + j1] = A[i, j0 * 3 + j1]\n"),
        lambda old, new: count(old, IfThenElse) == 1 and count(new, IfThenElse) == 0,
    ),
    "RewriteUnsafeSelect": (
        func("    for i in range(4):\n        B[i, 0] = T.Select(i < 3, A[i, 0], T.float32(0))\n"),
        lambda old, new: (count(old, Select), count(new, Select)) == (1, 0),
    ),
    "CommonSubexprElimTIR": (func(SHARED), lambda old, new: count(new, LetStmt) >= 1),
    "ForceNarrowIndexToInt32": (
        func("    for i in T.serial(T.int64(4)):\n        B[i, T.int64(1)] = A[i, T.int64(2)]\n"),
        lambda old, new: not any(getattr(x, "dtype", "") == "int64" for x in preorder(new.body)),
    ),
}  # fmt: skip


def _kinds(f: PrimFunc) -> set[LoopKind]:
    return {x.kind for x in preorder(f.body) if isinstance(x, For)}


def _realizes(f: PrimFunc) -> list[BlockRealize]:
    return [x for x in preorder(f.body) if isinstance(x, BlockRealize)]


@pytest.mark.parametrize("name", CASES)
def test_it_does_what_its_name_says(name: str) -> None:
    old, shows = CASES[name]
    new = after(name, old)
    assert shows(old, new), new.script()
    assert not structural_equal(old, new)
    for n in (0, 2, 5):
        np.testing.assert_array_equal(result(new, n), result(old, n))


def test_blocks_become_opaque_once_their_inits_are_lowered() -> None:
    old = func(BLOCKS)
    with pytest.raises(CodegenError, match="LowerInitBlock"):
        after("ConvertBlocksToOpaque", old)
    new = after("ConvertBlocksToOpaque", after("LowerInitBlock", old))
    assert not any(r.iter_values for r in _realizes(new))
    np.testing.assert_array_equal(result(new), result(old))


def test_allocations_get_one_dimension() -> None:
    old = dense()
    lowered = after("LowerOpaqueBlock", old)
    new = after("FlattenBuffer", lowered)
    ranks = [[x.buffer.ndim for x in preorder(f.body) if isinstance(x, Allocate)] for f in (lowered, new)]
    assert max(ranks[0]) == 2
    assert set(ranks[1]) == {1}


@pytest.mark.parametrize("name", ["FlattenBuffer", "LoopPartition", "CommonSubexprElimTIR"])
def test_what_takes_lowered_functions_says_so(name: str) -> None:
    with pytest.raises(CodegenError, match="without blocks"):
        after(name, func(BLOCKS))


def test_a_condition_on_memory_is_asked_again() -> None:
    old = func("""
    for i in range(4):
        if A[i, 0] < T.float32(9):
            A[i, 0] = T.float32(10)
            if A[i, 0] < T.float32(9):
                B[i, 0] = T.float32(1)
""")
    assert count(after("Simplify", old), IfThenElse) == 2


def test_verify_ssa_verifies() -> None:
    good = func(COPY)
    assert after("VerifySSA", good) is good
    assert isinstance(good.body, For)
    bad = good.with_body(tir.SeqStmt((good.body, good.body)))
    with pytest.raises(VerifyError, match="introduced twice"):
        after("VerifySSA", bad)
    assert tir.analysis.verify_ssa(good)
    assert not tir.analysis.verify_ssa(bad)


def test_verify_memory_verifies() -> None:
    plain, gpu = func(COPY), Target("cuda")
    assert after("VerifyMemory", plain) is plain
    with pytest.raises(VerifyError, match="outside of loops"):
        after("VerifyMemory", plain.with_attr("target", gpu))
    bound = func(COPY).with_attr("target", gpu)
    assert isinstance(bound.body, For)
    outer = bound.body
    bound = bound.with_body(
        For(outer.loop_var, outer.start, outer.extent, LoopKind.THREAD_BINDING, outer.body, "threadIdx.x")
    )
    assert after("VerifyMemory", bound) is bound


def test_calls_that_only_say_something_go() -> None:
    made = tir.call_intrin("bool", "assume", tir.const(1, "bool"))
    f = func(COPY)
    f = f.with_body(tir.SeqStmt((tir.Evaluate(made), f.body)))
    assert isinstance(after("RemoveAssume", f).body, For)
    store = next(x for x in preorder(f.body) if isinstance(x, BufferStore))
    undefined = BufferStore(store.buffer, tir.call_intrin("float32", "undef"), (IntImm(0), IntImm(0)))
    assert isinstance(
        after("RemoveStoreUndef", func(COPY).with_body(tir.SeqStmt((undefined, f.body)))).body, tir.SeqStmt
    )


def test_an_option_chooses() -> None:
    f = func(SHARED)
    assert after("CommonSubexprElimTIR", f, False) is f
    with pytest.raises(RuntimeError, match="identify_equiv_terms"):
        after("CommonSubexprElimTIR", f, True, True)


@pytest.mark.parametrize("name", sorted(ABSENT))
def test_what_is_absent_says_what_to_do(name: str) -> None:
    assert not hasattr(tir.transform, name)
    with pytest.raises(AttributeError, match=f"no pass tir.transform.{name}.*; ..."):
        getattr(tir.transform, name)


def test_no_name_is_both() -> None:
    assert not ABSENT.keys() & set(NAMES)
    assert {n for n in dir(tir.transform) if n in NAMES} == set(NAMES)
