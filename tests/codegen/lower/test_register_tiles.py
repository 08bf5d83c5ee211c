"""Register buffers: loops unrolled, conditions dropped."""

from autosched.codegen.lower.device import lower_device
from autosched.codegen.lower.register_tiles import drop_register_guards
from autosched.ir.node import walk
from autosched.tir import BufferStore, For, IfThenElse, LoopKind, SeqStmt, Var
from tests.codegen.gpu_programs import tiled_product
from tests.codegen.programs import buffer, loop


def test_no_conditions_on_the_rows_and_columns_of_a_register_tile():
    (launch,) = lower_device(tiled_product(130, 131, 16).func).launches
    sums = [n for n in walk(launch.body) if isinstance(n, IfThenElse) and "C[" in str(n.then_case)]
    assert all("D[" in str(n.then_case) for n in sums)  # only the stores of results are guarded


def test_loops_that_index_registers_are_unrolled():
    (launch,) = lower_device(tiled_product(64, 64, 16).func).launches
    for node in walk(launch.body):
        if isinstance(node, For) and node.kind == LoopKind.SERIAL:
            assert node.loop_var not in {
                v for s in walk(node) if isinstance(s, BufferStore) and s.buffer.scope == "local"
                for i in s.indices for v in walk(i)
            }  # fmt: skip


def guarded(limits):
    """Stores to registers, each below a condition on the element's index (None: below none)."""
    own, source, tx = buffer("R", 8, scope="local"), buffer("S", 8, scope="shared"), Var("tx")
    parts = []
    for limit in limits:

        def body(i, limit=limit):
            store = BufferStore(own, source[i], (i,))
            return store if limit is None else IfThenElse(tx * 8 + i < limit, store)

        parts.append(loop("i", 8, body))
    return drop_register_guards(SeqStmt(tuple(parts)), frozenset({tx}), frozenset({own}))[0]


def conditions(stmt):
    return sum(isinstance(n, IfThenElse) for n in walk(stmt))


def test_a_condition_that_all_stores_have_goes():
    assert conditions(guarded([100, 100])) == 0


def test_a_condition_stays_where_another_store_has_none():
    assert conditions(guarded([100, None])) == 1


def test_a_condition_stays_where_another_store_has_another():
    assert conditions(guarded([100, 99])) == 2


def test_a_condition_of_a_reduction_stays():
    own, source, k = buffer("R", 8, scope="local"), buffer("S", 64, scope="shared"), Var("k")
    stmt = loop("i", 8, lambda i: IfThenElse(k < 50, BufferStore(own, own[i] + source[k], (i,))))
    assert conditions(drop_register_guards(stmt, frozenset(), frozenset({own}))[0]) == 1


def test_a_condition_stays_that_guards_global_memory():
    own, source, tx = buffer("R", 8, scope="local"), buffer("S", 60), Var("tx")
    stmt = loop("i", 8, lambda i: IfThenElse(tx * 8 + i < 60, BufferStore(own, source[tx * 8 + i], (i,))))
    assert conditions(drop_register_guards(stmt, frozenset({tx}), frozenset({own}))[0]) == 1
