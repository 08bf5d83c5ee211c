"""AutoTVM's templates of convolutions and dense layers on a CPU, which `extract_from_program` gives tasks of."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

from autosched import te, topi
from autosched.autotvm.task.task import get_config, template

Sizes: TypeAlias = int | Sequence[int]
Scheduled: TypeAlias = tuple[te.Schedule, list[te.Tensor]]
CONV2D, DEPTHWISE, DENSE = "conv2d_nchw.x86", "depthwise_conv2d_nchw.x86", "dense_nopack.x86"


def dense(data: te.Tensor, weight: te.Tensor, bias: object, out_dtype: str) -> Scheduled:
    """data [M, K] times weight [N, K] transposed; rows, columns and sums are split."""
    assert bias is None, "the tasks of dense layers have no bias"
    k = te.reduce_axis((0, data.shape[1]), name="k")
    result = te.compute(
        (data.shape[0], weight.shape[0]),
        lambda i, j: te.sum(data[i, k].astype(out_dtype) * weight[j, k].astype(out_dtype), axis=k), name="dense",
    )  # fmt: skip
    cfg, s = get_config(), te.create_schedule(result.op)
    assert isinstance(result.op, te.ComputeOp), "it is computed"
    y, x = result.op.axis
    cfg.define_split("tile_y", cfg.axis(y), num_outputs=2)
    cfg.define_split("tile_x", cfg.axis(x), num_outputs=2)
    cfg.define_split("tile_k", cfg.reduce_axis(k), num_outputs=2)
    yo, yi = cfg["tile_y"].apply(s, result, y)
    xo, xi = cfg["tile_x"].apply(s, result, x)
    ko, ki = cfg["tile_k"].apply(s, result, k)
    s[result].reorder(yo, xo, ko, yi, ki, xi)
    s[result].vectorize(xi)
    s[result].parallel(s[result].fuse(yo, xo))
    return s, [data, weight, result]


def _scheduled_window(data: te.Tensor, weight: te.Tensor, result: Any) -> Scheduled:
    """A schedule of a convolution: channels, columns and sums over channels are split, padding is inlined."""
    cfg, s = get_config(), te.create_schedule(result.op)
    n, oc, oh, ow = result.op.axis
    sums = list(result.op.reduce_axis)
    cfg.define_split("tile_oc", cfg.axis(oc), num_outputs=2)
    cfg.define_split("tile_ow", cfg.axis(ow), num_outputs=2)
    cfg.define_knob("unroll_kw", [True, False])
    for stage in s.stages:
        if isinstance(stage.op, te.ComputeOp) and stage.op is not result.op:
            stage.compute_inline()
    oco, oci = cfg["tile_oc"].apply(s, result, oc)
    owo, owi = cfg["tile_ow"].apply(s, result, ow)
    s[result].reorder(n, oco, oh, owo, *sums, oci, owi)
    if cfg["unroll_kw"].val:
        s[result].unroll(sums[-1])
    s[result].vectorize(owi)
    s[result].parallel(s[result].fuse(n, oco))
    return s, [data, weight, result]


def conv2d(
    data: te.Tensor,
    weight: te.Tensor,
    strides: Sizes,
    padding: Sizes,
    dilation: Sizes,
    data_layout: str,
    out_layout: str,
    out_dtype: str,
) -> Scheduled:
    """data [N, C, H, W] convolved with weight [O, C, KH, KW]."""
    assert data_layout == out_layout == "NCHW", "the tasks of convolutions are in NCHW"
    result = topi.nn.conv2d(data, weight, strides, padding, dilation, data_layout, out_dtype=out_dtype)
    return _scheduled_window(data, weight, result)


def depthwise_conv2d(
    data: te.Tensor, weight: te.Tensor, strides: Sizes, padding: Sizes, dilation: Sizes, out_dtype: str
) -> Scheduled:
    """data [N, C, H, W], each channel convolved with its own of weight [C, 1, KH, KW]."""
    result = topi.nn.depthwise_conv2d_nchw(data, weight, strides, padding, dilation, out_dtype)
    return _scheduled_window(data, weight, result)


for _name, _function in ((DENSE, dense), (CONV2D, conv2d), (DEPTHWISE, depthwise_conv2d)):
    template(_name, _function)
