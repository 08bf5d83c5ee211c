"""What each lowering pass makes of small functions, as text."""

import numpy as np

from autosched import te
from autosched.codegen.cpu.text import loop_lines
from autosched.codegen.lower import lower_func, split_phases
from autosched.codegen.lower.flops import count_flops
from autosched.codegen.lower.partition import partition_loops
from autosched.codegen.lower.tidy import tidy
from autosched.ir.node import preorder
from autosched.tir import Allocate, Buffer, BufferStore, IfThenElse, LoopKind, SeqStmt, all_of, const
from autosched.tir.interpret import interpret
from tests.codegen.programs import buffer, function, loop, matmul, with_kinds


def text(stmt):
    return "\n".join(loop_lines(stmt))


def matrix_product(m, n, k):
    a, b = te.placeholder((m, k), name="A"), te.placeholder((k, n), name="B")
    axis = te.reduce_axis((0, k), "k")
    return te.create_prim_func(
        [a, b, te.compute((m, n), lambda i, j: te.sum(a[i, axis] * b[axis, j], axis=axis), name="C")]
    )


def test_start_values_stand_before_the_outermost_reduction_loop():
    assert text(lower_func(matrix_product(2, 3, 4)).body) == (
        "for i in range(2):\n"
        "    for j in range(3):\n"
        "        C[i, j] = 0\n"
        "        for k in range(4): C[i, j] = C[i, j] + A[i, k] * B[k, j]"
    )


def test_start_values_in_a_nest_with_the_reduction_outside():
    from autosched.tir.schedule import Schedule

    s = Schedule(matrix_product(2, 3, 4))
    i, j, k = s.get_loops("C")
    s.reorder(k, i, j)
    s.vectorize(j)
    assert text(lower_func(s.mod["main"]).body) == (
        "for i in range(2):\n"
        "    for j in vector(3): C[i, j] = 0\n"
        "for k in range(4):\n"
        "    for i in range(2):\n"
        "        for j in vector(3): C[i, j] = C[i, j] + A[i, k] * B[k, j]"
    )


def test_a_buffer_moves_to_where_it_is_used_and_shrinks():
    a = te.placeholder((5, 70000), name="A")
    b = te.compute((5, 70000), lambda i, j: a[i, j] + 1.0, name="B")
    c = te.compute((5, 70000), lambda i, j: b[i, j] * 2.0, name="C")
    from autosched.tir.schedule import Schedule

    s = Schedule(te.create_prim_func([a, c]))
    s.compute_at("B", s.get_loops("C")[0])
    (large,) = [n.buffer for n in preorder(lower_func(s.mod["main"]).body) if isinstance(n, Allocate)]
    assert (large.const_shape(), large.scope) == ((1, 70000), "global")
    s.compute_at("B", s.get_loops("C")[1])
    (small,) = [n.buffer for n in preorder(lower_func(s.mod["main"]).body) if isinstance(n, Allocate)]
    assert (small.const_shape(), small.scope) == ((1, 1), "local")


def test_a_buffer_that_carries_values_between_iterations_stays_outside():
    t, a, c = buffer("T", 9), buffer("A", 8), buffer("C", 8)
    body = SeqStmt((
        BufferStore(t, const(0.0), (const(0),)),
        loop("i", 8, lambda i: SeqStmt((BufferStore(t, t[i] + a[i], (i + 1,)), BufferStore(c, t[i + 1], (i,))))),
    ))  # fmt: skip
    func = function([a, c], body, [t])
    x, y = np.arange(8, dtype="f"), np.zeros(8, "f")
    interpret(lower_func(func), [x, y])
    np.testing.assert_array_equal(y, x.cumsum())


def test_a_ragged_loop_becomes_full_tiles_and_a_rest():
    a = buffer("A", 20)
    nest = loop(
        "o",
        4,
        lambda o: loop(
            "i", 6, lambda i: IfThenElse(o * 6 + i < 20, BufferStore(a, const(1.0), (o * 6 + i,))), "unrolled"
        ),
    )
    assert text(partition_loops(nest)) == (
        "for o in range(3):\n    for i in unroll(6): A[o * 6 + i] = 1\nfor i in unroll(2): A[i + 18] = 1"
    )


def test_a_ragged_parallel_loop_tests_for_its_last_task():
    a = buffer("A", 20)
    nest = loop(
        "o",
        4,
        lambda o: loop(
            "i", 6, lambda i: IfThenElse(o * 6 + i < 20, BufferStore(a, const(1.0), (o * 6 + i,))), "vectorized"
        ),
        "parallel",
    )
    assert text(partition_loops(nest)) == (
        "for o in range(4):\n"
        "    if o < 3:\n"
        "        for i in vector(6): A[o * 6 + i] = 1\n"
        "    else:\n"
        "        for i in vector(2): A[i + 18] = 1"
    )


def test_two_ragged_dimensions_give_four_tiles_without_conditions_inside():
    lowered = lower_func(matmul(13, 25, 8, 6, 2, 8))
    tests = [n for n in preorder(lowered.body) if isinstance(n, IfThenElse) and n.else_case is not None]
    assert len(tests) == 1  # the parallel loop's; the serial one is split
    assert sum(isinstance(n, Allocate) for n in preorder(lowered.body)) == 4


def test_conditions_shorten_loops_and_move_out_of_them():
    a = buffer("A", 8, 8)
    n = buffer("n", 1, dtype="int32")
    nest = loop(
        "i",
        8,
        lambda i: loop(
            "j", 8, lambda j: IfThenElse(all_of(j < 5, i < 3, n[0] > 2), BufferStore(a, const(1.0), (i, j)))
        ),
    )
    assert text(tidy(nest)) == ("if n[0] > 2:\n    for i in range(3):\n        for j in range(5): A[i, j] = 1")


def test_phases_and_tasks():
    a = te.placeholder((6, 5, 4), name="A")
    b = te.compute((6, 5, 4), lambda i, j, k: a[i, j, k] + 1.0, name="B")
    c = te.compute((6, 4), lambda x, y: b[x, 0, y] + b[x, 4, 3 - y], name="C")
    func = with_kinds(te.create_prim_func([a, c]), i="parallel", j="parallel")
    phases, shared = split_phases(lower_func(func))
    assert [p.n_tasks for p in phases] == [30, 1]
    assert [b.name for b in shared] == ["B"]
    assert phases[0].extents == (6, 5)


def test_operations_are_counted():
    assert count_flops(lower_func(matrix_product(3, 4, 5)).body) == 2 * 3 * 4 * 5


def test_names_of_kinds_are_shown():
    a = Buffer("A", (const(4),))
    nest = loop("i", 4, lambda i: BufferStore(a, const(0.0), (i,)), LoopKind.UNROLLED)
    assert text(nest) == "for i in unroll(4): A[i] = 0"
