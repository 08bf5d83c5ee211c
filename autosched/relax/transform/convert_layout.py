"""Operators over images in another layout, transposed only where layouts meet."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from autosched.errors import InvalidTypeError, InvalidValueError
from autosched.ir.module import IRModule
from autosched.ir.transform import Pass, graph_pass
from autosched.relax import op
from autosched.relax.expr import Call, Constant, Expr, Function, Var
from autosched.relax.op.other_layouts import KERNEL, PLAIN, inverse, order_of
from autosched.relax.op.registry import OPERATORS, get_op, remake
from autosched.relax.rewrite import Rewriter, map_functions
from autosched.relax.struct_info import TensorStructInfo
from autosched.relax.transform.dead_code import remove_unused_bindings

FOLLOW = {  # element-wise operators, which run in the layout that their operands have
    "relax.nn.relu", "relax.nn.leakyrelu", "relax.nn.gelu", "relax.nn.silu", "relax.nn.relu6", "relax.sigmoid",
    "relax.tanh", "relax.exp", "relax.sqrt", "relax.negative", "relax.abs", "relax.clip", "relax.add",
    "relax.subtract", "relax.multiply", "relax.divide", "relax.maximum", "relax.minimum", "relax.astype",
}  # fmt: skip
POOLS = {"relax.nn.max_pool2d", "relax.nn.avg_pool2d", "relax.nn.adaptive_avg_pool2d"}


LayoutChoice = Callable[[Call], Mapping[str, Sequence[str]]]

REDUCTIONS = frozenset(
    f"relax.{name}" for name in ("sum", "mean", "max", "min", "prod", "variance", "std", "nn.softmax")
)


class _Converter(Rewriter):
    """Keeps for each variable its value in the wanted layout, where it has one."""

    def __init__(self, layouts: Mapping[str, Sequence[str]], choose: LayoutChoice | None):
        super().__init__()
        self.layouts, self.choose = layouts, choose
        self.moved: dict[object, tuple[str, Expr]] = {}  # variable in NCHW -> (layout, the same value in it)

    def call(self, call: Call, var: Var) -> Expr:
        if call.op_name in self.layouts and call.op_name == "relax.nn.conv2d":
            return self.convolution(call, var)
        if call.op_name in POOLS:
            return self.pool(call, var)
        if call.op_name in REDUCTIONS and call.args[0] in self.moved:
            return self.reduction(call, var)
        return self.follow(call, var) if call.op_name in FOLLOW else call

    def convolution(self, call: Call, var: Var) -> Expr:
        own = self.choose(call) if self.choose is not None else {}
        wanted = own.get(call.op_name, self.layouts[call.op_name])
        data, kernel = wanted[0], wanted[1] if len(wanted) > 1 else KERNEL
        attrs: dict[str, object] = {"data_layout": data, "kernel_layout": kernel, "out_layout": data}
        if call.attrs["data_layout"] != PLAIN or call.attrs["kernel_layout"] != KERNEL or data == PLAIN:
            return call
        order = order_of(kernel, KERNEL)
        images = self.in_layout(call.args[0], data)
        weight = self.emit(op.permute_dims(call.args[1], inverse(order))) if order else call.args[1]
        return self.result(remake(call, [images, weight], attrs), data, var)

    def pool(self, call: Call, var: Var) -> Expr:
        if call.args[0] not in self.moved or call.attrs["layout"] != PLAIN:
            return call
        layout, value = self.moved[call.args[0]]
        return self.result(remake(call, [value], {"layout": layout, "out_layout": layout}), layout, var)

    def reduction(self, call: Call, var: Var) -> Expr:
        """The axes where the layout has them; the result is as before where the axes that stay keep their order."""
        layout, value = self.moved[call.args[0]]
        axis = call.attrs["axis"]
        axes = [PLAIN[a] for a in ((axis,) if isinstance(axis, int) else range(4) if axis is None else axis)]
        places = tuple(layout.index(a) for a in axes)
        moved = remake(call, [value], {"axis": places[0] if isinstance(axis, int) else places if axis else axis})
        if call.attrs.get("keepdims", True):
            return self.result(moved, layout, var)
        stay = [[a for a in order if a not in axes] for order in (PLAIN, layout)]
        return moved if stay[0] == stay[1] else call

    def follow(self, call: Call, var: Var) -> Expr:
        layouts = {self.moved[a][0] for a in call.args if isinstance(a, Var) and a in self.moved}
        if len(layouts) != 1 or not all(map(self.can_move, call.args)):
            return call
        layout = layouts.pop()
        return self.result(remake(call, [self.in_layout(a, layout) for a in call.args]), layout, var)

    def can_move(self, x: object) -> bool:
        info = getattr(x, "struct_info", None)
        return isinstance(info, TensorStructInfo) and info.ndim in (0, 4) and isinstance(x, Var | Constant)

    def in_layout(self, x: Expr, layout: str) -> Expr:
        if x in self.moved and self.moved[x][0] == layout:
            return self.moved[x][1]
        order = order_of(layout)
        if getattr(x.struct_info, "ndim", None) != 4 or order is None:
            return x
        return self.emit(op.permute_dims(x, inverse(order)))

    def result(self, call: Expr, layout: str, var: Var) -> Expr:
        """The value in NCHW, which nobody may need; what follows finds it in its layout."""
        value = self.emit(call)
        order = order_of(layout)
        self.moved[var] = layout, value
        return op.permute_dims(value, order) if order else value


def convert_layout(
    module: IRModule, desired_layouts: Mapping[str, Sequence[str]], layout_cb: LayoutChoice | None = None
) -> IRModule:
    """Let convolutions run in the layouts wanted, and element-wise operators and pools behind them too.

    desired_layouts  {"relax.nn.conv2d": ["NHWC", "OHWI"]}: of data and weight
    layout_cb        gives other layouts for a call, or an empty table
    Raises           ValueError for an unknown operator or layout, TypeError for another kind of table
    """

    def convert(function: Function) -> Function:
        new = _Converter(desired_layouts, layout_cb).rewrite(function)
        return function if new is function else remove_unused_bindings(new)

    return map_functions(module, convert)


def ConvertLayout(  # noqa: N802
    desired_layouts: Mapping[str, Sequence[str]], layout_cb: LayoutChoice | None = None
) -> Pass:
    """See `convert_layout`."""
    if not isinstance(desired_layouts, Mapping):
        raise InvalidTypeError("ConvertLayout takes {operator: [layout of the data, layout of the weight]}")
    for name, layouts in desired_layouts.items():
        if get_op(name).name != "nn.conv2d" and name.removeprefix("relax.") in OPERATORS:
            raise InvalidValueError(f"the layout of {name} follows its operands", hint="name relax.nn.conv2d")
        for layout, plain in zip(layouts, (PLAIN, KERNEL, PLAIN), strict=False):
            order_of(layout, plain)
    return graph_pass("ConvertLayout")(lambda module: convert_layout(module, desired_layouts, layout_cb))
