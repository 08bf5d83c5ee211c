"""Which convolutions and products are converted to bfloat16, and what reads images as such."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import ml_dtypes  # noqa: F401  (NumPy then knows bfloat16)
import numpy as np
import pytest

from autosched.ir import IRModule
from autosched.relax import op
from autosched.relax.evaluate import evaluate
from autosched.relax.expr import Call
from autosched.relax.transform import AddBytes, DeadCodeElimination
from autosched.relax.transform.narrow_products import narrow_products
from autosched.target import Target
from autosched.templates import narrows_attention, narrows_convolution, streams_bfloat16
from tests.relax.transform.graphs import Weights, calls, graph

W = Weights()
ALL: Callable[[Sequence[int], Sequence[int], int], bool] = lambda weight, strides, groups: True  # noqa: E731


def narrowed(build: Callable[..., Any], shape: tuple[int, ...] = (1, 8, 6, 6), narrows: Any = ALL) -> IRModule:
    """The module after the passes, whose results have been compared with the original's."""
    module = graph({"x": shape}, build)
    result = DeadCodeElimination()(AddBytes()(narrow_products(module, narrows)))
    x = np.random.default_rng(0).standard_normal(shape).astype("f4")
    wanted, got = (np.asarray(evaluate(m, {"x": x})) for m in (module, result))
    assert got.dtype == wanted.dtype == np.float32
    assert np.abs(got - wanted).max() <= 0.02 * np.abs(wanted).max()
    return result


def types(module: IRModule, name: str) -> list[list[str]]:
    """The types of the arguments and of the result of the calls of an operator."""
    values = [b.value for b in module["main"].bindings() if isinstance(b.value, Call)]
    return [[x.struct_info.dtype for x in (*v.args, v)] for v in values if v.op_name == f"relax.{name}"]


def block(bb: Any, x: Any) -> Any:
    """Two convolutions with a shortcut around them."""
    first = bb.emit(op.nn.relu(op.nn.conv2d(x, W(8, 8, 3, 3), padding=1)))
    second = bb.emit(op.nn.conv2d(first, W(8, 8, 3, 3), padding=1))
    third = bb.emit(op.nn.relu(op.add(second, first)))
    return op.nn.conv2d(third, W(4, 8, 1, 1))


def test_a_sum_reads_what_the_convolution_beside_it_reads() -> None:
    module = narrowed(block)
    assert types(module, "nn.conv2d") == [["bfloat16", "bfloat16", "float32"]] * 3
    assert types(module, "add_widened") == [["float32", "bfloat16", "float32"]]
    assert calls(module).count("astype") == 3, "each image is rounded once, and not widened by itself"


def test_maxima_and_concatenations_work_on_it() -> None:
    def build(bb: Any, x: Any) -> Any:
        parts = [bb.emit(op.nn.conv2d(x, W(8, 8, 1, 1))) for _ in range(2)]
        pooled = bb.emit(op.nn.max_pool2d(bb.emit(op.concat(parts, axis=1)), pool_size=2, strides=2, padding=1))
        return op.nn.conv2d(pooled, W(4, 16, 1, 1))

    module = narrowed(build)
    assert types(module, "nn.max_pool2d") == [["bfloat16", "bfloat16"]]
    assert calls(module).count("concat") == 1 and types(module, "astype")[-1] == ["float32", "bfloat16"]


def test_a_maximum_that_others_read_is_one_of_floats() -> None:
    def build(bb: Any, x: Any) -> Any:
        pooled = bb.emit(op.nn.max_pool2d(bb.emit(op.nn.relu(x)), pool_size=2, strides=2))
        return op.multiply(bb.emit(op.nn.conv2d(pooled, W(8, 8, 1, 1))), pooled)

    assert types(narrowed(build), "nn.max_pool2d") == [["float32", "float32"]]


def test_weights_of_each_channel_stay_float32() -> None:
    module = narrowed(lambda bb, x: op.nn.conv2d(x, W(8, 1, 3, 3), padding=1, groups=8))
    assert types(module, "nn.conv2d") == [["bfloat16", "float32", "float32"]]


def test_what_is_not_faster_stays_as_it_is() -> None:
    assert types(narrowed(block, narrows=None), "nn.conv2d") == [["float32"] * 3] * 3
    only_one = narrowed(block, narrows=lambda weight, strides, groups: weight[2] == 1)
    assert [t[0] for t in types(only_one, "nn.conv2d")] == ["float32", "float32", "bfloat16"]


def test_rows_that_are_faster_as_float32_are_rounded_all_the_same() -> None:
    """The factors hold the same numbers; rows are rounded once for all products that read them."""
    weights = [W(8, 8), W(8, 8)]

    def build(bb: Any, x: Any) -> Any:
        y = bb.emit(op.nn.relu(x))
        return op.add(bb.emit(op.matmul(y, weights[0])), bb.emit(op.matmul(y, weights[1])))

    module = graph({"x": (2, 3, 8)}, build)
    asked: list[int] = []
    wide, narrow = (narrow_products(module, None, lambda rows, yes=yes: asked.append(rows) or yes) for yes in (0, 1))
    assert asked == [6] * 4
    assert types(wide, "matmul") == [["float32"] * 3] * 2 and calls(wide).count("astype") == 2
    assert types(narrow, "matmul") == [["bfloat16", "bfloat16", "float32"]] * 2
    x = {"x": np.random.default_rng(0).standard_normal((2, 3, 8)).astype("f4")}
    np.testing.assert_allclose(*(np.asarray(evaluate(m, x)) for m in (wide, narrow)), rtol=1e-6, atol=1e-6)
    assert np.abs(np.asarray(evaluate(module, x)) - np.asarray(evaluate(wide, x))).max() > 1e-4


def test_attention_reads_rounded_heads_and_is_float32_inside() -> None:
    def build(bb: Any, x: Any) -> Any:
        return op.nn.attention(x, bb.emit(op.nn.relu(x)), x, W(1, 1, 8, 8))

    module = graph({"x": (1, 8, 2, 16)}, build)
    asked: list[tuple[int, int]] = []
    wide, narrow = (
        narrow_products(module, attends=lambda *n, yes=yes: asked.append(n) or yes)  # type: ignore[misc, func-returns-value]
        for yes in (False, True)
    )
    assert asked == [(8, 8)] * 2 and types(wide, "nn.attention_bias") == [["float32"] * 5]
    assert types(narrow, "nn.attention_bias") == [["bfloat16"] * 3 + ["float32"] * 2]
    assert calls(narrow).count("astype") == 2, "x is rounded once"
    x = {"x": np.random.default_rng(0).standard_normal((1, 8, 2, 16)).astype("f4")}
    np.testing.assert_allclose(*(np.asarray(evaluate(m, x)) for m in (wide, narrow)), atol=0.02)
    assert types(narrow_products(module), "nn.attention_bias") == types(wide, "nn.attention_bias")


CASES = {
    "pointwise": ((64, 64, 1, 1), (1, 1), 1),
    "winograd": ((64, 64, 3, 3), (1, 1), 1),
    "strided": ((64, 64, 3, 3), (2, 2), 1),
    "first": ((64, 3, 7, 7), (2, 2), 1),
    "small first": ((64, 3, 3, 3), (2, 2), 1),
}


@pytest.mark.parametrize(
    ("mcpu", "wanted"),
    [
        ("sapphirerapids", "pointwise winograd strided first"),
        ("znver4", "pointwise strided"),
        ("x86-64-v4", ""),
        ("x86-64-v3", ""),
    ],
)
def test_what_is_faster_depends_on_the_cpu(mcpu: str, wanted: str) -> None:
    target = Target(f"llvm -mcpu={mcpu}")
    assert " ".join(name for name, case in CASES.items() if narrows_convolution(target, *case)) == wanted
    assert not narrows_convolution(Target("cuda -arch=sm_90a"), (64, 64, 1, 1), (1, 1), 1)


@pytest.mark.parametrize(("mcpu", "wanted"), [("sapphirerapids", True), ("znver4", False), ("x86-64-v3", False)])
def test_attention_is_narrowed_where_tiles_multiply(mcpu: str, wanted: bool) -> None:
    target = Target(f"llvm -mcpu={mcpu}")
    assert narrows_attention(target, 128, 128) == wanted and not narrows_attention(target, 1, 128)
    assert not narrows_attention(Target("cuda -arch=sm_90a"), 128, 128)


@pytest.mark.parametrize("mcpu", ["sapphirerapids", "znver4", "x86-64-v4", "x86-64-v3"])
def test_many_rows_are_multiplied_as_float32_where_words_are_unpacked(mcpu: str) -> None:
    """So are rows whose number is known only when the model runs where there is an instruction for them."""
    target, has_dots = Target(f"llvm -mcpu={mcpu}"), mcpu in ("sapphirerapids", "znver4")
    assert [streams_bfloat16(target, rows) for rows in (0, 1, 16, 128)] == [True, True, True, has_dots]
    assert streams_bfloat16(Target("cuda -arch=sm_90a"), 128)
