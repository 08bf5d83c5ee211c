"""Annotations of loops that say how they become code: "whole_tile" and "keep_whole"."""

from autosched import te
from autosched.codegen.cpu.cut import is_tile
from autosched.codegen.lower import lower_func
from autosched.ir.node import preorder
from autosched.tir import For, Schedule


def product(extent: int) -> Schedule:
    x, w = te.placeholder((extent, 300), name="x"), te.placeholder((300, 8), name="w")
    k = te.reduce_axis((0, 300), "k")
    y = te.compute((extent, 8), lambda i, j: te.sum(x[i, k] * w[k, j], axis=k), name="y")
    return Schedule(te.create_prim_func([x, w, y], "int64"))


def test_whole_tile_takes_a_loop_with_loops_inside():
    for noted in (False, True):
        sch = product(40)
        i, j, k = sch.get_loops("y")
        sch.reorder(i, k, j)
        sch.vectorize(j)
        if noted:
            sch.annotate(i, "whole_tile", True)
        assert is_tile(lower_func(sch.func).body) is noted


def test_keep_whole_leaves_the_condition_in_the_loop():
    counts = []
    for noted in (False, True):
        sch = product(50)
        outer, inner = sch.split(sch.get_loops("y")[0], [None, 16])
        sch.parallel(outer)
        if noted:
            sch.annotate(outer, "keep_whole", True)
        counts.append(sum(isinstance(n, For) and n.extent.value == 300 for n in preorder(lower_func(sch.func).body)))
    assert counts[0] > counts[1] == 1
