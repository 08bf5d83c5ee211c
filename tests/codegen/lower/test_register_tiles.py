"""Register buffers: loops unrolled, conditions dropped."""

import pytest

from autosched import te, topi
from autosched.codegen.lower.device import lower_device
from autosched.codegen.lower.register_tiles import drop_register_guards, fix_register_indices
from autosched.ir.node import preorder
from autosched.space import Config
from autosched.target import Target
from autosched.te import create_prim_func
from autosched.templates import apply_config
from autosched.tir import BufferLoad, BufferStore, For, IfThenElse, LoopKind, SeqStmt, Var
from autosched.tir.functor import free_vars
from autosched.tir.simplify import Analyzer
from tests.codegen.gpu_programs import tiled_product
from tests.codegen.programs import buffer, loop

TARGET = Target("cuda -arch=sm_90a")
WRITTEN_OUT = (LoopKind.UNROLLED, LoopKind.VECTORIZED)


def test_no_conditions_on_the_rows_and_columns_of_a_register_tile():
    (launch,) = lower_device(tiled_product(130, 131, 16).func).launches
    sums = [n for n in preorder(launch.body) if isinstance(n, IfThenElse) and "C[" in str(n.then_case)]
    assert all("D[" in str(n.then_case) for n in sums)  # only the stores of results are guarded


def test_loops_that_index_registers_are_unrolled():
    (launch,) = lower_device(tiled_product(64, 64, 16).func).launches
    for node in preorder(launch.body):
        if isinstance(node, For) and node.kind == LoopKind.SERIAL:
            assert node.loop_var not in {
                v for s in preorder(node) if isinstance(s, BufferStore) and s.buffer.scope == "local"
                for i in s.indices for v in preorder(i)
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
    return sum(isinstance(n, IfThenElse) for n in preorder(stmt))


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


@pytest.mark.parametrize("limit, is_fixed", [(2, True), (3, False)])
def test_a_condition_that_leaves_a_thread_one_value(limit, is_fixed):
    own, out, ty = buffer("R", 2, scope="local"), buffer("D", 8), Var("ty")
    stmt = loop("i", 2, lambda i: IfThenElse(ty * 2 + i < limit, BufferStore(out, own[ty * 2 + i], (ty * 2 + i,))))
    new = fix_register_indices(stmt, Analyzer({ty: (0, 4)}))
    (load,) = (n for n in preorder(new) if isinstance(n, BufferLoad))
    assert (ty in free_vars(load.indices[0])) is not is_fixed
    assert "D[ty * 2 + i]" in str(new)  # device memory has addresses


def addressed(stmt):
    """Indices of registers that the thread computes as it runs."""
    written_out = {n.loop_var for n in preorder(stmt) if isinstance(n, For) and n.kind in WRITTEN_OUT}
    used = (n for n in preorder(stmt) if isinstance(n, BufferLoad | BufferStore) and n.buffer.scope == "local")
    return [f"{n.buffer.name}[{i}]" for n in used for i in n.indices if free_vars(i) - written_out]


@pytest.mark.parametrize("m, k, n", [(2, 40, 7), (2, 27, 53), (2, 1, 1), (3, 8, 4), (4, 19, 3), (5, 3, 2), (7, 40, 9)])
def test_products_of_few_rows_and_columns_stay_in_registers(m, k, n):
    a, b, c = (te.placeholder(shape, name=name) for shape, name in (((m, k), "A"), ((k, n), "B"), ((n,), "C")))
    func = create_prim_func([a, b, c, topi.add(topi.matmul(a, b), c)])
    for rows, per_row, per_column in ((16, 2, 4), (32, 4, 8), (64, 8, 8)):
        knobs = {"rows": rows, "columns": 32, "per_row": per_row, "per_column": per_column, "step": 8, "stages": 1}
        scheduled = apply_config(func, Config("matmul", knobs), TARGET).func
        for launch in lower_device(scheduled).launches:
            assert not addressed(launch.body)
