"""Element-wise functions of several blocks."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import autosched
from autosched import te, topi
from autosched.codegen import compile_func
from autosched.codegen.lower.pipeline import lower_func
from autosched.ir.node import preorder
from autosched.relax import BlockBuilder, op
from autosched.relax.expr import Var
from autosched.relax.op.registry import get_op
from autosched.relax.struct_info import TensorStructInfo
from autosched.templates import apply_config, default_config
from autosched.templates.classify import blocks_of
from autosched.templates.cpu.elementwise import _flat_axes, _period
from autosched.tir import Block, FloorDiv, FloorMod, For, LoopKind, PrimFunc, as_int
from autosched.tir import expr as E
from autosched.tir.functor import free_vars
from tests.spread import cover, spread

TREES = get_op("tree_levels")
NODES, COLUMNS = 33, 11


def levels(shape: tuple[int, int], columns: int = COLUMNS, **attrs: Any) -> PrimFunc:
    place = te.placeholder(shape, "int32", "place")
    x, splits = te.placeholder((shape[1], columns), name="x"), te.placeholder((NODES,), name="splits")
    nodes = te.placeholder((NODES,), "int32", "nodes")
    return te.create_prim_func([place, x, nodes, splits, TREES.compute(place, x, nodes, splits, **attrs)])


def stages_between(func: PrimFunc) -> list[str]:
    """The scopes of what lies between the blocks of a scheduled function."""
    target = autosched.Target("cpu")
    scheduled = apply_config(func, default_config(func, target), target).func
    return [b.scope for n in preorder(scheduled.body) if isinstance(n, Block) for b in n.alloc_buffers]


# Every day each shape, for one of the targets.
@spread(
    2,
    "shape,target",
    [
        (shape, ("cpu", "llvm -mcpu=x86-64-v3")[(n + other) % 2])
        for n, shape in enumerate([(3, 5), (1, 1), (70, 1), (30, 8), (20, 50), (2, 131), (3, 64)])
        for other in (0, 1)
    ],
)
def test_levels_of_trees_are_stages_of_one_nest(shape: tuple[int, int], target: str) -> None:
    rng = np.random.default_rng(0)
    place = rng.integers(-40, 80, shape).astype("int32")  # beyond the nodes too
    x = rng.choice([np.nan, -np.inf, np.inf, 0.0, 0.3], (shape[1], COLUMNS)).astype("float32")
    nodes = rng.integers(-(2**31), 2**31, NODES).astype("int32")  # with children and columns that are not there
    splits = rng.choice([np.nan, np.inf, 0.0, 0.3], NODES).astype("float32")
    for attrs in ({"levels": 3, "strict": True, "tracks": True}, {"levels": 2, "strict": False, "tracks": False}):
        func = levels(shape, **attrs)
        out = autosched.nd.empty(shape, "int32")
        autosched.build(func, target=target)(*map(autosched.nd.array, (place, x, nodes, splits)), out)
        assert TREES.reference is not None
        np.testing.assert_array_equal(out.numpy(), TREES.reference(place, x, nodes, splits, **attrs))
        assert set(stages_between(func)) == {"local"}


def test_no_level_of_a_tree_is_found_anew() -> None:
    """Two levels of few columns are small enough for one expression, in which the first would be there nine times."""
    assert stages_between(levels((50, 7), 4, levels=4, strict=False, tracks=False)) == ["local"] * 3


def test_what_reads_its_neighbours_is_no_stage() -> None:
    x = te.placeholder((40,), name="x")
    y = x

    def turned(x: te.Tensor, name: str) -> te.Tensor:
        return te.compute((40,), lambda i: x(i) * 0.5 + x((i + 1) % 40), name=name)

    for n in range(12):  # 4096 reads of x: more than one expression may have
        y = turned(y, f"y{n}")
    func = te.create_prim_func([x, y])
    data = np.random.default_rng(0).random(40, np.float32)
    out, want = autosched.nd.empty((40,)), data
    autosched.build(func, target="cpu")(autosched.nd.array(data), out)
    for _ in range(12):
        want = want * np.float32(0.5) + np.roll(want, -1)
    np.testing.assert_allclose(out.numpy(), want, rtol=1e-4)
    assert set(stages_between(func)) == {"global"}


@pytest.mark.parametrize("dtype", ["float32", "uint8", "int64"])
@pytest.mark.parametrize("shape", [(3, 7), (5, 33), (4, 131), (2, 3, 58), (9, 1000)])
def test_rows_that_do_not_come_out_even_have_one_ragged_vector(shape: tuple[int, ...], dtype: str) -> None:
    """Their vectors had four elements where the length is no multiple of more."""
    data = np.arange(np.prod(shape)).reshape(shape).astype(dtype)
    x = te.placeholder(shape, dtype, "x")
    padded = topi.nn.pad(x, [1] * len(shape), [2] * len(shape), 0)
    turned = topi.concatenate([padded, padded], axis=-1)
    func = te.create_prim_func([x, turned])
    out = autosched.nd.empty([int(n) for n in turned.shape], dtype)
    autosched.build(func, target="cpu")(autosched.nd.array(data), out)
    wanted = np.pad(data, [(1, 2)] * len(shape))
    np.testing.assert_array_equal(out.numpy(), np.concatenate([wanted, wanted], -1))


def test_vectors_of_rows_have_two_registers_at_least() -> None:
    x = te.placeholder((40, 1027), name="x")
    func = te.create_prim_func([x, topi.nn.pad(x, [0, 1], [0, 2], 0)])
    target = autosched.Target("llvm -mcpu=x86-64-v4")
    scheduled = apply_config(func, default_config(func, target), target).func
    vectors = [n.extent for n in preorder(scheduled.body) if isinstance(n, For) and n.kind == LoopKind.VECTORIZED]
    assert [as_int(n) for n in vectors] == [64]

    assert "local" not in stages_between(func)


@pytest.mark.parametrize(
    ("shape", "other", "flat"),
    [
        ((5, 6, 3, 3), (5, 6, 1, 1), 9),
        ((5, 32, 3, 3), (5, 1, 1, 1), 288),
        ((4, 3, 7, 7), (3, 1, 1), 49),
        ((4, 3, 14, 14), (3, 1, 1), 196),
        ((4, 3, 30, 30), (3, 1, 1), 900),
        ((4, 3, 32, 33), (3, 1, 1), 1056),
        ((4, 3, 3, 70), (3, 1, 1), 70),
        ((6, 5, 3), (6, 5, 1), 3),
        ((2, 23, 29), (1,), 1334),
        ((4, 5, 3, 3), (4, 5, 3, 1), 3),
        ((4, 3, 5), (4, 1, 5), 5),
        ((6, 70), (6, 1), 70),
    ],
)
def test_axes_of_which_an_operand_has_one_value_are_one_loop(
    shape: tuple[int, ...], other: tuple[int, ...], flat: int
) -> None:
    a, b = te.placeholder(shape, name="a"), te.placeholder(other, name="b")
    func = te.create_prim_func([a, b, get_op("multiply").compute(a, b)])
    (block,) = blocks_of(func)
    axes, width = _flat_axes(block, 64, 16)
    assert np.prod(shape[-axes:]) == flat
    assert width == 64 or (flat % width == 0 and width >= 16)
    rng = np.random.default_rng(0)
    x, y, out = rng.random(shape, np.float32), rng.random(other, np.float32), autosched.nd.empty(shape)
    autosched.build(func, target="cpu")(autosched.nd.array(x), autosched.nd.array(y), out)
    np.testing.assert_allclose(out.numpy(), x * y, rtol=1e-6)


@pytest.mark.host(runs=True)
@cover(
    ("order", [(0, 2, 3, 1), (0, 3, 1, 2), (3, 0, 1, 2)]),
    ("shape", [(1, 64, 8, 8), (2, 33, 7, 7), (1, 16, 56, 56), (2, 512, 7, 9)]),
    ("dtype", ["float32", "float16", "uint8", "bool"]),
)
def test_axes_that_go_together_are_turned_as_one(dtype: str, shape: tuple[int, ...], order: tuple[int, ...]) -> None:
    x = te.placeholder(shape, dtype, name="x")
    func = te.create_prim_func([x, topi.transpose(x, order)], "int64")
    a = np.random.default_rng(0).integers(0, 2 if dtype == "bool" else 99, shape).astype(dtype)
    out = autosched.nd.empty(tuple(shape[d] for d in order), dtype)
    autosched.build(func, target="cpu")(autosched.nd.array(a), out)
    np.testing.assert_array_equal(out.numpy(), a.transpose(order))


@pytest.mark.host(runs=True)
def test_what_is_read_along_one_of_two_axes_keeps_them_apart() -> None:
    """x goes along both axes of an image, y along one of them."""
    x, y = te.placeholder((32, 16, 16), name="x"), te.placeholder((16,), name="y")
    z = te.compute((16, 16, 32), lambda h, w, c: x[c, h, w] + y[w], name="z")
    rng = np.random.default_rng(0)
    a, b = rng.standard_normal((32, 16, 16)).astype("float32"), rng.standard_normal(16).astype("float32")
    out = autosched.nd.empty((16, 16, 32))
    autosched.build(te.create_prim_func([x, y, z], "int64"), target="cpu")(*map(autosched.nd.array, (a, b)), out)
    np.testing.assert_array_equal(out.numpy(), a.transpose(1, 2, 0) + b[:, None])


@pytest.mark.host(runs=True)
@pytest.mark.parametrize("order", [(1, 0), (0, 1)])
def test_axes_of_other_order_or_place_are_kept_apart(order: tuple[int, int]) -> None:
    """Two axes of the result lie beside each other in what is read, but turned or moved."""
    x = te.placeholder((32, 16, 16), name="x")

    def element(h: Any, w: Any, c: Any) -> Any:
        places = (h, w)
        return x[c, (places[order[0]] + 3) % 16, places[order[1]]]

    z = te.compute((16, 16, 32), element, name="z")
    a = np.random.default_rng(0).standard_normal((32, 16, 16)).astype("float32")
    out = autosched.nd.empty((16, 16, 32))
    autosched.build(te.create_prim_func([x, z], "int64"), target="cpu")(autosched.nd.array(a), out)
    np.testing.assert_array_equal(out.numpy(), np.roll(a, -3, 1).transpose(order[0] + 1, order[1] + 1, 0))


@pytest.mark.host(runs=True)
def test_a_form_over_outer_sizes_joins_inner_dimensions_alone() -> None:
    """[n, 12, 32, 16] -> [12, n, 32, 16]: the last two axes are one, of 512, before the next is looked at."""
    x = Var("x", TensorStructInfo((8, 12, 32, 16), "float32"))
    builder = BlockBuilder()
    with builder.function("main", [x]):
        with builder.dataflow():
            out = builder.emit_output(op.permute_dims(x, axes=(1, 0, 2, 3)))
        builder.emit_func_output(out)
    a = np.random.default_rng(0).standard_normal((8, 12, 32, 16)).astype("float32")
    np.testing.assert_array_equal(autosched.build(builder.get(), target="cpu")(a).numpy(), a.transpose(1, 0, 2, 3))


def divided_in_vectors(func: PrimFunc) -> int:
    """Divisions of a vector's own variable in what the target's code computes."""
    target = autosched.Target("cpu")
    lowered = lower_func(apply_config(func, default_config(func, target), target).func)
    loops = [n for n in preorder(lowered.body) if isinstance(n, For) and n.kind is LoopKind.VECTORIZED]
    assert loops
    return sum(
        isinstance(x, FloorMod | FloorDiv) and loop.loop_var in free_vars(x) for loop in loops for x in preorder(loop)
    )


@pytest.mark.parametrize("dtype", ["float32", "uint8", "float16", "int64"])
@pytest.mark.parametrize(
    ("shape", "repeats"),
    [
        ((9, 520), (2, 3)),
        ((6, 7), (3, 5)),
        ((2, 5, 24), (2, 3, 4)),
        ((5, 100), (1, 2)),
        ((130,), (40,)),
        ((4, 3), (2, 9)),
    ],
)
def test_what_is_repeated_is_copied_whole(shape: tuple[int, ...], repeats: tuple[int, ...], dtype: str) -> None:
    x = te.placeholder(shape, dtype, "x")
    func = te.create_prim_func([x, topi.tile(x, repeats)])
    data = np.random.default_rng(0).integers(0, 99, shape).astype(dtype)
    expected = np.tile(data, repeats)
    out = autosched.nd.empty(expected.shape, dtype)
    autosched.build(func, target="cpu")(autosched.nd.array(data), out)
    np.testing.assert_array_equal(out.numpy(), expected)
    assert shape[-1] < 4 or not divided_in_vectors(func)


def test_rows_in_blocks_are_not_repeated() -> None:
    x, y = te.placeholder((5, 64, 16), name="x"), te.placeholder((64, 80), name="y")
    blocked = te.create_prim_func([x, te.compute((64, 80), lambda i, j: x[j // 16, i, j % 16])])
    repeated = te.create_prim_func([x, y, te.compute((64, 80), lambda i, j: x[0, i, j % 16] + y[i, j])])
    assert [_period(blocks_of(f)[-1]) for f in (blocked, repeated)] == [0, 16]


@pytest.mark.parametrize("shape", [(96, 520), (2, 77, 77), (3, 5, 5), (7, 200)])
def test_a_triangle_knows_its_columns_without_division(shape: tuple[int, ...]) -> None:
    x = te.placeholder(shape, "int32", "x")
    data = np.random.default_rng(0).integers(-9, 99, shape).astype("int32")
    for name, reference in (("triu", np.triu), ("tril", np.tril)):
        compute = get_op(name).compute
        assert compute is not None
        func = te.create_prim_func([x, compute(x, k=1)])
        out = autosched.nd.empty(shape, "int32")
        autosched.build(func, target="cpu")(autosched.nd.array(data), out)
        np.testing.assert_array_equal(out.numpy(), reference(data, 1))
        assert shape[-1] < 16 or not divided_in_vectors(func)


@pytest.mark.parametrize("dtype", ["float32", "int8", "int64"])
@pytest.mark.parametrize("shape", [(3, 33, 2), (2, 5, 17, 4), (1, 1, 2), (300, 4)])
def test_vectors_of_whole_pairs(shape: tuple[int, ...], dtype: str) -> None:
    """In other order, one element for all of a pair, one pair for all: no vector ends within a row."""
    n = shape[-1]
    x, y = te.placeholder(shape, dtype, "x"), te.placeholder((*shape[:-1], 1), dtype, "y")
    z = te.placeholder((n,), dtype, "z")
    out = te.compute(shape, lambda *i: x(*i[:-1], n - 1 - i[-1]) * y(*i[:-1], 0) + x(*i) - z(i[-1]), name="out")
    func = te.create_prim_func([x, y, z, out])
    (block,) = blocks_of(func)
    assert _flat_axes(block, 64, 16)[0] == len(shape)
    rng = np.random.default_rng(0)
    a, b, c = (rng.integers(0, 9, s).astype(dtype) for s in (shape, (*shape[:-1], 1), (n,)))
    result = autosched.nd.empty(shape, dtype)
    autosched.build(func, target="cpu")(*map(autosched.nd.array, (a, b, c)), result)
    np.testing.assert_array_equal(result.numpy(), a[..., ::-1] * b + a - c)


def test_pairs_of_which_one_is_chosen_are_loops_of_their_own() -> None:
    a, b = te.placeholder((300,), name="a"), te.placeholder((300,), name="b")
    out = te.compute((300, 2), lambda i, j: E.select(j >= 1, b(i), a(i)), name="out")
    (block,) = blocks_of(te.create_prim_func([a, b, out]))
    assert _flat_axes(block, 64, 16)[0] == 1


@pytest.mark.parametrize(("mcpu", "rows", "lines"), [("znver4", 4096, 8), ("znver4", 8, 0), ("x86-64-v4", 4096, 0)])
def test_large_arrays_are_asked_for_ahead_where_the_second_level_waits_for_more(mcpu, rows, lines) -> None:
    """Each line of both arrays once, not the row that all share; also where axes are one loop."""
    x, y = (te.placeholder((rows // 4, 2, 8, 56), name=name) for name in "xy")
    z = te.placeholder((1, 1, 1, 56), name="z")
    func = te.create_prim_func([x, y, z, topi.add(topi.add(x, y), z)])
    target = autosched.Target(f"llvm -mcpu={mcpu} -l2-bytes=1048576")
    asm = compile_func(apply_config(func, default_config(func, target), target).func, target, name="k").asm
    assert asm.count("prefetcht1") == lines
