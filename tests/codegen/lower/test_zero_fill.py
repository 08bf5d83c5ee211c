"""Elements of shared memory that a guarded copy leaves out."""

from autosched.codegen.lower.zero_fill import zero_fill
from autosched.ir.node import preorder
from autosched.tir import Allocate, BufferStore, Call, IfThenElse, SeqStmt, Var
from autosched.tir.simplify import Analyzer
from tests.codegen.programs import buffer, loop

TX, BX = Var("tx"), Var("bx")
SHARED, SOURCE = buffer("S", 32, scope="shared"), buffer("A", 100)
COPY = BufferStore(SHARED, SOURCE[BX * 32 + TX], (TX,))


def filled(stmt, threads=32):
    return zero_fill(stmt, Analyzer({TX: (0, threads), BX: (0, 4)}), {TX: threads})


def is_filled(stmt):
    stores = [n for n in preorder(stmt) if isinstance(n, BufferStore)]
    chosen = [isinstance(s.value, Call) and s.value.op == "if_then_else" for s in stores]
    return all(chosen) and not any(isinstance(n, IfThenElse) for n in preorder(stmt))


def test_a_guarded_copy_fills_the_rest():
    assert is_filled(filled(IfThenElse(BX * 32 + TX < 100, COPY)))


def test_not_where_threads_would_leave_the_buffer():
    stmt = IfThenElse(TX < 32, COPY)
    assert not is_filled(filled(stmt, threads=64))
    assert any(isinstance(n, IfThenElse) for n in preorder(filled(stmt, threads=64)))


def test_not_where_another_statement_writes_the_buffer():
    other = BufferStore(SHARED, SOURCE[TX], (TX,))
    assert not is_filled(filled(SeqStmt((other, IfThenElse(BX * 32 + TX < 100, COPY)))))


def test_not_where_one_thread_of_many_writes():
    stmt = IfThenElse(TX < 1, BufferStore(SHARED, SOURCE[BX], (BX,)))
    assert not is_filled(filled(stmt))


def test_not_what_an_iteration_keeps_for_the_next():
    def body(k):
        return IfThenElse(k < 1, COPY)

    stmt = Allocate(SHARED, loop("k", 4, body))
    assert not is_filled(filled(stmt))
    assert is_filled(filled(loop("k", 4, lambda k: Allocate(SHARED, IfThenElse(k < 3, COPY)))))


def test_not_what_reads_shared_memory():
    stmt = IfThenElse(BX < 3, BufferStore(SHARED, buffer("T", 32, scope="shared")[TX], (TX,)))
    assert not is_filled(filled(stmt))
