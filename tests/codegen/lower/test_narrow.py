"""Loop variables and indices of 64 bits as ones of 32."""

import dataclasses

from autosched.codegen.lower.narrow import MOST_ELEMENTS, largest_sizes, narrow_indices
from autosched.codegen.lower.software_pipeline import STAGE
from autosched.ir.node import FrozenDict, preorder
from autosched.tir import BufferLoad, BufferStore, Cast, For, IfThenElse, IntImm, LoopKind, Var, decl_buffer
from tests.codegen.programs import buffer

A, B = buffer("A", 64), buffer("B", 64)


def loop(body, extent=64):
    var = Var("i", "int64")
    return For(
        var,
        IntImm(0, "int64"),
        IntImm(extent, "int64") if isinstance(extent, int) else extent,
        LoopKind.SERIAL,
        body(var),
    )


def narrowed(body, buffers=(A, B), extent=64):
    return narrow_indices(loop(body, extent), buffers)[0]


def test_loops_and_indices():
    new = narrowed(lambda i: BufferStore(B, A[i * IntImm(1, "int64") // 2], (i,)))
    assert isinstance(new, For)
    assert new.loop_var.dtype == new.extent.dtype == "int32"
    indices = [i for n in preorder(new) if isinstance(n, BufferLoad | BufferStore) for i in n.indices]
    assert {i.dtype for i in indices} == {"int32"}


def test_comparisons():
    new = narrowed(lambda i: IfThenElse(i < IntImm(60, "int64"), BufferStore(B, A[i], (i,))))
    condition = next(n.condition for n in preorder(new) if isinstance(n, IfThenElse))
    assert condition.a.dtype == condition.b.dtype == "int32"


def test_values_keep_their_type():
    out = buffer("out", 64, dtype="int64")
    new = narrowed(lambda i: BufferStore(out, i * IntImm(3_000_000, "int64"), (i,)), (out,))
    store = next(n for n in preorder(new) if isinstance(n, BufferStore))
    assert store.value.dtype == "int64"
    assert any(isinstance(n, Cast) and n.dtype == "int64" for n in preorder(store.value))


def test_positions_that_are_loaded_keep_their_type():
    where = buffer("where", 64, dtype="int64")
    new = narrowed(lambda i: BufferStore(B, A[where[i]], (i,)), (A, B, where))
    load = next(n for n in preorder(new) if isinstance(n, BufferLoad) and n.buffer.name == "A")
    assert load.indices[0].dtype == "int64"


def test_large_buffers_keep_wide_indices():
    large = buffer("large", 1 << 31)
    new = narrowed(lambda i: BufferStore(B, large[i * IntImm(1 << 25, "int64")], (i,)), (B, large))
    assert new.loop_var.dtype == "int64"


def test_symbols_of_shapes():
    n, small = Var("n", "int64"), Var("n", "int32")
    given = decl_buffer((n, 8), name="G")
    body = loop(lambda i: BufferStore(given, given[i, 0], (n - 1 - i, 3)), n)
    new, buffers = narrow_indices(body, (given,), {n: small})
    assert new.loop_var.dtype == "int32" and new.extent is small
    assert buffers[given].shape[0] is small
    assert not any(x is n for x in preorder(new))


def test_the_most_that_symbols_can_be():
    n, m = Var("n", "int64"), Var("m", "int64")
    most = largest_sizes((decl_buffer((n, 8), name="G"), decl_buffer((n * 2 + 5, m), name="H")))
    assert most[n] == MOST_ELEMENTS // 8 - 1
    assert 7 * most[m] < MOST_ELEMENTS <= 7 * (most[m] + 1)


def test_indices_that_are_converted_are_wide():
    """Templates that write their loops have variables of 32 bits, and indices of the buffers' own type.

    They are rewritten where copies run ahead; elsewhere vectors are found in numbers that are converted as a whole.
    """
    var = Var("i", "int32")
    store = BufferStore(B, A[Cast("int64", var * 2)], (Cast("int64", var),))
    nest = For(var, IntImm(0, "int32"), IntImm(32, "int32"), LoopKind.SERIAL, store)
    assert narrow_indices(nest, (A, B)) == (nest, {})
    ahead = dataclasses.replace(nest, annotations=FrozenDict({STAGE: [0]}))
    new, _ = narrow_indices(ahead, (A, B))
    indices = [i for n in preorder(new) if isinstance(n, BufferLoad | BufferStore) for i in n.indices]
    assert {i.dtype for i in indices} == {"int32"}
    assert not any(isinstance(n, Cast) for n in preorder(new))
