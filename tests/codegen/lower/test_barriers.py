"""Barriers between writers and readers of shared memory: where they stand, and where they cannot."""

import pytest

from autosched.codegen.lower.barriers import barrier, is_barrier, place_barriers
from autosched.errors import CodegenError
from autosched.tir import BufferStore, For, IfThenElse, LoopKind, SeqStmt, Var, const
from tests.codegen.programs import buffer

TX, BX = Var("tx"), Var("bx")
SHARED, OTHER = buffer("S", 64, scope="shared"), buffer("T", 64, scope="shared")
OUT = buffer("out", 64)
RANGES = {SHARED: ("shared", 0, 256), OTHER: ("shared", 256, 512)}


def write(where=SHARED, at=TX):
    return BufferStore(where, const(1.0, "float32"), (at,))


def read(where=SHARED):
    return BufferStore(OUT, where[const(0)], (TX,))


def loop(name, count, *body):
    var = Var(name)
    return For(var, const(0), const(count), LoopKind.SERIAL, SeqStmt(body) if len(body) > 1 else body[0])


def placed(*statements, ranges=RANGES):
    return place_barriers(SeqStmt(statements), ranges, frozenset({TX}))


def kinds(stmt):
    """The form of a statement: B is a barrier, s another one, [ ] a loop, ( ) a condition."""
    if isinstance(stmt, SeqStmt):
        return "".join(map(kinds, stmt.seq))
    if isinstance(stmt, For):
        return f"[{kinds(stmt.body)}]"
    if isinstance(stmt, IfThenElse):
        return f"({kinds(stmt.then_case)})"
    return "B" if is_barrier(stmt) else "s"


def test_between_a_writer_and_a_reader():
    assert kinds(placed(write(), read())) == "sBs"


def test_between_a_reader_and_a_writer():
    assert kinds(placed(read(), write())) == "sBs"


def test_none_between_readers_and_between_other_buffers():
    assert kinds(placed(read(), read(), write(OTHER))) == "sss"


def test_one_for_several_writers():
    assert kinds(placed(write(), write(OTHER), read(), read(OTHER))) == "ssBss"


def test_buffers_at_the_same_bytes_are_one_memory():
    ranges = {SHARED: ("shared", 0, 256), OTHER: ("shared", 128, 384)}
    assert kinds(placed(read(), write(OTHER), ranges=ranges)) == "sBs"


def test_a_loop_waits_for_its_own_last_iteration():
    assert kinds(placed(loop("k", 8, write(), read()))) == "[BsBs]"


def test_before_a_loop_rather_than_in_it():
    assert kinds(placed(write(), loop("k", 8, read()))) == "sB[s]"


def test_a_loop_that_needs_one_inside_gets_no_second_one_for_what_follows():
    assert kinds(placed(loop("k", 8, write(), read()), read())) == "[BsBs]s"


def test_after_a_loop_that_ends_with_a_write():
    assert kinds(placed(loop("k", 8, write()), read())) == "[Bs]Bs"


def test_barriers_that_are_there_count():
    assert kinds(placed(write(), barrier(), read())) == "sBs"


def test_in_a_condition_that_is_the_same_for_the_block():
    stmt = IfThenElse(BX < 3, SeqStmt((write(), read())))
    assert kinds(placed(stmt)) == "(sBs)"


def test_what_one_side_of_a_condition_does_counts_after_it():
    assert kinds(placed(IfThenElse(BX < 3, write()), read())) == "(s)Bs"


def test_around_a_condition_on_the_thread():
    assert kinds(placed(IfThenElse(TX < 3, write()), IfThenElse(TX < 3, read()))) == "(s)B(s)"


@pytest.mark.parametrize(
    "parted",
    [
        lambda body: IfThenElse(OUT[0] < 1.0, body),  # which a statement may change
        lambda body: IfThenElse(TX < 3, body, write()),
        lambda body: For(Var("i"), const(0), TX, LoopKind.SERIAL, body),
    ],
    ids=["an element", "another way", "a loop"],
)
def test_none_can_stand_where_threads_part(parted):
    with pytest.raises(CodegenError, match="do not go through together"):
        placed(parted(SeqStmt((write(), read()))))


def test_none_can_stand_in_a_loop_of_a_threads_own_length():
    var = Var("k")
    stmt = For(var, const(0), TX, LoopKind.SERIAL, SeqStmt((write(), read())))
    with pytest.raises(CodegenError, match="'k'"):
        placed(stmt)


def test_a_cooperative_copy_in_steps_needs_none_between_them():
    step = Var("i")
    copy = For(step, const(0), const(4), LoopKind.SERIAL, write(at=TX + step * 16))
    assert kinds(placed(copy, read())) == "[s]Bs"


def test_writers_of_the_same_elements_again_wait():
    assert kinds(placed(loop("k", 4, write()), read())) == "[Bs]Bs"


def test_a_condition_of_threads_stands_at_each_statement_where_a_barrier_is_needed_between():
    assert kinds(placed(IfThenElse(TX < 3, SeqStmt((write(), read()))))) == "(s)B(s)"
    assert kinds(placed(IfThenElse(TX < 3, loop("k", 8, write(), read())))) == "[B(s)B(s)]"
    assert kinds(placed(IfThenElse(TX < 3, SeqStmt((write(), read(OTHER)))))) == "(ss)"
