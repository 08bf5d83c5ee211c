"""Winograd's algorithm over images whose sizes come with the call, against NumPy in float64."""

from __future__ import annotations

import platform
import re
from typing import Any

import numpy as np
import pytest

import autosched
from autosched import relax
from autosched.codegen import counters
from autosched.relax.block_builder import BlockBuilder
from autosched.runtime.dynamic import DynamicExecutable
from autosched.runtime.kernel import Kernel
from autosched.target import Target
from autosched.templates.cpu.winograd_sized import Split
from autosched.tir import expr as E
from autosched.tir.expr import Var, const_int
from autosched.tir.simplify import Analyzer
from tests.spread import cover

OP, NN = relax.op, relax.op.nn
N, H, W = (Var(name, "int64") for name in "nhw")
SIZES = [(1, 1, 1), (1, 4, 4), (2, 5, 7), (3, 13, 9), (1, 33, 18), (2, 40, 31)]
PADS = {"same": (1, 1, 1, 1), "valid": (0, 0, 0, 0), "one side": (2, 0, 1, 2)}  # above, left, below, right


def made(
    weight: np.ndarray, pads: tuple[int, ...], image: tuple[Any, ...] = (N, H, W), accuracy: str = "fast",
    dilation: tuple[int, int] = (1, 1), stride: int = 1, target: str = "cpu",
) -> DynamicExecutable:  # fmt: skip
    """relu(convolution + bias) + itself: what is behind the convolution is computed with its tiles."""
    outputs, channels = weight.shape[:2]
    n, *sizes = image
    builder, x = BlockBuilder(), relax.Var("x", relax.TensorStructInfo((n, channels, *sizes), "float32"))
    with builder.function("main", [x]):
        with builder.dataflow():
            y = builder.emit(NN.conv2d(x, relax.const(weight), padding=pads, dilation=dilation, strides=stride))
            y = builder.emit(OP.add(y, relax.const(bias_of(outputs))))
            out = builder.emit_output(builder.emit(NN.relu(y)))
        builder.emit_func_output(out)
    built = autosched.build(builder.get(), target=Target(target), accuracy=accuracy)
    assert isinstance(built, DynamicExecutable), built.reason
    return built


def bias_of(outputs: int) -> np.ndarray:
    return np.linspace(-1, 1, outputs, dtype="float32").reshape(1, outputs, 1, 1)


def weight_of(outputs: int, channels: int) -> np.ndarray:
    rng = np.random.default_rng(outputs)
    return (rng.standard_normal((outputs, channels, 3, 3)) / np.sqrt(9 * channels)).astype("float32")


def convolved(
    x: np.ndarray, weight: np.ndarray, pads: tuple[int, ...], dilation: tuple[int, int] = (1, 1), stride: int = 1,
    bias: bool = True,
) -> np.ndarray:  # fmt: skip
    dy, dx = dilation
    padded = np.pad(x.astype(np.float64), ((0, 0), (0, 0), pads[::2], pads[1::2]))
    windows = np.lib.stride_tricks.sliding_window_view(padded, (2 * dy + 1, 2 * dx + 1), axis=(2, 3))
    windows = windows[:, :, ::stride, ::stride, ::dy, ::dx]
    sums = np.einsum("nchwij,ocij->nohw", windows, weight.astype(np.float64), optimize=True)
    return np.maximum(sums + bias * bias_of(len(weight)), 0)


def kernel_of(built: DynamicExecutable) -> Kernel:
    return next(kernel for name, kernel in built.kernels.items() if "conv2d" in name)


def check(
    built: DynamicExecutable, weight: np.ndarray, pads: tuple[int, ...], shape: tuple[int, ...],
    dilation: tuple[int, int] = (1, 1), stride: int = 1,
) -> None:  # fmt: skip
    n, h, w = shape
    x = np.random.default_rng(h).standard_normal((n, weight.shape[1], h, w)).astype("float32")
    expected = convolved(x, weight, pads, dilation, stride)
    np.testing.assert_allclose(built(x).numpy(), expected, atol=2e-5 * max(np.abs(expected).max(), 1), rtol=0)


@cover(("channels", [(16, 16), (40, 24), (24, 72)]), ("where", [*PADS]), together=1)
def test_results(channels: tuple[int, int], where: str) -> None:
    weight, pads = weight_of(*channels[::-1]), PADS[where]
    built = made(weight, pads)
    assert "products" in kernel_of(built).source
    assert not kernel_of(built).checks  # accesses are proved to stay inside
    before = counters.COMPILES.value
    for n, h, w in SIZES:
        check(built, weight, pads, (n, max(h, 3 - pads[0] - pads[2]), max(w, 3 - pads[1] - pads[3])))
    assert counters.COMPILES.value == before


@pytest.mark.parametrize("dilation", [(2, 2), (2, 1)], ids=str)
def test_dilated(dilation: tuple[int, int]) -> None:
    weight, pads = weight_of(24, 16), (1, dilation[1], 2, dilation[1])
    built = made(weight, pads, dilation=dilation)
    assert "products" in kernel_of(built).source and not kernel_of(built).checks
    for n, h, w in SIZES:
        check(built, weight, pads, (n, h + 1, w), dilation)


@pytest.mark.parametrize("channels, where", [((16, 24), "same"), ((96, 128), "one side")])
def test_every_second_pixel(channels: tuple[int, int], where: str) -> None:
    weight, pads = weight_of(*channels[::-1]), PADS[where]
    built = made(weight, pads, stride=2)
    assert "products" in kernel_of(built).source and not kernel_of(built).checks
    for n, h, w in SIZES:
        check(built, weight, pads, (n, h, w + 1), stride=2)


def test_layers_of_several_widths_share_a_kernel() -> None:
    """Numbers of channels come with the call; where a layer's input is added to its result, both are one number."""
    builder, x = BlockBuilder(), relax.Var("x", relax.TensorStructInfo((1, 32, H, W), "float32"))
    weights = [weight_of(o, i) for o, i in ((64, 32), (96, 64), (96, 96), (96, 96))]
    with builder.function("main", [x]):
        with builder.dataflow():
            y = x
            for n, weight in enumerate(weights):
                z = builder.emit(NN.relu(builder.emit(NN.conv2d(y, relax.const(weight), padding=(1, 1, 1, 1)))))
                y = builder.emit(OP.add(z, y)) if n > 1 else z
            out = builder.emit_output(y)
        builder.emit_func_output(out)
    # A smaller second-level cache holds the weights of some of these layers alone: other kernels then.
    target = Target(f"{Target('cpu')} -l2-bytes=2097152")
    before = counters.COMPILES.value
    built = autosched.build(builder.get(), target=target)
    assert isinstance(built, DynamicExecutable), built.reason
    found = [kernel.source for name, kernel in built.kernels.items() if "conv2d" in name]
    assert all("products" in source for source in found)
    assert counters.COMPILES.value - before <= len(built.kernels) - 1
    for h, w in ((9, 13), (30, 21)):
        value = np.random.default_rng(h).standard_normal((1, 32, h, w)).astype("float32")
        expected = value.astype(np.float64)
        for n, weight in enumerate(weights):
            once = np.maximum(convolved(expected, weight, PADS["same"], bias=False), 0)
            expected = once + expected if n > 1 else once
        np.testing.assert_allclose(built(value).numpy(), expected, atol=2e-5 * np.abs(expected).max(), rtol=0)


def test_register_tiles_of_a_block() -> None:
    """They are numbered in turn: each asks for another part of the next weights."""
    for count, most in ((1, 14), (25, 14), (28, 14), (27, 6), (5, 2)):
        n = -(-count // most)
        split = Split(*(E.const(v, "int64") for v in (count, n, count // n, count % n)))  # type: ignore[arg-type]
        found = []
        for rows in range(most, 0, -1):
            first, times = (const_int(Analyzer().simplify(e)) or 0 for e in split.tiles_of(rows))
            found += [(first + t, rows) for t in range(times)]
        assert [number for number, _ in found] == [*range(n)]
        assert sum(rows for _, rows in found) == count


@pytest.mark.skipif(platform.machine() != "x86_64", reason="vectors of x86-64")
def test_panels_of_less_than_a_cache_line() -> None:
    """Weights for short vectors are asked for ahead too."""
    weight = weight_of(64, 64)
    built = made(weight, PADS["same"], (1, H, W), target="cpu -mcpu=x86-64")
    assert "products" in kernel_of(built).source
    check(built, weight, PADS["same"], (1, 9, 14))


def test_many_weights() -> None:
    """Inputs are transformed in a phase of their own, where all tiles are one block."""
    weight = weight_of(128, 128)
    built = made(weight, PADS["same"])
    assert "common_inputs" in kernel_of(built).source
    for shape in [(1, 2, 3), (1, 14, 14), (2, 19, 30), (1, 120, 70)]:
        check(built, weight, PADS["same"], shape)


@pytest.mark.parametrize("channels, stride", [(96, 1), (160, 2)])
def test_few_tiles(channels: int, stride: int) -> None:
    """Where a few tiles meet many weights, these are transformed where they are read: all numbers of tiles."""
    weight = weight_of(channels, channels)
    built = made(weight, PADS["same"], stride=stride)
    source = kernel_of(built).source
    has_few = "few_products" in source
    assert has_few == (Target("cpu").num_registers >= 32)
    if has_few:  # weights are far: that is the second number behind a place
        asked = re.findall(r"prefetch\(\w+_packed\[[^]]*\], 0, (\d), ", source)
        assert asked and set(asked) == {"1"}
    for shape in [
        (1, 1, 2),
        (1, 4, 5),
        (3, 2, 2),
        (1, 7, 7),
        (1, 3, 17),
        (2, 8, 12),
        (7, 4, 3),
        (1, 8, 16),
        (1, 9, 12),
        (1, 13, 13),
    ]:
        check(built, weight, PADS["same"], shape, stride=stride)


@pytest.mark.parametrize("image", [(1, H, W), (2, 21, W), (N, H, 6)], ids=["one image", "rows", "columns"])
def test_sizes_that_are_known(image: tuple[Any, ...]) -> None:
    weight = weight_of(32, 32)
    built = made(weight, PADS["same"], image)
    assert "products" in kernel_of(built).source
    assert not kernel_of(built).checks
    for sizes in [(1, 5, 3), (3, 9, 31)]:
        shape = tuple(x if isinstance(x, int) else size for x, size in zip(image, sizes, strict=True))
        check(built, weight, PADS["same"], shape)


def test_strict_accuracy_has_smaller_tiles() -> None:
    weight = weight_of(32, 32)
    built = made(weight, PADS["same"], accuracy="strict")
    assert "(h + 1) // 2" in kernel_of(built).source
    check(built, weight, PADS["same"], (2, 11, 14))
