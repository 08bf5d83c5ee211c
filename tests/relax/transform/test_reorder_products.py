"""Products in another order, sums and moves on the other side of them."""

from __future__ import annotations

import numpy as np
import pytest

import autosched
from autosched import relax
from autosched.ir import IRModule
from autosched.relax import transform
from autosched.relax.expr import Call
from autosched.script import from_source


def module(params: dict[str, tuple[object, ...]], lines: list[str], attrs: str = "") -> IRModule:
    """A module of a function over float32 tensors (int64 for `places`) whose last line binds `out`."""
    signature = ", ".join(
        f'{n}: R.Tensor({list(s)!r}, "{"int64" if n == "places" else "float32"}")' for n, s in params.items()
    )
    symbols = [f"{d} = T.int64()" for d in dict.fromkeys(d for s in params.values() for d in s if isinstance(d, str))]
    body = [*([f"R.func_attr({attrs})"] if attrs else []), *symbols, "with R.dataflow():"]
    body += [f"    {line}" for line in (*lines, "R.output(out)")] + ["return out"]
    return IRModule({"main": from_source(f"@R.function\ndef main({signature}):\n    " + "\n    ".join(body) + "\n")})


def calls(mod: IRModule) -> list[tuple[str, list[str]]]:
    """(operator, names of the variables that it reads) of each binding."""
    found = []
    for b in mod["main"].bindings():
        assert isinstance(b.value, Call)
        args = [f for a in b.value.args for f in getattr(a, "fields", (a,))]
        found.append((b.value.op_name.removeprefix("relax."), [getattr(a, "name", "") for a in args]))
    return found


def run(mod: IRModule, *shapes: tuple[int, ...]) -> np.ndarray:
    rng = np.random.default_rng(0)
    arrays = [
        rng.standard_normal(s).astype("float32") if p.name != "places" else rng.integers(0, 5, s)
        for p, s in zip(mod["main"].params, shapes, strict=True)
    ]
    built = relax.VirtualMachine(relax.build(mod, "llvm"), autosched.cpu())
    result: np.ndarray = built["main"](*map(autosched.nd.array, arrays)).numpy()
    return result


def same_result(before: IRModule, after: IRModule, *shapes: tuple[int, ...]) -> None:
    np.testing.assert_allclose(run(after, *shapes), run(before, *shapes), rtol=1e-4, atol=1e-4)


def test_products_with_narrow_matrices_go_first() -> None:
    left = module({"x": (12,), "a": (12, 2), "b": (2, 20)}, ["w = R.matmul(a, b)", "out = R.matmul(x, w)"])
    made = transform.AdjustMatmulOrder()(left)
    assert [args for _, args in calls(made)] == [["x", "a"], ["lv", "b"]]
    same_result(left, made, (12,), (12, 2), (2, 20))
    assert transform.AdjustMatmulOrder()(made) is made
    right = module({"a": (30, 3), "b": (3, 12), "x": (5, 12, 1)}, ["w = R.matmul(a, b)", "out = R.matmul(w, x)"])
    made = transform.AdjustMatmulOrder()(right)
    assert [args for _, args in calls(made)] == [["b", "x"], ["a", "lv"]]
    same_result(right, made, (30, 3), (3, 12), (5, 12, 1))


def test_what_is_known_of_weights_is_computed_once() -> None:
    early = module(
        {"x": (12,), "a": (12, 2), "b": (2, 20)}, ["w = R.matmul(a, b)", "out = R.matmul(x, w)"], '{"num_input": 1}'
    )
    assert transform.AdjustMatmulOrder()(early) is early
    late = module(
        {"x": (4, 12), "a": (12, 40), "b": (40, 20)}, ["y = R.matmul(x, a)", "out = R.matmul(y, b)"], '{"num_input": 1}'
    )
    made = transform.AdjustMatmulOrder()(late)
    assert [args for _, args in calls(made)] == [["a", "b"], ["x", "lv"]]
    same_result(late, made, (4, 12), (12, 40), (40, 20))


def test_open_sizes_decide_only_where_the_order_is_better_for_all() -> None:
    rank = module({"x": (16,), "a": (16, "r"), "b": ("r", 32)}, ["w = R.matmul(a, b)", "out = R.matmul(x, w)"])
    assert [args for _, args in calls(transform.AdjustMatmulOrder()(rank))] == [["x", "a"], ["lv", "b"]]
    open_ = module({"a": ("m", "n"), "b": ("n", "p"), "c": ("p", "q")}, ["w = R.matmul(b, c)", "out = R.matmul(a, w)"])
    assert transform.AdjustMatmulOrder()(open_) is open_


def test_products_that_are_not_associative_stay() -> None:
    batches = module({"x": (12,), "a": (3, 12, 2), "b": (3, 2, 20)}, ["w = R.matmul(a, b)", "out = R.matmul(x, w)"])
    assert transform.AdjustMatmulOrder()(batches) is batches
    dot = module({"a": (9, 4), "b": (4,), "c": (9, 6)}, ["w = R.matmul(a, b)", "out = R.matmul(w, c)"])
    assert transform.AdjustMatmulOrder()(dot) is dot


@pytest.mark.parametrize("turned", [False, True])
def test_expand_matmul_of_sum(turned: bool) -> None:
    shape = (8, 6) if turned else (6, 8)
    lines = [
        "w = R.add(a, b)",
        *(["v = R.permute_dims(w)"] if turned else []),
        f"out = R.matmul(x, {'v' if turned else 'w'})",
    ]
    mod = module({"x": (3, 6), "a": shape, "b": shape}, lines)
    made = transform.ExpandMatmulOfSum()(mod)
    assert [name for name, _ in calls(made)].count("matmul") == 2 and calls(made)[-1][0] == "add"
    same_result(mod, made, (3, 6), shape, shape)
    early = module({"x": (3, 6), "a": shape, "b": shape}, lines, '{"num_input": 1}')
    assert transform.ExpandMatmulOfSum()(early) is early


def test_sums_that_broadcast_are_not_expanded() -> None:
    mod = module({"x": (3, 6), "a": (6, 8), "b": (8,)}, ["w = R.add(a, b)", "out = R.matmul(x, w)"])
    assert transform.ExpandMatmulOfSum()(mod) is mod


def test_reorder_permute_dims_after_concat() -> None:
    turn = "R.permute_dims({}, axes=[0, 2, 3, 1])"
    mod = module(
        {"x": (1, 4, 5, 6), "y": (1, 3, 5, 6)},
        [f"a = {turn.format('x')}", f"b = {turn.format('y')}", "out = R.concat((a, b), axis=-1)"],
    )
    made = transform.ReorderPermuteDimsAfterConcat()(mod)
    assert calls(made) == [("concat", ["x", "y"]), ("permute_dims", ["lv"])]
    same_result(mod, made, (1, 4, 5, 6), (1, 3, 5, 6))
    mixed = module(
        {"x": (4, 5), "y": (3, 4)},
        ["a = R.permute_dims(x)", "b = R.permute_dims(y, axes=[1, 0])", "c = R.permute_dims(y, axes=[0, 1])",
         "d = R.concat((a, a), axis=1)", "e = R.concat((b, b), axis=0)", "f = R.matmul(d, e)",
         "g = R.concat((c, c), axis=1)", "out = R.matmul(f, g)"],
    )  # fmt: skip
    made = transform.ReorderPermuteDimsAfterConcat()(mixed)
    same_result(mixed, made, (4, 5), (3, 4))


def test_different_transpositions_stay() -> None:
    mod = module(
        {"x": (4, 4), "y": (4, 4)},
        ["a = R.permute_dims(x, axes=[0, 1])", "b = R.permute_dims(y)", "out = R.concat((a, b), axis=0)"],
    )
    assert transform.ReorderPermuteDimsAfterConcat()(mod) is mod


def test_reorder_take_after_matmul() -> None:
    mod = module(
        {"x": (2, 3, 6), "w": (6, 9), "places": (4,)}, ["v = R.take(w, places, axis=1)", "out = R.matmul(x, v)"]
    )
    made = transform.ReorderTakeAfterMatmul()(mod)
    assert [name for name, _ in calls(made)] == ["matmul", "take"]
    same_result(mod, made, (2, 3, 6), (6, 9), (4,))
    rows = module({"x": (2, 4), "w": (9, 8), "places": (4,)}, ["v = R.take(w, places, axis=0)", "out = R.matmul(x, v)"])
    assert transform.ReorderTakeAfterMatmul()(rows) is rows
