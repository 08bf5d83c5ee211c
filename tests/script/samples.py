"""Functions of every form that the text has, for the tests of printer and parser."""

from __future__ import annotations

from autosched import te, tir
from autosched.ir import FrozenDict, IRModule
from autosched.tir import expr as E
from autosched.tir.access import infer_regions
from autosched.tir.axis import OPAQUE, REDUCE, SPATIAL, IterVar, Range
from autosched.tir.buffer import Buffer, BufferLoad
from autosched.tir.expr import IntImm, PrimExpr, Var
from autosched.tir.function import PrimFunc, make_root
from autosched.tir.stmt import (
    Allocate,
    AssertStmt,
    Block,
    BlockRealize,
    BufferRegion,
    BufferStore,
    Evaluate,
    For,
    IfThenElse,
    LetStmt,
    LoopKind,
    MatchBufferRegion,
    Stmt,
    While,
    seq,
)  # fmt: skip


def loop(var: Var, extent: int | PrimExpr, body: Stmt, kind: LoopKind = LoopKind.SERIAL, **more: object) -> For:
    return For(var, E.const(0, var.dtype), E.to_expr(extent, var.dtype), kind, body, **more)


def axis(name: str, extent: int, kind: str = SPATIAL, dtype: str = "int32") -> IterVar:
    return IterVar(Range(IntImm(0, dtype), IntImm(extent, dtype)), Var(name, dtype), kind)


def block(
    name: str,
    axes: tuple[IterVar, ...],
    values: tuple[PrimExpr, ...],
    body: Stmt,
    *,
    init: Stmt | None = None,
    where: PrimExpr | None = None,
) -> BlockRealize:
    reads, writes = infer_regions(body)
    made = Block(axes, (), reads, writes, name, body, init)
    return BlockRealize(values, where if where is not None else IntImm(1, "bool"), made)


def function(*buffers: Buffer, body: Stmt, attrs: dict[str, object] | None = None) -> PrimFunc:
    handles = {Var(f"var_{b.name}", "handle"): b for b in buffers}
    named = {"global_symbol": "main"} if attrs is None else attrs
    return PrimFunc(tuple(handles), FrozenDict(handles), body, attrs=FrozenDict(named))


def buffer(name: str, *shape: int, dtype: str = "float32") -> Buffer:
    return Buffer(name, tuple(IntImm(s) for s in shape), dtype)


def scheduled_matmul() -> PrimFunc:
    """7 x 9 x 5: rows split by 4 with a tail, parallel, vectorised, the reduction's start in loops of its own."""
    a, b, c = buffer("A", 7, 5), buffer("B", 5, 9), buffer("C", 7, 9)
    i_0, i_1_init, j_init, k, i_1, j = (Var(n) for n in ("i_0", "i_1_init", "j_init", "k", "i_1", "j"))
    vi, vj = axis("v_i", 7), axis("v_j", 9)
    start = block(
        "C_init", (vi, vj), (i_0 * 4 + i_1_init, j_init), BufferStore(c, E.const(0.0), (vi.var, vj.var)),
        where=i_0 * 4 + i_1_init < 7,
    )  # fmt: skip
    wi, wj, wk = axis("v_i", 7), axis("v_j", 9), axis("v_k", 5, REDUCE)
    value = c[wi.var, wj.var] + a[wi.var, wk.var] * b[wk.var, wj.var]
    update = block(
        "C_update", (wi, wj, wk), (i_0 * 4 + i_1, j, k), BufferStore(c, value, (wi.var, wj.var)),
        where=i_0 * 4 + i_1 < 7,
    )  # fmt: skip
    body = seq(
        loop(i_1_init, 4, loop(j_init, 9, start, LoopKind.VECTORIZED)),
        loop(k, 5, loop(i_1, 4, loop(j, 9, update, LoopKind.VECTORIZED))),
    )
    return function(a, b, c, body=make_root(loop(i_0, 2, body, LoopKind.PARALLEL)))


def fused_matmul_add() -> PrimFunc:
    """What legalising and fusing gives: int64 extents, an intermediate buffer, no global symbol."""
    x = te.placeholder((E.const(1, "int64"), E.const(6, "int64")), name="lv3")
    w = te.placeholder((E.const(6, "int64"), E.const(3, "int64")), name="lv4")
    bias = te.placeholder((E.const(3, "int64"),), name="fc2_bias")
    k = te.reduce_axis((E.const(0, "int64"), E.const(6, "int64")), "k")
    shape = (E.const(1, "int64"), E.const(3, "int64"))
    product = te.compute(shape, lambda i0, i1: te.sum(x[i0, k] * w[k, i1], axis=k), name="matmul_intermediate")
    total = te.compute(shape, lambda ax0, ax1: product[ax0, ax1] + bias[ax1], name="T_add_intermediate")
    made = te.create_prim_func([x, w, bias, total]).without_attr("global_symbol")
    return tir.functor.rewrite(made, _name_blocks)


def _name_blocks(node: object) -> object:
    import dataclasses

    if isinstance(node, Block) and node.name_hint.endswith("_intermediate"):
        return dataclasses.replace(node, name_hint=node.name_hint.removesuffix("_intermediate"))
    return node


def lowered() -> PrimFunc:
    """Every statement that may stand in a lowered function."""
    a, b, t = buffer("A", 16), buffer("B", 16), Buffer("t", (IntImm(4),), "int32", scope="local")
    i, j, n, x = Var("i"), Var("j"), Var("n"), Var("x", "float32")
    s = Buffer("s", (), "float32")
    inner = seq(
        loop(j, 4, BufferStore(t, E.cast("int32", a[i * 4 + j]), (j,)), LoopKind.UNROLLED),
        IfThenElse(
            tir.all_of(i > 0, tir.any_of(i < 3, n >= 2)),
            LetStmt(x, tir.call("exp", a[i]), BufferStore(b, tir.select(x > 1.0, x, E.const(-1.5)), (i,))),
            Evaluate(tir.call("call_extern", E.StringImm("trace"), i, dtype="int32")),
        ),
        While(t[0] > 0, BufferStore(t, t[0] - 1, (IntImm(0),))),
    )
    nested = seq(
        Allocate(s, seq(BufferStore(s, E.const(2.0), ()), BufferStore(b, BufferLoad(s, ()), (n,)))),
        LetStmt(n2 := Var("n"), n + 1, Evaluate(n2)),
        AssertStmt(n > 0, 'n must be "positive"', Evaluate(IntImm(0))),
        For(i, IntImm(2), IntImm(2), LoopKind.SERIAL, Allocate(t, inner), annotations=FrozenDict(pragma_unroll=4)),
    )
    made = function(a, b, body=nested, attrs={"global_symbol": "lowered", "tir.noalias": True, "sizes": (1, 2.5, "x")})
    return PrimFunc((*made.params, n), made.buffer_map, made.body, attrs=made.attrs)


def every_block_part() -> PrimFunc:
    """Block attributes, allocations, matched buffers, offset domains, threads, regions and an explicit root."""
    a, b = buffer("A", 16, 16), buffer("B", 16, 16)
    io, jo = Var("io"), Var("jo")
    vi = IterVar(Range(IntImm(1), IntImm(4)), Var("vi"))
    vj = axis("vj", 4, OPAQUE)
    tile = Buffer("tile", (IntImm(4), IntImm(4)), strides=(Var("s0"), IntImm(1)), offset_factor=4)
    cache = Buffer("cache", (IntImm(4),), "float16", scope="shared")
    region = BufferRegion(a, (Range(vi.var * 4, IntImm(4)), Range(vj.var * 4, IntImm(4))))
    body = seq(
        BufferStore(cache, E.cast("float16", tile[0, 0]), (IntImm(0),)),
        BufferStore(b, tile[1, 1] + E.cast("float32", cache[0]), (vi.var, vj.var)),
    )
    inner = Block(
        (vi, vj), (cache,), (region,), (BufferRegion(b, (Range(IntImm(0), IntImm(16)), Range(vj.var, IntImm(1)))),),
        "tile", body, None, (MatchBufferRegion(tile, region),),
        FrozenDict({"auto": True, "name": 'a "b"', "deep": FrozenDict({"k": (1, 2), "e": IntImm(3)}), "none": None}),
    )  # fmt: skip
    realize = BlockRealize((io + 1, jo), IntImm(1, "bool"), inner)
    nest = loop(io, 4, loop(jo, 4, realize, LoopKind.THREAD_BINDING, thread="threadIdx.x"), LoopKind.UNROLLED)
    root = make_root(nest, annotations={"tuned": 1})
    return function(a, b, body=root, attrs={"tir.noalias": True})


def expressions() -> PrimFunc:
    """Each kind of expression, with each need of parentheses."""
    a = buffer("A", 8)
    h = buffer("H", 8, dtype="float64")
    i, m, q = Var("i"), Var("m", "int64"), Var("q", "bool")
    x = a[i]
    values: list[PrimExpr] = [
        x - (x - x), (x + x) * x, x / (x * x), x * x / x, tir.minimum(x, tir.maximum(x, 2.5)), -x,
        tir.if_then_else(tir.logical_not(i < 3), x, E.FloatImm(float("inf"))), E.FloatImm(float("-inf")),
        tir.if_then_else((i < 3).equal(q), x, E.FloatImm(1e-30)), tir.call("pow", x, x),
        tir.call("my_op", x, i, dtype="float32"), E.Let(v := Var("v", "float32"), x, v * v), E.FloatImm(0.1),
        E.Add(E.FloatImm(1.0), E.FloatImm(2.0)), tir.cast("float32", tir.call("isnan", x)),
        tir.if_then_else(tir.logical_not(tir.logical_and(q, i > 2)), x, x),
        tir.if_then_else(tir.any_of(tir.all_of(q, i > 2), tir.all_of(q, i < 1)), x, x),
        tir.if_then_else(tir.all_of(q, tir.any_of(i > 2, i < 1)), x, x),
        tir.cast("float32", h[i] + 0.25), tir.cast("float32", m // 3 % 2 - 5), E.FloatImm(-2.0) * x,
        tir.cast("float32", tir.truncdiv(i, 3) * tir.truncmod(i, 3) + (i + -2) // (i % 3 + 1) * 2),
    ]  # fmt: skip
    index = i // 2 % 4 * 1
    body = seq(*(BufferStore(a, v, (index,)) for v in values))
    made = function(a, h, body=loop(i, 8, body), attrs={"global_symbol": "main"})
    return PrimFunc((*made.params, m, q), made.buffer_map, made.body, attrs=made.attrs)


def symbolic() -> PrimFunc:
    """Shapes with symbols: handles and `T.match_buffer`."""
    n = E.SizeVar("n")
    x = te.placeholder((n, 4), name="x.data")
    y = te.compute((n, 4), lambda i, j: x[i, j] * 2.0, name="y")
    return te.create_prim_func([x, y])


def argmax() -> PrimFunc:
    """Two results that reduce together: lets inside a block."""
    x = te.placeholder((4, 6), name="x")
    k = te.reduce_axis((0, 6), "k")
    reducer = te.comm_reducer(
        lambda a, b: (tir.select(a[1] >= b[1], a[0], b[0]), tir.select(a[1] >= b[1], a[1], b[1])),
        lambda t0, t1: (te.const(-1, t0), te.min_value(t1)),
    )
    index, value = te.compute((4,), lambda i: reducer((k.var, x[i, k]), axis=k), name="argmax")
    return te.create_prim_func([x, index, value])


def many_functions() -> IRModule:
    return IRModule({"b.second": symbolic(), "b_second": argmax(), "a": fused_matmul_add()}, attrs={"version": 2})


SAMPLES = {
    f.__name__: f
    for f in (scheduled_matmul, fused_matmul_add, lowered, every_block_part, expressions, symbolic, argmax)
}
