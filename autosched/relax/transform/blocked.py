"""Values in blocked form, [N, C / c, H, W, c], while a function is rewritten."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from autosched.relax import op
from autosched.relax.expr import Call, Constant, Expr, ShapeExpr, Tuple, TupleGetItem, Var
from autosched.relax.op.conv2d import to_blocked
from autosched.relax.rewrite import Rewriter
from autosched.relax.struct_info import Dim, TensorStructInfo
from autosched.topi.shapes import ImageShape

Array = np.ndarray


@dataclass(frozen=True)
class Form:
    """How a value is stored: channels in blocks of `block`; `channels` of them mean something, the rest pad."""

    block: int
    channels: int

    @property
    def stored(self) -> int:
        return -(-self.channels // self.block) * self.block

    @property
    def is_padded(self) -> bool:
        return self.stored != self.channels

    @property
    def layout(self) -> str:
        return f"NCHW{self.block}c"


def shape_of(x: Expr) -> tuple[int, ...]:
    """The shape of a tensor; () for anything else or an unknown shape."""
    info = x.struct_info
    return info.static_shape if isinstance(info, TensorStructInfo) and info.is_static else ()


def dims_of(x: Expr) -> tuple[Dim, ...]:
    """The shape of a tensor, whose sizes may be symbols; () for anything else or an unknown shape."""
    info = x.struct_info
    return info.dims if isinstance(info, TensorStructInfo) and info.shape is not None else ()


def image_shape_of(x: Expr) -> ImageShape:
    """The shape of images, whose number and sizes may be symbols; () for anything else or an unknown shape."""
    info = x.struct_info
    if not isinstance(info, TensorStructInfo) or info.shape is None:
        return ()
    return info.image_shape if all(isinstance(d, int) for d in info.dims[1:2]) else ()


def pad_channels(array: Array, axis: int, size: int, value: float = 0.0) -> Array:
    """The array grown along one axis; itself where it has the size."""
    missing = size - array.shape[axis]
    if not missing:
        return array
    widths = [(0, missing if a == axis else 0) for a in range(array.ndim)]
    return np.pad(array, widths, constant_values=value)


class BlockedRewriter(Rewriter):
    """A rewriter that keeps values in blocked form under variables of their own, and converts where needed.

    A conversion and its inverse cancel, and each is made once.
    """

    def __init__(self) -> None:
        super().__init__()
        self.forms: dict[Var, Form] = {}  # the variables that hold blocked values
        self.plain_of: dict[Var, Expr] = {}
        self.blocked_of: dict[tuple[Expr, int], Var] = {}

    def form(self, x: object) -> Form | None:
        """The form of a blocked value; None for a plain one."""
        return self.forms.get(x) if isinstance(x, Var) else None

    def bind(self, value: Expr, form: Form, name: str) -> Var:
        """Bind a blocked value."""
        var = self.emit(value, name)
        assert isinstance(var, Var), "calls are bound to variables"
        self.forms[var] = form
        return var

    def plain(self, x: object) -> Any:
        """An expression whose blocked values are plain again."""
        if isinstance(x, Tuple):
            fields = tuple(self.plain(f) for f in x.fields)
            return x if all(a is b for a, b in zip(fields, x.fields, strict=True)) else Tuple(fields)
        if isinstance(x, TupleGetItem):
            return x
        form = self.form(x)
        if form is None or not isinstance(x, Var):
            return x
        if x not in self.plain_of:
            self.plain_of[x] = self.emit(self._unblock(x, form), x.name)
        return self.plain_of[x]

    @staticmethod
    def _unblock(x: Var, form: Form) -> Call:
        n, _, h, w, _ = image_shape_of(x)
        if h == w == 1 and not form.is_padded:  # one pixel: the order in memory is the same
            return op.reshape(x, ShapeExpr((n, form.channels, 1, 1)))
        return op.layout_transform(x, form.layout, "NCHW", form.channels)

    def blocked(self, x: Expr, block: int) -> Var:
        """A plain or blocked value [N, C, H, W] in blocks of `block`, its channels padded with what is harmless."""
        assert isinstance(x, Var | Constant), "a value that is converted has a name or is known"
        old = self.form(x)
        if isinstance(x, Var) and old is not None and old.block == block:
            return x
        if (x, block) not in self.blocked_of:
            new = self._convert(x, old, block)
            self.blocked_of[x, block] = new
            if old is None:
                self.plain_of[new] = x
        return self.blocked_of[x, block]

    def _convert(self, x: Var | Constant, old: Form | None, block: int) -> Var:
        name = x.name if isinstance(x, Var) else "const"
        if old is not None:
            form = Form(block, old.channels)
            return self.bind(op.layout_transform(x, old.layout, form.layout, old.channels), form, name)
        n, c, h, w = image_shape_of(x)
        form = Form(block, c)
        if h == w == 1 and c % block == 0:
            return self.bind(op.reshape(x, ShapeExpr((n, c // block, 1, 1, block))), form, name)
        return self.bind(op.layout_transform(x, "NCHW", form.layout, 0), form, name)

    def operand(self, x: Expr, form: Form, padding: float = 0.0) -> Expr | None:
        """A value that is broadcast against a blocked one of `form`, as [.., C / c or 1, .., .., c or 1].

        None where it cannot be brought there.
        """
        if isinstance(x, Constant):
            return self._constant_operand(x, form, padding)
        own = self.form(x)
        if own is not None and own.channels == form.channels:
            return self.blocked(x, form.block)
        x = self.plain(x)
        shape = image_shape_of(x)
        if len(shape) == 4 and shape[1] == 1:
            return self.emit(op.reshape(x, ShapeExpr((*shape, 1))), "lv")
        if len(shape) == 4 and shape[1] == form.channels and isinstance(x, Var):
            return self.blocked(x, form.block)
        return x if shape == () and isinstance(x.struct_info, TensorStructInfo) and x.struct_info.ndim == 0 else None

    def _constant_operand(self, x: Constant, form: Form, padding: float) -> Constant | None:
        array = x.data
        if array.size == 1:
            return Constant(array.reshape(()))
        if array.ndim > 4:
            return None
        wide = array.reshape((1,) * (4 - array.ndim) + array.shape)
        if wide.shape[1] == 1:
            return Constant(wide.reshape(*wide.shape, 1))
        if wide.shape[1] != form.channels:
            return None
        return Constant(to_blocked(pad_channels(wide, 1, form.stored, padding), form.block))
