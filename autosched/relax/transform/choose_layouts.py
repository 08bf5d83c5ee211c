"""Channels in blocks, [N, C / c, H, W, c], from convolution to convolution; plain layouts at the edges only.

Convolutions decide; what lies between them follows where it can (element-wise operators, pooling, concatenation of
whole blocks). A value may exist in both forms: the other one is made where it is first asked for. Channels that do
not fill their last block are padded with zeros in the weights, and what the operators between make of them is
multiplied by zero weights later, or cut off where the plain form is made.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from autosched.ir.module import IRModule
from autosched.ir.transform import Pass, PassInfo
from autosched.relax import op
from autosched.relax.expr import Binding, Call, Constant, DataflowVar, Expr, Function, MatchCast, ShapeExpr, Tuple, Var, VarBinding
from autosched.relax.op.registry import remake
from autosched.relax.rewrite import Rewriter, map_functions, used_vars
from autosched.relax.struct_info import TensorStructInfo

LayoutOracle = Callable[[Call], int]  # a convolution -> channels in a block of its output; 0 leaves it plain

# f(0) and f of any finite value are finite, so that garbage in padded channels stays harmless
UNARY = {
    "nn.relu", "clip", "sigmoid", "tanh", "nn.leakyrelu", "nn.hard_sigmoid", "nn.gelu", "nn.gelu_tanh", "nn.silu", "abs",
    "negative", "erf", "identity",
}  # fmt: skip
BINARY = {"add", "subtract", "multiply", "maximum", "minimum", "divide"}
POOLING = {"nn.max_pool2d", "nn.avg_pool2d", "nn.adaptive_avg_pool2d"}
FEW_CHANNELS = 4  # an image's: a convolution reads them plain


@dataclass
class Forms:
    """One value [N, C, H, W]: its blocked form, and its plain one where it was asked for."""

    channels: int
    block: int
    blocked: Expr
    plain: Expr | None = None

    @property
    def ragged(self) -> bool:
        return self.channels % self.block != 0


def _info(x: Any) -> TensorStructInfo:
    info = x.struct_info
    assert isinstance(info, TensorStructInfo)
    return info


def _layout(block: int) -> str:
    return f"NCHW{block}c" if block else "NCHW"


def pad_axis(array: np.ndarray[Any, Any], axis: int, size: int, value: float = 0.0) -> np.ndarray[Any, Any]:
    """`array` grown at the end of an axis; itself where it has that size."""
    missing = size - array.shape[axis]
    if not missing:
        return array
    widths = [(0, missing if a == axis else 0) for a in range(array.ndim)]
    return np.pad(array, widths, constant_values=value)


def _up(n: int, block: int) -> int:
    return -(-n // block) * block if block else n


@dataclass
class _Layouts(Rewriter):
    oracle: LayoutOracle
    forms: dict[Var, Forms] = field(default_factory=dict)
    made: dict[tuple[Var, int], Expr] = field(default_factory=dict)

    def __post_init__(self) -> None:
        super().__init__()

    # --- forms of values ---------------------------------------------------------------------------------------------

    def plain(self, x: Any) -> Any:
        """The plain form of a value."""
        forms = self.forms.get(x) if isinstance(x, Var) else None
        if forms is None:
            return self.substitute(x)
        if forms.plain is None:
            forms.plain = self.emit(self.to_plain(forms))
            self.replaced[x] = forms.plain
        return forms.plain

    def to_plain(self, f: Forms) -> Expr:
        n, _, h, w, _ = _info(f.blocked).static_shape
        if h == w == 1 and not f.ragged:
            return op.reshape(f.blocked, ShapeExpr((n, f.channels, 1, 1)))
        return op.layout_transform(f.blocked, _layout(f.block), "NCHW", f.channels)

    def blocked(self, x: Any, block: int) -> Expr:
        """The form of a value with `block` channels a block, zero-padded."""
        forms = self.forms.get(x)
        if forms is not None and forms.block == block:
            return forms.blocked
        key = (x, block)
        if key not in self.made:
            if forms is not None:
                made: Expr = op.layout_transform(forms.blocked, _layout(forms.block), _layout(block), forms.channels)
            else:
                source = self.substitute(x)
                n, c, h, w = _info(source).static_shape
                if h == w == 1 and c % block == 0:
                    made = op.reshape(source, ShapeExpr((n, c // block, 1, 1, block)))
                else:
                    made = op.layout_transform(source, "NCHW", _layout(block))
            self.made[key] = self.emit(made)
        return self.made[key]

    def block_of(self, x: Any) -> int:
        """The block of a value that has a blocked form; 0 for others."""
        return self.forms[x].block if isinstance(x, Var) and x in self.forms else 0

    # --- the walk ------------------------------------------------------------------------------------------------------

    def _binding(self, b: Binding) -> None:
        value = b.value
        forms = self.handle(value) if isinstance(value, Call) and not isinstance(b, MatchCast) else None
        if forms is None:
            for v in used_vars(value):
                self.plain(v)
            super()._binding(b)
            return
        forms.blocked = self.emit(forms.blocked, b.var.name)
        self.forms[b.var] = forms
        if not isinstance(b.var, DataflowVar):  # seen after the block: its plain form keeps its name
            forms.plain = b.var
            self._bindings.append(VarBinding(b.var, self.to_plain(forms)))

    def handle(self, call: Call) -> Forms | None:
        """The call on blocked values, or None where it stays plain."""
        name = call.op_name.removeprefix("relax.")
        if name == "nn.conv2d":
            return self.convolution(call)
        if name in UNARY:
            return self.unary(call)
        if name in BINARY:
            return self.binary(call, name)
        if name in POOLING:
            return self.pooling(call)
        if name == "concat":
            return self.concat(call)
        return None

    def convolution(self, call: Call) -> Forms | None:
        data, weight = call.args
        if call.attrs["data_layout"] != "NCHW" or call.attrs["out_layout"] != "NCHW" or not isinstance(weight, Constant):
            return None
        channels_out, per_group, *_ = weight.data.shape
        groups = call.attrs["groups"]
        channels_in = per_group * groups
        if groups > 1 and per_group == 1:
            return self.depthwise(call, channels_out)
        block = self.oracle(call)
        if not block:
            return None
        if groups > 1:
            have = self.block_of(data)
            if not have or per_group % have or (channels_out // groups) % block:
                return None
            return self.convolve(call, self.forms[data].blocked, weight.data, have, block, channels_out)
        have = self.block_of(data)
        if not have and channels_in > FEW_CHANNELS:
            have = block
        source = self.blocked(data, have) if have else self.plain(data)
        padded = pad_axis(pad_axis(weight.data, 0, _up(channels_out, block)), 1, _up(channels_in, have))
        return self.convolve(call, source, padded, have, block, channels_out)

    def depthwise(self, call: Call, channels: int) -> Forms | None:
        data, weight = call.args
        have = self.block_of(data)
        if not have or channels != call.attrs["groups"]:
            return None
        padded = pad_axis(weight.data, 0, _up(channels, have))
        return self.convolve(call, self.forms[data].blocked, padded, have, have, channels, groups=padded.shape[0])

    def convolve(
        self, call: Call, data: Expr, weight: np.ndarray[Any, Any], have: int, block: int, channels: int, groups: int = 0
    ) -> Forms:
        attrs = {"data_layout": _layout(have), "out_layout": _layout(block)}
        constant = call.args[1] if weight is call.args[1].data else Constant(weight)
        more = {"groups": groups} if groups else {}
        return Forms(channels, block, remake(call, (data, constant), {**attrs, **more}))

    def unary(self, call: Call) -> Forms | None:
        x = call.args[0]
        if not self.block_of(x):
            return None
        f = self.forms[x]
        return Forms(f.channels, f.block, remake(call, (f.blocked,)))

    def binary(self, call: Call, name: str) -> Forms | None:
        a, b = call.args
        block = self.block_of(a) or self.block_of(b)
        if not block or (self.block_of(a) and self.block_of(b) and self.block_of(a) != self.block_of(b)):
            return None
        info = _info(call)
        if info.ndim != 4:
            return None
        channels = info.static_shape[1]
        if name == "divide" and channels % block and isinstance(b, Var):
            return None  # zero divided by zero in the padding
        sides = [self.operand(x, block, channels, 1.0 if name == "divide" else 0.0) for x in (a, b)]
        if None in sides:
            return None
        return Forms(channels, block, remake(call, [s() for s in sides if s is not None]))

    def operand(self, x: Any, block: int, channels: int, filler: float) -> Callable[[], Expr] | None:
        """How to get an operand of a blocked operator, or None where it has no blocked form."""
        info = _info(x)
        if isinstance(x, Constant):
            array = _blocked_constant(x.data, block, channels, filler)
            return None if array is None else lambda: Constant(array)
        if not isinstance(x, Var) or info.ndim != 4 or info.static_shape[1] != channels:
            return None
        return lambda: self.blocked(x, block)

    def pooling(self, call: Call) -> Forms | None:
        x = call.args[0]
        if not self.block_of(x):
            return None
        f = self.forms[x]
        layout = _layout(f.block)
        return Forms(f.channels, f.block, remake(call, (f.blocked,), {"layout": layout, "out_layout": layout}))

    def concat(self, call: Call) -> Forms | None:
        parts = call.args[0].fields
        block = max((self.block_of(p) for p in parts), default=0)
        if not block or _info(call).ndim != 4 or call.attrs["axis"] % 4 != 1 or not all(isinstance(p, Var) for p in parts):
            return None
        if any(_info(p).static_shape[1] % block for p in parts):
            return None
        joined = op.concat(Tuple(tuple(self.blocked(p, block) for p in parts)), axis=1)
        return Forms(_info(call).static_shape[1], block, joined)


def _blocked_constant(array: np.ndarray[Any, Any], block: int, channels: int, filler: float) -> np.ndarray[Any, Any] | None:
    """A constant that broadcasts against [N, C, H, W], as it broadcasts against the blocked form."""
    if array.size == 1:
        return array.reshape(())
    shape = (1,) * (4 - array.ndim) + array.shape
    if len(shape) != 4:
        return None
    n, c, h, w = shape
    if c == 1:
        return array.reshape(n, 1, h, w, 1)
    if c != channels:
        return None
    padded = pad_axis(array.reshape(shape), 1, _up(channels, block), filler)
    chunks = padded.shape[1] // block
    return np.ascontiguousarray(padded.reshape(n, chunks, block, h, w).transpose(0, 1, 3, 4, 2))


def choose_layouts(block: int | LayoutOracle) -> Pass:
    """Give convolutions, and what lies between them, channels in blocks.

    block  channels in a block for every convolution, or a function from a convolution's Call to that number (0: plain)
    Keeps  the function's inputs and outputs in their layouts.
    """
    oracle: LayoutOracle = block if callable(block) else lambda _: block

    def run(module: IRModule) -> IRModule:
        def rewrite(function: Function) -> Function:
            return _Layouts(oracle).rewrite(function) if _has_convolution(function) else function

        return map_functions(module, rewrite)

    return Pass(run, PassInfo(0, "choose-layouts"))


def _has_convolution(function: Function) -> bool:
    return any(isinstance(b.value, Call) and b.value.op_name == "relax.nn.conv2d" for b in function.bindings())


