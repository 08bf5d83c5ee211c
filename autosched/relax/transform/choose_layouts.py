"""Convolutions compute on channels in blocks, and what stands between them follows.

The pass walks the calls in order. A convolution takes and gives blocked values; a call that can work on them does so
where an input is blocked already; every other call gets plain values. So layouts change at the edges of regions only.
With stride 1, grouped and depthwise convolutions of plain data stay plain unless a convolution that follows wants
blocks (two changes of layout cost more than blocks save there), and groups that do not fill blocks are always plain.
Channels that do not fill the last block are padded: their weights are zero, so whatever stands there is multiplied by
zero by the next convolution, and dropped where the region is left.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import numpy as np

from autosched.ir.module import IRModule
from autosched.ir.transform import Pass, graph_pass
from autosched.relax import op
from autosched.relax.expr import Call, Constant, DataflowVar, Expr, Function, If, Tuple, Var
from autosched.relax.op.registry import OpDef, definition_of, remake
from autosched.relax.op.types import axis_index, broadcast, compare, float_same, same
from autosched.relax.rewrite import map_functions
from autosched.relax.struct_info import TensorStructInfo
from autosched.relax.transform.blocked import BlockedRewriter, Form, pad_channels, shape_of
from autosched.relax.transform.layout_wishes import LayoutWishes

FEW_CHANNELS = 4  # data of so few channels stay plain: a first layer's
Blocks = int | Callable[[Call], int]

POOLS = ("nn.max_pool2d", "nn.avg_pool2d", "nn.adaptive_avg_pool2d")
REDUCTIONS = ("sum", "mean", "max", "min")
UNSAFE_PADDED = ("divide", "floor_divide", "power")  # 0 / 0 in a padded channel is no number, and stays none


def is_elementwise(definition: OpDef) -> bool:
    """Whether the operator computes every element from the same element of its one argument."""
    return definition.infer_type in (same, float_same) or definition.name == "astype"


def is_binary(definition: OpDef) -> bool:
    return definition.infer_type in (broadcast, compare)


def finite_at_zero(definition: OpDef, call: Call) -> bool:
    """Whether a channel of zeros stays finite, so that a zero weight can hide it."""
    zero = np.zeros(1, call.args[0].struct_info.dtype)
    with np.errstate(all="ignore"):
        return bool(np.all(np.isfinite(definition.run_reference([zero], call.attrs))))


class _Layouts(BlockedRewriter):
    def __init__(self, blocks: Blocks, wishes: LayoutWishes):
        super().__init__()
        self.blocks = blocks
        self.wishes = wishes

    def block_of(self, call: Call) -> int:
        return self.blocks if isinstance(self.blocks, int) else self.blocks(call)

    def value(self, value: Expr, var: Var) -> Expr:
        """A value in blocked form under a variable of its own where possible; outputs are plain."""
        result = self.in_blocks(value, var) if isinstance(value, Call) else None
        if result is None:
            return self.as_plain(value)
        return result if isinstance(var, DataflowVar) else self.plain(result)  # type: ignore[no-any-return]

    def as_plain(self, value: Expr) -> Expr:
        if not isinstance(value, Call):
            return self.plain(value)  # type: ignore[no-any-return]
        args = [self.plain(a) for a in value.args]
        if all(a is b for a, b in zip(args, value.args, strict=True)):
            return value
        if definition_of(value) is None:
            return dataclasses.replace(value, args=tuple(args))
        return remake(value, args)

    def in_blocks(self, call: Call, var: Var) -> Var | None:
        """The call on blocked values; None where it has to be plain."""
        definition = definition_of(call)
        if definition is None:
            return None
        name = definition.name
        if name == "nn.conv2d":
            return self.conv2d(call, var)
        if name in POOLS:
            return self.pool(call, var)
        if name == "concat":
            return self.concat(call, var)
        if not any(self.form(a) for a in call.args):
            return None
        if is_elementwise(definition):
            return self.elementwise(definition, call, var)
        if is_binary(definition):
            return self.binary(definition, call, var)
        if name == "nn.pad":
            return self.pad(call, var)
        if name in REDUCTIONS:
            return self.reduction(call, var)
        return None

    # --- convolutions -----------------------------------------------------------------------------------------------

    def conv2d(self, call: Call, var: Var) -> Var | None:
        data, weight = call.args
        if call.attrs["data_layout"] != "NCHW" or call.attrs["out_layout"] != "NCHW" or len(shape_of(weight)) != 4:
            return None
        if call.attrs["groups"] == 1:
            return self.dense_conv(call, var)
        out, per_group = shape_of(weight)[:2]
        groups = call.attrs["groups"]
        if per_group == 1 and out == groups:
            return self.depthwise_conv(call, var)
        return self.grouped_conv(call, var, per_group, out // groups)

    def dense_conv(self, call: Call, var: Var) -> Var:
        data, weight = call.args
        out, channels = shape_of(weight)[:2]
        form = Form(self.block_of(call), out)
        old = self.form(data)
        if old is None and channels <= FEW_CHANNELS:
            layout, stored = "NCHW", channels
        else:
            data = self.blocked(data, old.block if old is not None else form.block)
            layout, stored = self.forms[data].layout, self.forms[data].stored
        weight = self.padded(self.padded(weight, 0, form.stored), 1, stored)
        new = remake(call, [data, weight], {"data_layout": layout, "out_layout": form.layout})
        return self.bind(new, form, var.name)

    def depthwise_conv(self, call: Call, var: Var) -> Var | None:
        data, weight = call.args
        block = self.block_of(call)
        channels = shape_of(weight)[0]
        stays = not self.wishes.wants_blocks(var) and call.attrs["strides"] == (1, 1)
        if self.form(data) is None and (channels < block or stays):
            return None
        data = self.blocked(data, block)
        form = self.forms[data]
        attrs = {"data_layout": form.layout, "out_layout": form.layout, "groups": form.stored}
        return self.bind(remake(call, [data, self.padded(weight, 0, form.stored)], attrs), form, var.name)

    def grouped_conv(self, call: Call, var: Var, per_group_in: int, per_group_out: int) -> Var | None:
        data, weight = call.args
        block, strided = self.block_of(call), call.attrs["strides"] != (1, 1)
        while block >= FEW_CHANNELS and (per_group_in % block or per_group_out % block):
            block = block // 2 if strided else 0
        if block < FEW_CHANNELS or (self.form(data) is None and not strided and not self.wishes.wants_blocks(var)):
            return None
        form = Form(block, shape_of(weight)[0])
        attrs = {"data_layout": form.layout, "out_layout": form.layout}
        return self.bind(remake(call, [self.blocked(data, block), weight], attrs), form, var.name)

    def padded(self, x: Expr, axis: int, size: int) -> Expr:
        """A weight with zeros up to `size` along an axis."""
        missing = size - shape_of(x)[axis]
        if not missing:
            return x
        if isinstance(x, Constant):
            return Constant(pad_channels(x.data, axis, size))
        widths = [w for a in range(4) for w in (0, missing if a == axis else 0)]
        return self.emit(op.nn.pad(x, pad_width=widths))

    # --- what follows -----------------------------------------------------------------------------------------------

    def pool(self, call: Call, var: Var) -> Var | None:
        data, form = call.args[0], self.form(call.args[0])
        if call.attrs["layout"] != "NCHW":
            return None
        if form is None:
            block = self.block_of(call)
            if len(shape_of(data)) != 4 or shape_of(data)[1] % block or not isinstance(data, Var):
                return None
            data = self.blocked(data, block)
            form = self.forms[data]
        return self.bind(remake(call, [data], {"layout": form.layout, "out_layout": form.layout}), form, var.name)

    def elementwise(self, definition: OpDef, call: Call, var: Var) -> Var | None:
        form = self.form(call.args[0])
        if form is None or (form.is_padded and not finite_at_zero(definition, call)):
            return None
        return self.bind(remake(call), form, var.name)

    def binary(self, definition: OpDef, call: Call, var: Var) -> Var | None:
        form = max((f for f in map(self.form, call.args) if f is not None), key=lambda f: (f.channels, f.block))
        if len(shape_of_result(call)) != 4 and not self.is_image(call):
            return None
        if form.is_padded and definition.name in UNSAFE_PADDED and not isinstance(call.args[1], Constant):
            return None
        padding = 1.0 if definition.name in UNSAFE_PADDED else 0.0
        args = [self.operand(a, form, padding) for a in call.args]
        if any(a is None for a in args):
            return None
        return self.bind(remake(call, args), form, var.name)

    def is_image(self, call: Call) -> bool:
        """Whether no plain argument has more dimensions than the image has."""
        return all(self.form(a) is not None or len(shape_of(a)) <= 4 for a in call.args)

    def pad(self, call: Call, var: Var) -> Var | None:
        widths = tuple(call.attrs["pad_width"])
        form = self.form(call.args[0])
        assert form is not None, "the caller looked"
        if any(widths[:4]):
            return None
        return self.bind(remake(call, None, {"pad_width": (*widths, 0, 0)}), form, var.name)

    def reduction(self, call: Call, var: Var) -> Var | None:
        axes, form = call.attrs["axis"], self.form(call.args[0])
        assert form is not None, "the caller looked"
        if axes is None or not call.attrs["keepdims"]:
            return None
        axes = (axes,) if isinstance(axes, int) else tuple(axes)
        axes = tuple(axis_index(a, 4) for a in axes)
        if set(axes) - {2, 3}:
            return None
        return self.bind(remake(call, None, {"axis": axes}), form, var.name)

    def concat(self, call: Call, var: Var) -> Var | None:
        parts = call.args[0].fields if isinstance(call.args[0], Tuple) else ()
        forms = [f for f in map(self.form, parts) if f is not None]
        if not forms or any(self.form(p) is None and (len(shape_of(p)) != 4 or not isinstance(p, Var)) for p in parts):
            return None
        axis = axis_index(call.attrs["axis"], 4)
        channels = [f.channels if (f := self.form(p)) is not None else shape_of(p)[1] for p in parts]
        block = max(f.block for f in forms)
        if axis == 1:
            while block >= FEW_CHANNELS and any(c % block for c in channels[:-1]):
                block //= 2
            if block < FEW_CHANNELS:
                return None
        form = Form(block, sum(channels) if axis == 1 else channels[0])
        new = remake(call, [Tuple(tuple(self.blocked(p, block) for p in parts))], {"axis": axis})
        return self.bind(new, form, var.name)


def shape_of_result(call: Call) -> tuple[int, ...]:
    info = call.struct_info
    return info.static_shape if isinstance(info, TensorStructInfo) and info.is_static else ()


def choose_layouts(module: IRModule, block: Blocks = 16) -> IRModule:
    """Give connected regions of convolutions, pools and element-wise calls blocked channels; results keep their layout.

    block  channels in a block, or a function that says so for a convolution or pool
    """

    def blocked(function: Function) -> Function:
        if any(isinstance(b.value, If) for b in function.bindings()):
            return function  # a converted value would have to be made in both branches
        return _Layouts(block, LayoutWishes(function)).rewrite(function)

    return map_functions(module, blocked)


def ChooseLayouts(block: Blocks = 16) -> Pass:  # noqa: N802
    """See `choose_layouts`."""
    return graph_pass("ChooseLayouts")(lambda module: choose_layouts(module, block))
