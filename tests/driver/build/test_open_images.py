"""Models over images whose height and width come with the call: one build, right at every size, no compile after it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import autosched
from autosched import relax
from autosched.codegen import counters
from autosched.errors import ShapeError
from autosched.ir import IRModule
from autosched.relax.block_builder import BlockBuilder
from autosched.relax.transform.bind_symbolic import BindSymbolicVars, symbolic_dims
from autosched.runtime.dynamic import DynamicExecutable
from autosched.tir.expr import Var
from tests.spread import spread

OP, NN = relax.op, relax.op.nn
N, H, W = (Var(name, "int64") for name in "nhw")
SIZES = [(1, 1), (2, 1), (3, 5), (7, 7), (8, 13), (17, 9), (33, 31), (6, 83)]
Body = Callable[[Callable[[Any], Any], Any], Any]


def weight(*shape: int) -> relax.Constant:
    return relax.const((np.random.default_rng(sum(shape)).standard_normal(shape) * 0.3).astype("float32"))


def images(channels: int, body: Body, batch: Any = 1) -> IRModule:
    builder, x = BlockBuilder(), relax.Var("x", relax.TensorStructInfo((batch, channels, H, W), "float32"))
    with builder.function("main", [x]):
        with builder.dataflow():
            out = builder.emit_output(body(builder.emit, x))
        builder.emit_func_output(out)
    return builder.get()


def reference(module: IRModule, x: np.ndarray) -> Any:
    symbols = {v.name for v in symbolic_dims(module["main"])}
    sizes = {name: n for name, n in zip("nhw", (len(x), *x.shape[2:])) if name in symbols}
    return relax.evaluate(BindSymbolicVars(sizes)(module), [x.astype("float64")], dtype="float64")


def once(module: IRModule) -> DynamicExecutable:
    built = autosched.build(module)
    assert isinstance(built, DynamicExecutable), built.reason
    return built


def conv(
    channels: int, out: int, kernel: int, after: Callable[[Any, Any], Any] = lambda e, y: y, **attrs: Any
) -> tuple[int, Body]:
    """A convolution with a bias, and what follows it."""
    groups = attrs.get("groups", 1)

    def body(emit: Callable[[Any], Any], x: Any) -> Any:
        y = emit(NN.conv2d(x, weight(out, channels // groups, kernel, kernel), **attrs))
        return after(emit, emit(OP.add(y, weight(1, out, 1, 1))))

    return channels, body


def residual(emit: Callable[[Any], Any], x: Any) -> Any:
    y = emit(NN.relu(emit(NN.conv2d(x, weight(16, 16, 3, 3), padding=1))))
    y = emit(NN.silu(emit(OP.add(x, emit(NN.conv2d(y, weight(16, 16, 3, 3), padding=1))))))
    return emit(NN.conv2d(y, weight(40, 16, 1, 1)))


def branches(emit: Callable[[Any], Any], x: Any) -> Any:
    parts = [emit(NN.conv2d(x, weight(16, 16, k, k), padding=k // 2)) for k in (1, 3)]
    y = emit(NN.conv2d(emit(OP.concat(parts, 1)), weight(20, 32, 1, 1)))
    return emit(NN.softmax(y, 1))


def depthwise(kernel: int, **attrs: Any) -> tuple[int, Body]:
    """A depthwise convolution of blocks of channels between others."""

    def body(emit: Callable[[Any], Any], x: Any) -> Any:
        y = emit(NN.relu(emit(NN.conv2d(x, weight(40, 16, 1, 1)))))
        y = emit(NN.silu(emit(NN.conv2d(y, weight(40, 1, kernel, kernel), groups=40, **attrs))))
        return emit(NN.conv2d(y, weight(16, 40, 1, 1)))

    return 16, body


def added_image(emit: Callable[[Any], Any], x: Any) -> Any:
    """A depthwise convolution, to which the image is added that the 1x1 convolution before it reads."""
    x = emit(NN.conv2d(x, weight(64, 64, 1, 1)))
    y = emit(NN.relu(emit(OP.add(emit(NN.conv2d(x, weight(64, 64, 1, 1))), x))))
    y = emit(NN.relu(emit(OP.add(emit(NN.conv2d(y, weight(64, 1, 3, 3), groups=64, padding=1)), x))))
    return emit(NN.conv2d(y, weight(64, 64, 1, 1)))


CASES: dict[str, tuple[int, Body]] = {
    "3x3": conv(16, 48, 3, padding=1),
    "first layer": conv(3, 32, 7, strides=2, padding=3),
    "1x1": conv(32, 80, 1),
    "1x1 of every second pixel": conv(16, 80, 1, strides=2),
    "dilated": conv(16, 16, 3, padding=2, dilation=2),
    "few channels": conv(5, 3, 3, padding=1),
    "depthwise": conv(32, 32, 3, groups=32, padding=1),
    "depthwise, wide window": conv(16, 16, 5, groups=16, padding=2, strides=2),
    "depthwise, 7x7": conv(3, 3, 7, lambda e, y: e(NN.relu(y)), groups=3, padding=3),
    "depthwise between others": depthwise(3, padding=(1, 0, 3, 2), dilation=(2, 1)),
    "depthwise between others, wide window": depthwise(5, padding=2, strides=(2, 1)),
    "depthwise between others, and a sum": (64, added_image),
    "groups of blocks": conv(32, 32, 3, groups=2, padding=1),
    "groups of few channels": conv(6, 9, 3, groups=3, padding=1),
    "one row of padding": conv(16, 16, 3, padding=(0, 1, 2, 1)),
    "residual": (16, residual),
    "branches": (16, branches),
    "mean of windows": conv(8, 16, 1, lambda e, y: e(NN.avg_pool2d(y, 3, strides=2, padding=1))),
    "largest of wide windows": conv(8, 16, 1, lambda e, y: e(NN.max_pool2d(y, 5, padding=2))),
    "largest of windows": conv(8, 16, 1, lambda e, y: e(NN.max_pool2d(y, 3, strides=2, padding=1))),
    "window that ends outside": (
        3, lambda e, x: e(NN.max_pool2d(x, 2, strides=2, ceil_mode=True, padding=(0, 0, 1, 1))),
    ),
    "mean of a window that ends outside": (
        3, lambda e, x: e(NN.avg_pool2d(x, 2, strides=3, ceil_mode=True, padding=(1, 1, 1, 1))),
    ),
    "whole image": conv(8, 16, 1, lambda e, y: e(NN.adaptive_avg_pool2d(y, 1))),
    "three by two windows": (3, lambda e, x: e(NN.adaptive_avg_pool2d(x, (3, 2)))),
    "transposed": (16, lambda e, x: e(NN.conv2d_transpose(x, weight(16, 8, 2, 2), strides=2))),
    "transposed, cut": (
        4, lambda e, x: e(NN.conv2d_transpose(x, weight(4, 6, 3, 3), strides=2, padding=1, output_padding=1)),
    ),
    "twice as large": (
        3, lambda e, x: e(OP.image.resize2d(
            x, relax.ShapeExpr((H * 2, W * 2)), method="nearest_neighbor", rounding_method="floor",
            coordinate_transformation_mode="asymmetric",
        )),
    ),
    "between pixels": (3, lambda e, x: e(OP.image.resize2d(x, relax.ShapeExpr((H * 2 + 1, W + 3))))),
    "corners stay": (
        3, lambda e, x: e(OP.image.resize2d(
            x, relax.ShapeExpr((H * 3, W)), coordinate_transformation_mode="align_corners",
        )),
    ),
    "border": (3, lambda e, x: e(NN.pad(x, pad_width=(0, 0, 0, 0, 1, 2, 0, 3), pad_value=1.5))),
    "batch": (
        2, lambda e, x: e(NN.batch_norm(
            x, *[weight(2)] * 3, relax.const(np.ones(2, "float32")), axis=1, training=False,
        ))[0],
    ),
}  # fmt: skip


@spread(3, "name", CASES)
def test_every_size(name: str) -> None:
    channels, body = CASES[name]
    module = images(channels, body)
    built = once(module)
    before = counters.COMPILES.value
    for h, w in SIZES:
        x = np.random.default_rng(h).standard_normal((1, channels, h, w)).astype("float32")
        try:
            want = reference(module, x)
        except ShapeError:
            with pytest.raises(ShapeError):
                built(x)
            continue
        np.testing.assert_allclose(built(x).numpy(), want, rtol=1e-4, atol=1e-4, err_msg=f"{h} x {w}")
    assert counters.COMPILES.value == before


def test_shapes_that_are_equal_by_a_limit_alone() -> None:
    """A view whose elements are as many by what each call's sizes have to be."""

    def body(emit: Callable[[Any], Any], x: Any) -> Any:
        y = emit(OP.reshape(emit(OP.exp(x)), relax.ShapeExpr((1, 4, H // 2 * 2, W))))
        return emit(OP.add(y, weight(1, 4, 1, 1)))

    built = once(images(4, body))
    x = np.ones((1, 4, 6, 3), "float32")
    np.testing.assert_allclose(built(x).numpy(), np.exp(x) + weight(1, 4, 1, 1).data, rtol=1e-5)
    with pytest.raises(ShapeError, match="h"):
        built(x[:, :, :5])


def test_open_batch_and_images() -> None:
    module = images(*conv(16, 32, 3, padding=1), batch=N)
    built = once(module)
    for n, h, w in ((1, 3, 4), (3, 9, 5), (2, 1, 1)):
        x = np.random.default_rng(n).standard_normal((n, 16, h, w)).astype("float32")
        np.testing.assert_allclose(built(x).numpy(), reference(module, x), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("strides", [1, 2])
def test_hidden_images_in_parts(strides: int) -> None:
    """Where a 1x1 convolution and a depthwise one are one kernel, wide images are computed some rows at a time."""
    module = images(*depthwise(3, padding=1, strides=strides), batch=N)
    built = once(module)
    assert [name.count("conv2d") for name in built.kernels].count(2) == 1, "one kernel of two convolutions"
    for n, h, w in ((1, 24, 1000), (2, 7, 1301), (1, 1, 1500), (2, 5, 2)):
        x = np.random.default_rng(h).standard_normal((n, 16, h, w)).astype("float32")
        np.testing.assert_allclose(built(x).numpy(), reference(module, x), rtol=1e-4, atol=1e-4, err_msg=f"{h} x {w}")


def test_all_accesses_are_checked_where_sizes_are_computed() -> None:
    """The size of what a fused kernel keeps is a scalar among vectors."""
    module = images(*depthwise(3, padding=1))
    x = np.random.default_rng(0).standard_normal((1, 16, 5, 7)).astype("float32")
    found = autosched.build(module, target="cpu", checks=True)(x)
    np.testing.assert_allclose(found.numpy(), reference(module, x), rtol=1e-3, atol=1e-4)


def test_images_below_the_window_are_refused() -> None:
    built = once(images(*conv(4, 16, 5)))
    assert built(np.zeros((1, 4, 5, 6), "float32")).shape == (1, 16, 1, 2)
    with pytest.raises(ShapeError, match="'h' is 4, and the model is built for at least 5"):
        built(np.zeros((1, 4, 4, 6), "float32"))


def test_memory_is_that_of_the_largest_image() -> None:
    built = once(images(16, residual))
    executor = built.create_executor(1)
    sizes = [(40, 40), (3, 5), (17, 40), (39, 1), (40, 40)]
    seen = []
    for h, w in sizes:
        executor.run(built.check_inputs((np.zeros((1, 16, h, w), "float32"),), {}))
        seen.append((executor._memory.arena(0).nbytes, executor._memory.scratch(0).nbytes))
    assert len(set(seen)) == 1
