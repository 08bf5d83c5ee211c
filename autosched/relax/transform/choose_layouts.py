"""Values get the layouts, plain NCHW or channels in blocks, in which the whole function is cheapest.

`layout_plan` chooses; this pass rewrites the calls so, and changes layouts where a value is needed in another one: at
the edges of regions only. Channels that do not fill the last block are padded: their weights are zero, so whatever
stands there is multiplied by zero by the next convolution, and dropped where the region is left.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping, Sequence

from autosched.errors import InvalidTypeError, InvalidValueError
from autosched.ir.module import IRModule
from autosched.ir.transform import Pass, graph_pass
from autosched.relax import op
from autosched.relax.expr import Call, Constant, DataflowVar, Expr, Function, If, ShapeExpr, Tuple, Var
from autosched.relax.op.registry import definition_of, remake
from autosched.relax.op.types import axis_index
from autosched.relax.rewrite import map_functions
from autosched.relax.struct_info import tensor_infos
from autosched.relax.transform.bind_symbolic import bind_function, symbolic_dims
from autosched.relax.transform.blocked import BlockedRewriter, Form, image_shape_of, pad_channels, shape_of
from autosched.relax.transform.expand_conv import phases_interleaved
from autosched.relax.transform.layout_costs import LayoutCosts, LayoutOracle, vector_block
from autosched.relax.transform.layout_plan import plan_layouts
from autosched.relax.transform.layout_rules import (
    FEW_CHANNELS,
    IN_WORD,
    NO_TILES,
    PLAIN,
    REDUCTIONS,
    UNSAFE_PADDED,
    data_arguments,
    image_axes,
    is_broadcast,
    is_convolution,
    is_dense,
    is_depthwise,
    is_pool,
    is_resize,
    is_shuffle,
    outputs_of_each,
    words_of,
)
from autosched.relax.transform.quantised import dtype_of
from autosched.tir.expr import PrimExpr
from autosched.tir.expr import Var as SymbolicSize
from autosched.tir.functor import free_vars

# Of images whose sizes come with the call, of sound by the sample, of multiples of 32 the number.
USUAL_SIZES = (256, 4096, 65536, 8)
LEAST_PIXELS = 4  # of a convolution's result: with none, as `n // 160 - 1` leaves of 256, plans cost nothing
OPEN = -1

Blocks = int | Sequence[int] | Callable[[Call], int | Sequence[int]]


class _Layouts(BlockedRewriter):
    """Carries out a plan: for each bound variable the channels in its blocks, or 0."""

    def __init__(self, plan: Mapping[Var, int]):
        super().__init__()
        self.plan = plan
        self.means: dict[tuple[Var, tuple[int, ...] | None], Var] = {}  # of blocked values over axes, in blocks

    def value(self, value: Expr, var: Var) -> Expr:
        """A value in the layout of the plan, under a variable of its own; outputs are plain."""
        block = self.plan.get(var, PLAIN)
        if block == PLAIN or not isinstance(value, Call):
            return self.as_plain(value)
        result = self.in_blocks(value, Form(block, image_shape_of(var)[1]), var)
        return result if isinstance(var, DataflowVar) else self.plain(result)

    def as_plain(self, value: Expr) -> Expr:
        if not isinstance(value, Call):
            return self.plain(value)  # type: ignore[no-any-return]
        args = [self.plain(a) for a in value.args]
        if is_shuffle(value):
            return phases_interleaved(args[0], value, self.emit)
        if all(a is b for a, b in zip(args, value.args, strict=True)):
            return value
        if definition_of(value) is None:
            return dataclasses.replace(value, args=tuple(args))
        return remake(value, args)

    def in_blocks(self, call: Call, form: Form, var: Var) -> Var:
        """The call with a result of this form; the plan says that it can."""
        if is_convolution(call):
            return self.convolution(call, form, var)
        definition = definition_of(call)
        assert definition is not None, "only operators are planned"
        attrs: dict[str, object] = {}
        if definition.name == "concat":
            parts = Tuple(tuple(self.blocked(p, form.block) for p in data_arguments(call)))
            return self.bind(remake(call, [parts], {"axis": axis_index(call.attrs["axis"], 4)}), form, var.name)
        if is_broadcast(definition):
            padding = 1.0 if definition.name in UNSAFE_PADDED else 0.0
            args = [self.operand(a, form, padding) for a in call.args]
            given = [a for a in args if a is not None]
            assert len(given) == len(args), "the rules looked at each operand"
            return self.bind(remake(call, given), form, var.name)
        if is_pool(call):
            attrs = {"layout": form.layout, "out_layout": form.layout}
        elif definition.name == "reshape":
            n, _, *size = image_shape_of(call)
            shape = ShapeExpr((n, form.stored // form.block, *size, form.block))
            return self.bind(op.reshape(self.blocked(call.args[0], form.block), shape), form, var.name)
        elif definition.name == "nn.pad":
            attrs = {"pad_width": (*call.attrs["pad_width"], 0, 0)}
        elif definition.name in ("mean", "variance"):
            data = self.blocked(call.args[0], form.block)
            make = self.mean if definition.name == "mean" else self.variance
            return make(data, image_axes(call), form, var.name)
        elif definition.name in REDUCTIONS:
            attrs = {"axis": image_axes(call)}
        elif definition.name == "take":
            attrs = {"axis": axis_index(call.attrs["axis"], 4)}
        elif is_resize(call) or is_shuffle(call):
            attrs = {"layout": form.layout}
        return self.bind(remake(call, [self.blocked(call.args[0], form.block), *call.args[1:]], attrs), form, var.name)

    def mean(self, data: Var, axes: tuple[int, ...] | None, form: Form, name: str) -> Var:
        if (data, axes) not in self.means:
            self.means[data, axes] = self.bind(op.mean(data, axis=axes, keepdims=True), form, name)
        return self.means[data, axes]

    def variance(self, data: Var, axes: tuple[int, ...] | None, form: Form, name: str) -> Var:
        """The mean of squared distances: no template takes two reductions of blocks in one kernel."""
        distance = self.emit(op.subtract(data, self.mean(data, axes, form, name)))
        return self.bind(op.mean(self.emit(op.multiply(distance, distance)), axis=axes, keepdims=True), form, name)

    def convolution(self, call: Call, form: Form, var: Var) -> Var:
        data, weight = call.args
        if is_dense(call):
            return self.dense(call, form, var)
        data = self.blocked(data, form.block)
        attrs: dict[str, object] = {"data_layout": form.layout, "out_layout": form.layout}
        if is_depthwise(call):
            attrs["groups"], weight = form.stored // outputs_of_each(call), self.padded(weight, 0, form.stored)
        return self.bind(remake(call, [data, weight], attrs), form, var.name)

    def dense(self, call: Call, form: Form, var: Var) -> Var:
        data, weight = call.args
        channels, source = shape_of(weight)[1], self.form(data)
        words = words_of(call)
        if source is None and (channels > FEW_CHANNELS or words):
            data = self.blocked(data, form.block if channels > FEW_CHANNELS else IN_WORD[words])
            source = self.form(data)
        layout, stored = (source.layout, source.stored) if source is not None else ("NCHW", channels)
        weight = self.padded(self.padded(weight, 0, form.stored), 1, stored)
        new = remake(call, [data, weight], {"data_layout": layout, "out_layout": form.layout})
        return self.bind(new, form, var.name)

    def padded(self, x: Expr, axis: int, size: int) -> Expr:
        """A weight with zeros up to `size` along an axis."""
        missing = size - shape_of(x)[axis]
        if not missing:
            return x
        if isinstance(x, Constant):
            return Constant(pad_channels(x.data, axis, size))
        widths = [w for a in range(4) for w in (0, missing if a == axis else 0)]
        return self.emit(op.nn.pad(x, pad_width=widths))


def _plan_for_one(
    function: Function, symbols: Sequence[SymbolicSize], blocks: Callable[[Call], Sequence[int]], costs: LayoutCosts
) -> Mapping[Var, int]:
    """The plan for one image of a usual size: it holds for all, as more of them only repeat its costs.

    Empty for functions that cannot be bound so, and those without convolutions.
    """
    bindings = tuple(function.bindings())
    if not any(isinstance(b.value, Call) and is_convolution(b.value) for b in bindings):
        return {}
    infos = [info for p in function.params for info in tensor_infos(p.struct_info) if info.shape is not None]
    inner = {v for info in infos for d in info.dims[1:] if isinstance(d, PrimExpr) for v in free_vars(d)}
    found: dict[Var, int] = {}
    for size in USUAL_SIZES if inner else (1,):
        try:
            bound = bind_function(function, {v: size if v in inner else 1 for v in symbols})
            plan = plan_layouts(bound, blocks, costs)
        except (InvalidValueError, InvalidTypeError):
            continue  # not for images of that size
        pairs = list(zip(bindings, bound.bindings(), strict=True))
        has_pixels = all(_pixels(one.value) >= LEAST_PIXELS for own, one in pairs if _pixels(own.value) == OPEN)
        if has_pixels or not found:
            found = {own.var: plan[one.var] for own, one in pairs if one.var in plan}
        if has_pixels:
            break
    return found


def _pixels(value: Expr) -> int:
    """How many pixels a convolution's result has in an image, OPEN where a call says so; 0 for anything else."""
    shape = image_shape_of(value)[2:] if isinstance(value, Call) and is_convolution(value) else (0,)
    return math.prod(shape) if all(isinstance(n, int) for n in shape) else OPEN


def apply_layouts(module: IRModule, plan: Mapping[Var, int]) -> IRModule:
    """Carry out a plan: the module with the bound variables' values in the layouts that it names, the rest plain."""
    return map_functions(module, lambda function: _Layouts(plan).rewrite(function))


def choose_layouts(
    module: IRModule,
    block: Blocks = 16,
    oracle: LayoutOracle | None = None,
    tile_blocks: Mapping[str, int] = NO_TILES,
    change_weight: float = 1.0,
) -> IRModule:
    """Give convolutions, pools and element-wise calls blocked channels where that is cheaper; results stay as they are.

    block       channels in a block, several such numbers, or a function that says so for a convolution or pool
    oracle      times of calls that somebody has measured
    tile_blocks  channels in a block, by dtype, where convolutions of it are several times as fast
    change_weight  how many times as much as estimated a change of layout is taken to cost
    """

    def blocks(call: Call) -> Sequence[int]:
        given = block(call) if callable(block) else block
        sizes = (given,) if isinstance(given, int) else tuple(given)
        dtype = dtype_of(call.args[0])
        if dtype != "float32":  # words of bytes, too, fill whole vectors
            sizes = tuple(size for size in sizes if size >= vector_block(sizes))
        tile = tile_blocks.get(dtype, 0)  # pools and windows of one channel are beside convolutions
        return (*sizes, tile) if tile and tile not in sizes else sizes

    usual = (16,) if callable(block) else (block,) if isinstance(block, int) else tuple(block)
    costs = LayoutCosts(usual, oracle, tile_blocks, change_weight)

    def blocked(function: Function) -> Function:
        if any(isinstance(b.value, If) for b in function.bindings()):
            return function  # a converted value would have to be made in both branches
        symbols = symbolic_dims(function)
        plan = _plan_for_one(function, symbols, blocks, costs) if symbols else plan_layouts(function, blocks, costs)
        return _Layouts(plan).rewrite(function)

    return map_functions(module, blocked)


def ChooseLayouts(  # noqa: N802
    block: Blocks = 16,
    oracle: LayoutOracle | None = None,
    tile_blocks: Mapping[str, int] = NO_TILES,
    change_weight: float = 1.0,
) -> Pass:
    """See `choose_layouts`."""
    return graph_pass("ChooseLayouts")(lambda module: choose_layouts(module, block, oracle, tile_blocks, change_weight))
