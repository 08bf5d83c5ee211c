"""torchvision's operators against their definitions; where torchvision is missing, operators of the same schemas."""

import contextlib
import itertools
import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import autosched
from autosched.driver.build.torch_programs import LateProgram

torch = pytest.importorskip("torch")

SCHEMAS = (
    "roi_align(Tensor input, Tensor rois, float spatial_scale, SymInt pooled_height, SymInt pooled_width, "
    "int sampling_ratio, bool aligned) -> Tensor",
    "deform_conv2d(Tensor input, Tensor weight, Tensor offset, Tensor mask, Tensor bias, SymInt stride_h, "
    "SymInt stride_w, SymInt pad_h, SymInt pad_w, SymInt dilation_h, SymInt dilation_w, SymInt groups, "
    "SymInt offset_groups, bool use_mask) -> Tensor",
    "nms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
)


def sample(image: Any, y: float, x: float) -> Any:
    """[C]: an image between its pixels, zeros outside."""
    height, width = image.shape[1:]
    total = torch.zeros(image.shape[0], dtype=image.dtype)
    for row, column in itertools.product((math.floor(y), math.floor(y) + 1), (math.floor(x), math.floor(x) + 1)):
        if 0 <= row < height and 0 <= column < width:
            total = total + image[:, row, column] * (1 - abs(y - row)) * (1 - abs(x - column))
    return total


def roi_align(
    images: Any, rois: Any, scale: float, high: int, wide: int, samples: int, aligned: bool
) -> Any:  # fmt: skip
    height, width = images.shape[2:]
    found = torch.zeros(len(rois), images.shape[1], high, wide)
    for part, (image, *corners) in zip(found, rois.tolist()):
        x1, y1, x2, y2 = (c * scale - (0.5 if aligned else 0) for c in corners)
        steps = [(y2 - y1), (x2 - x1)] if aligned else [max(y2 - y1, 1.0), max(x2 - x1, 1.0)]
        step_y, step_x = steps[0] / high, steps[1] / wide
        n_y, n_x = (samples, samples) if samples > 0 else (math.ceil(step_y), math.ceil(step_x))
        for i, j, a, b in itertools.product(range(high), range(wide), range(n_y), range(n_x)):
            y, x = y1 + step_y * (i + (a + 0.5) / n_y), x1 + step_x * (j + (b + 0.5) / n_x)
            if -1 <= y <= height and -1 <= x <= width:
                y, x = min(max(y, 0), height - 1), min(max(x, 0), width - 1)
                part[:, i, j] += sample(images[int(image)], y, x) / (n_y * n_x)
    return found


def deform_conv2d(
    images: Any, weight: Any, offset: Any, mask: Any, bias: Any, stride_h: int, stride_w: int, pad_h: int, pad_w: int,
    dilation_h: int, dilation_w: int, groups: int, offset_groups: int, use_mask: bool,
) -> Any:  # fmt: skip
    (n, channels), (results, per_group, k_h, k_w), (high, wide) = images.shape[:2], weight.shape, offset.shape[2:]
    columns = torch.zeros(n, channels, k_h * k_w, high, wide)
    own = channels // offset_groups
    for image, g, tap, i, j in itertools.product(*map(range, (n, offset_groups, k_h * k_w, high, wide))):
        move_y, move_x = offset[image, 2 * (g * k_h * k_w + tap) : 2 * (g * k_h * k_w + tap) + 2, i, j].tolist()
        y = i * stride_h - pad_h + tap // k_w * dilation_h + move_y
        x = j * stride_w - pad_w + tap % k_w * dilation_w + move_x
        share = mask[image, g * k_h * k_w + tap, i, j] if use_mask else 1.0
        columns[image, g * own : (g + 1) * own, tap, i, j] = (
            sample(images[image, g * own : (g + 1) * own], y, x) * share
        )
    grouped = columns.reshape(n, groups, per_group * k_h * k_w, high * wide)
    kernels = weight.reshape(groups, results // groups, per_group * k_h * k_w)
    product = torch.einsum("gok,ngkp->ngop", kernels, grouped).reshape(n, results, high, wide)
    return product + bias[:, None, None]


def nms(boxes: Any, scores: Any, limit: float) -> Any:
    kept: list[int] = []
    for i in scores.argsort(descending=True, stable=True).tolist():
        for k in kept:
            low, high = torch.maximum(boxes[i, :2], boxes[k, :2]), torch.minimum(boxes[i, 2:], boxes[k, 2:])
            shared = (high - low).clamp(min=0).prod()
            both = sum((boxes[b, 2:] - boxes[b, :2]).prod() for b in (i, k)) - shared
            if shared / both > limit:
                break
        else:
            kept.append(i)
    return torch.tensor(kept, dtype=torch.int64)


def fake_nms(boxes: Any, scores: Any, limit: float) -> Any:
    return boxes.new_empty(torch.library.get_ctx().new_dynamic_size(), dtype=torch.int64)


@pytest.fixture(scope="module")
def vision() -> Iterator[Any]:
    with contextlib.suppress(ImportError, RuntimeError):  # a wheel for another PyTorch
        import torchvision.ops  # noqa: F401
    if hasattr(torch.ops.torchvision, "roi_align"):
        yield torch.ops.torchvision
        return
    library = torch.library.Library("torchvision", "FRAGMENT")
    for schema in SCHEMAS:
        if not hasattr(torch.ops.torchvision, schema.partition("(")[0]):
            library.define(schema)
    for function in (roi_align, deform_conv2d, nms):
        library.impl(function.__name__, function, "CPU")
    fake = torch.library.register_fake
    fake("torchvision::roi_align", lambda x, r, s, h, w, n, a: x.new_empty(len(r), x.shape[1], h, w), lib=library)
    fake(
        "torchvision::deform_conv2d",
        lambda x, w, o, *_: x.new_empty(x.shape[0], w.shape[0], *o.shape[2:]), lib=library,
    )  # fmt: skip
    fake("torchvision::nms", fake_nms, lib=library)
    yield torch.ops.torchvision
    library._destroy()


def agree(function: Any, *inputs: Any) -> Any:
    """Build what a function exports; its results are PyTorch's."""

    class Model(torch.nn.Module):
        def forward(self, *inputs: Any) -> Any:
            return function(*inputs)

    executable = autosched.build(torch.export.export(Model(), inputs))
    found, wanted = executable(*(x.numpy() for x in inputs)), function(*inputs)
    assert found.dtype == str(wanted.dtype).removeprefix("torch.")
    np.testing.assert_allclose(found.numpy(), wanted.numpy(), rtol=2e-5, atol=2e-5)
    return executable


def rand(*shape: int) -> Any:
    return torch.rand(shape, generator=torch.Generator().manual_seed(sum(shape)))


BOXES = torch.tensor(
    [[0, 1.0, 2.0, 7.5, 9.0], [1, -3.0, -2.0, 4.0, 5.0], [1, 8.0, 3.0, 8.1, 3.2], [0, 5.0, 6.0, 30.0, 40.0],
     [0, 9.0, 9.0, 3.0, 2.0]],
)  # fmt: skip


@pytest.mark.parametrize("aligned", [False, True])
@pytest.mark.parametrize(("scale", "high", "wide", "samples"), [(1.0, 3, 2, 2), (0.55, 1, 5, 3), (0.25, 2, 2, 1)])
def test_regions(vision, scale, high, wide, samples, aligned):
    executable = agree(
        lambda x, r: vision.roi_align(x, r, scale, high, wide, samples, aligned), rand(2, 3, 11, 13) - 0.5, BOXES
    )
    assert not isinstance(executable, LateProgram)


def test_regions_with_as_many_samples_as_their_sizes_say_are_pytorchs(vision):
    executable = agree(lambda x, r: vision.roi_align(x + 1, r, 1.0, 2, 3, -1, False), rand(2, 3, 11, 13), BOXES)
    assert [call.op_name for call in executable.calls] == ["torchvision::roi_align"]


@pytest.mark.parametrize(
    ("groups", "offset_groups", "channels", "strides", "pads", "dilations", "use_mask"),
    [(1, 1, 4, (1, 1), (1, 1), (1, 1), True), (2, 1, 4, (2, 1), (0, 2), (1, 2), False),
     (1, 2, 6, (1, 2), (1, 0), (2, 1), True), (4, 2, 4, (1, 1), (1, 1), (1, 1), True)],
)  # fmt: skip
def test_deformable_convolutions(vision, groups, offset_groups, channels, strides, pads, dilations, use_mask):
    kernel, size = (3, 2), (7, 9)
    high, wide = (
        (s + 2 * p - d * (k - 1) - 1) // stride + 1
        for s, p, d, k, stride in zip(size, pads, dilations, kernel, strides)
    )
    x, weight, bias = rand(2, channels, *size) - 0.5, rand(4, channels // groups, *kernel) - 0.5, rand(4)
    offset = rand(2, offset_groups * 2 * 6, high, wide) * 4 - 2
    mask = rand(2, offset_groups * 6, high, wide) if use_mask else torch.zeros(2, 1)
    executable = agree(
        lambda *a: vision.deform_conv2d(*a, *strides, *pads, *dilations, groups, offset_groups, use_mask),
        x, weight, offset, mask, bias,
    )  # fmt: skip
    assert not isinstance(executable, LateProgram)


def test_boxes_that_overlap_go(vision):
    corners = rand(20, 2) * 10
    boxes = torch.cat([corners, corners + 3 + rand(20, 2)], 1)
    executable = agree(lambda b, s: b[vision.nms(b, s.sigmoid(), 0.3)] * 2, boxes, rand(20))
    assert [call.op_name for call in executable.calls][0] == "torchvision::nms"
