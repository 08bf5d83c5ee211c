"""expand_convolutions."""

import itertools

import numpy as np
import pytest

import autosched
from autosched import relax
from autosched.relax import TensorStructInfo, op
from autosched.relax.transform import ChooseLayouts, ExpandConvolutions
from autosched.relax.transform.expand_conv import taps_within
from tests.relax.transform.graphs import Weights, assert_same_results, calls, graph

W = Weights()


def test_one_dimension_becomes_a_row():
    before = graph(
        {"x": (2, 6, 17)},
        lambda bb, x: op.nn.relu(op.nn.conv1d(x, W(9, 2, 3), strides=2, padding=(1, 3), dilation=2, groups=3)),
    )
    after = ExpandConvolutions()(before)
    assert_same_results(before, after)
    assert calls(after) == ["expand_dims", "expand_dims", "nn.conv2d", "squeeze", "nn.relu"]


@pytest.mark.parametrize(
    ("kernel", "attrs"),
    [
        ((2, 2), {"strides": 2}),
        ((4, 4), {"strides": 2, "padding": 1}),
        ((3, 2), {"strides": (3, 1), "padding": (1, 0, 0, 1), "output_padding": (2, 0)}),
        ((3, 3), {"padding": 1}),
        ((1, 5), {"strides": (2, 3), "padding": (0, 2)}),
        ((3, 3), {"strides": 2, "groups": 2}),
    ],
)
def test_transposed_convolution_by_phases(kernel, attrs):
    weight = W(4, 3, *kernel)
    before = graph({"x": (2, 4, 5, 4)}, lambda bb, x: op.nn.conv2d_transpose(x, weight, **attrs))
    for keeps_images in (False, True):
        after = ExpandConvolutions(keeps_images)(before)
        assert_same_results(before, after)
        assert "nn.conv2d" in calls(after) and "nn.conv2d_transpose" not in calls(after)
        assert ("nn.depth_to_space" in calls(after)) == (keeps_images and "groups" not in attrs)
        assert_same_results(before, ChooseLayouts(4)(after))  # of three channels: written out in plain layout


@pytest.mark.parametrize(
    ("data", "weight", "attrs"),
    [
        ((2, 4, 9), (4, 3, 4), {"strides": 2, "padding": 1}),
        ((1, 4, 7), (4, 2, 5), {"strides": 3, "padding": (0, 2), "output_padding": 2, "groups": 2}),
        ((2, 4, 3, 4, 5), (4, 3, 2, 2, 2), {"strides": 2}),
        ((1, 4, 3, 2, 4), (4, 3, 3, 1, 3), {"strides": (2, 1, 3), "padding": (1, 0, 1), "output_padding": (1, 0, 0)}),
        ((1, 4, 2, 3, 4), (4, 2, 3, 3, 3), {"strides": (1, 2, 2), "padding": 1, "groups": 2}),
    ],
)
def test_transposed_convolution_over_lines_and_volumes(data, weight, attrs):
    w = W(*weight)
    transposed = op.nn.conv1d_transpose if len(data) == 3 else op.nn.conv3d_transpose
    before = graph({"x": data}, lambda bb, x: transposed(x, w, **attrs))
    after = ExpandConvolutions()(before)
    assert_same_results(before, after)
    assert not any("transpose" in name for name in calls(after))
    executable = autosched.build(before, checks=True)
    x = np.random.default_rng(2).standard_normal(data).astype(np.float32)
    want = transposed.run_reference([x, w.data], transposed(relax.const(x), w, **attrs).attrs)
    np.testing.assert_allclose(executable.run([x])[0].numpy(), want, rtol=0, atol=1e-4)


@pytest.mark.parametrize(
    ("size", "kernel", "attrs"),
    [
        ((1, 1), (4, 4), {}),
        ((1, 1), (4, 5), {"strides": 2, "padding": 1}),
        ((1, 3), (3, 4), {"strides": 2, "padding": (1, 0), "output_padding": 1}),
        ((2, 1), (5, 2), {"strides": (1, 3), "output_padding": (0, 2), "groups": 2}),
    ],
)
def test_one_pixel_meets_each_tap_once(size, kernel, attrs):
    weight = W(4, 3, *kernel)
    before = graph({"x": (2, 4, *size)}, lambda bb, x: op.nn.conv2d_transpose(x, weight, **attrs))
    after = ExpandConvolutions()(before)
    assert_same_results(before, after)
    assert "nn.conv2d" in calls(after) and "nn.conv2d_transpose" not in calls(after)
    x = np.random.default_rng(2).standard_normal((2, 4, *size)).astype(np.float32)
    transposed = op.nn.conv2d_transpose
    want = transposed.run_reference([x, weight.data], transposed(relax.const(x), weight, **attrs).attrs)
    np.testing.assert_allclose(autosched.build(before, checks=True).run([x])[0].numpy(), want, rtol=0, atol=1e-4)


def test_transposed_convolution_of_another_type():
    """Bytes are summed in the type that the call asks for."""
    weight = relax.const(np.full((2, 3, 2, 2), 100, np.int8))
    x = relax.Var("x", TensorStructInfo((1, 2, 3, 3), "int8"))
    bb = relax.BlockBuilder()
    with bb.function("main", [x]):
        with bb.dataflow():
            result = bb.emit_output(op.nn.conv2d_transpose(x, weight, strides=2, out_dtype="int32"))
        bb.emit_func_output(result)
    out = autosched.build(bb.get()).run([np.full((1, 2, 3, 3), 100, np.int8)])[0].numpy()
    assert out.dtype == np.int32 and np.all(out == 20_000)


def test_what_is_left():
    weight, dense = W(2, 3, 3, 3), W(4, 3, 3, 3)
    dilated = graph({"x": (1, 2, 5, 5)}, lambda bb, x: op.nn.conv2d_transpose(x, weight, dilation=2))
    assert ExpandConvolutions()(dilated) is dilated
    plain = graph({"x": (1, 3, 5, 5)}, lambda bb, x: op.nn.conv2d(x, dense))
    assert ExpandConvolutions()(plain) is plain


@pytest.mark.parametrize(
    ("size", "kernel", "attrs", "left"),
    [
        ((1, 1), (3, 3), {"padding": 1}, (1, 1)),
        ((2, 2), (3, 3), {"padding": 1, "strides": 2}, (2, 2)),
        ((1, 4), (3, 5), {"padding": (1, 2), "groups": 2}, (1, 5)),
        ((2, 3), (7, 3), {"padding": (3, 4, 5, 0)}, (5, 3)),
        ((3, 1), (4, 4), {"padding": (0, 3, 2, 1), "strides": (3, 1)}, (3, 2)),
        ((2, 1), (3, 2), {"padding": (4, 0, 4, 2), "strides": (1, 2), "dilation": (3, 1)}, (1, 1)),
    ],
)
def test_taps_that_meet_padding_alone_are_left_out(size, kernel, attrs, left):
    weight = W(6, 4 // attrs.get("groups", 1), *kernel)
    before = graph({"x": (2, 4, *size)}, lambda bb, x: op.nn.conv2d(x, weight, **attrs))
    after = ExpandConvolutions()(before)
    assert_same_results(before, after)
    (call,) = [b.value for b in after["main"].bindings() if b.value.op_name == "relax.nn.conv2d"]
    assert call.args[1].data.shape[2:] == left and min(call.attrs["padding"]) >= 0


@pytest.mark.parametrize(
    ("data", "weight", "left"), [((1, 3, 1), (4, 3, 3), (1,)), ((1, 1, 2, 2, 8), (4, 1, 9, 9, 1), (3, 3, 1))]
)
def test_windows_over_lines_and_volumes_are_cut_too(data, weight, left):
    w, convolve = W(*weight), op.nn.conv1d if len(data) == 3 else op.nn.conv3d
    before = graph({"x": data}, lambda bb, x: convolve(x, w, padding=tuple(k // 2 for k in weight[2:])))
    after = ExpandConvolutions()(before)
    assert_same_results(before, after)
    kept = [a.data.shape for b in after["main"].bindings() for a in b.value.args if isinstance(a, relax.Constant)]
    assert kept == [(*weight[:2], *left)]


def test_taps_that_meet_padding_of_another_value_stay():
    before = graph({"x": (1, 3, 1, 1)}, lambda bb, x: op.nn.conv2d(x, W(4, 3, 3, 3), padding=1, pad_value=7))
    assert ExpandConvolutions()(before) is before


def test_every_tap_that_meets_data_stays():
    """Along one axis, against counting."""
    for size, kernel, stride, dilation, before, after in itertools.product(
        (1, 2, 5), (1, 3, 4), (1, 2, 7), (1, 2), (0, 1, 4), (0, 2, 3)
    ):
        room = size + before + after - (kernel - 1) * dilation
        out = (room - 1) // stride + 1
        if room < 1:
            continue
        met = [k for k in range(kernel) if any(0 <= o * stride + k * dilation - before < size for o in range(out))]
        taps = taps_within(size, out, kernel, stride, dilation, (before, after))
        assert set(met) <= set(taps)
        assert before - taps.start * dilation >= 0 and after - (kernel - taps.stop) * dilation >= 0


@pytest.mark.parametrize("stride", [9, 2**31 - 1])
def test_strides_far_beyond_the_kernel_are_left(stride):
    """Weights for each phase would be as large as the stride."""
    weight = W(2, 3, 2, 2)
    before = graph(
        {"x": (1, 2, 1, 3)}, lambda bb, x: op.nn.relu(op.nn.conv2d_transpose(x, weight, strides=(stride, 1)))
    )
    after = ExpandConvolutions()(before)
    assert after is before
    assert_same_results(before, after)
