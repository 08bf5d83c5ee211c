"""Depthwise convolutions of rows of channels (tokens, NHWC) run on these rows, without changes of layout around them.

   x = permute_dims(tokens, (0, 2, 1)); y = conv2d(reshape(x, (n, c, h, w)), weight, groups=c)
   z = permute_dims(reshape(add(y, bias), (n, c, h * w)), (0, 2, 1))
-> y = conv2d(reshape(tokens, (n, 1, h, w, c)), weight, layout NCHW<c>c); z = add(reshape(y, (n, h * w, c)), bias')

What is element-wise on such images is computed on their rows too, and whoever reads rows again gets them as they are.
Where rows of a sum are read again, as in the blocks of ConvNeXt, an image that is added to rows is turned to rows.
"""

from __future__ import annotations

from autosched.ir.module import IRModule
from autosched.ir.transform import Pass, graph_pass
from autosched.relax import op
from autosched.relax.expr import Call, Constant, Expr, Function, ShapeExpr, Var
from autosched.relax.op.registry import definition_of, remake
from autosched.relax.rewrite import Rewriter, bindings_of, map_functions
from autosched.relax.transform.blocked import shape_of
from autosched.relax.transform.layout_rules import is_broadcast, is_depthwise, is_elementwise, outputs_of_each
from autosched.relax.transform.quantised import dtype_of
from autosched.relax.transform.views import is_view

TO_IMAGE, TO_ROWS, TURNED = (0, 3, 1, 2), (0, 2, 3, 1), (0, 2, 1)


class _Rows(Rewriter):
    """block: channels are whole multiples of so many, the lanes of a vector."""

    def __init__(self, function: Function, block: int) -> None:
        super().__init__()
        self.block = block
        self.wanted = _read_as_rows(function, block)
        self.rows: dict[Var, Expr] = {}  # images [N, C, H, W] -> the same as [N, H, W, C]
        self.lines: dict[Var, Expr] = {}  # [N, C, L] -> the same as [N, L, C]

    def call(self, call: Call, var: Var) -> Expr:
        source = call.args[0] if call.args else None
        shape = shape_of(var)
        if call.op_name == "relax.permute_dims" and isinstance(source, Var):
            return self.turned(call, source, var, shape)
        if is_view(call) and isinstance(source, Var):
            self.viewed(source, var, shape)
            return call
        result = self.on_rows(call, shape, var in self.wanted) if len(shape) == 4 else None
        if result is None:
            return call
        self.rows[var] = rows = self.emit(result)
        return op.permute_dims(rows, axes=TO_IMAGE)

    def turned(self, call: Call, source: Var, var: Var, shape: tuple[int, ...]) -> Expr:
        """A change between rows and images; nothing is left of one back to rows that are there."""
        axes, known = tuple(call.attrs["axes"] or ()), {TO_ROWS: self.rows, TURNED: self.lines}
        if source in known.get(axes, ()):
            there = known[axes][source]
            return there if isinstance(there, Var) else self.emit(there)
        if axes == TO_IMAGE and len(shape) == 4:
            self.rows[var] = source
        elif axes == TURNED and len(shape) == 3:
            self.lines[var] = source
        return call

    def viewed(self, source: Var, var: Var, shape: tuple[int, ...]) -> None:
        """Note images that are lines of pixels under another shape, and the other way."""
        old = shape_of(source)
        if len(shape) < 2 or old[:2] != shape[:2] or 0 in shape:
            return
        n, channels, *size = shape
        if len(shape) == 4 and (source in self.lines or source in self.rows):
            lines = self.lines.get(source, self.rows.get(source))
            assert lines is not None, "it is in one of the two"
            self.rows[var] = op.reshape(lines, ShapeExpr((n, *size, channels)))
        elif len(shape) == 3 and source in self.rows:
            self.lines[var] = op.reshape(self.there(source), ShapeExpr((n, *size, channels)))

    def there(self, image: Var) -> Var:
        """The rows of an image, under a name."""
        rows = self.emit(self.rows[image])
        assert isinstance(rows, Var), "what is emitted has a name"
        self.rows[image] = rows
        return rows

    def on_rows(self, call: Call, shape: tuple[int, ...], turns: bool) -> Expr | None:
        """The call on rows, its result in rows; None where it is none, or an argument is there as an image alone.

        turns  whether such an argument is turned, for a result that is read as rows
        """
        definition = definition_of(call)
        if definition is None or not any(isinstance(a, Var) and a in self.rows for a in call.args):
            return None
        if is_depthwise(call) and outputs_of_each(call) == 1:
            return self.convolution(call, shape)
        if not (is_elementwise(definition) or is_broadcast(definition)):
            return None
        arguments = [self.brought(a, shape, turns) for a in call.args]
        return None if None in arguments else remake(call, [a for a in arguments if a is not None])

    def convolution(self, call: Call, shape: tuple[int, ...]) -> Expr | None:
        data, weight = call.args
        n, channels, *size = shape
        if data not in self.rows or not _has_whole_vectors(call, self.block):
            return None
        old = shape_of(data)
        blocked = self.emit(op.reshape(self.there(data), ShapeExpr((n, 1, *old[2:], channels))))
        layout = f"NCHW{channels}c"
        result = self.emit(remake(call, [blocked, weight], {"data_layout": layout, "out_layout": layout}))
        return op.reshape(result, ShapeExpr((n, *size, channels)))

    def brought(self, x: Expr, shape: tuple[int, ...], turns: bool) -> Expr | None:
        """An argument of an element-wise call on rows; None where it would have to be turned, and is not."""
        if isinstance(x, Constant):
            if x.data.ndim > 4:
                return None
            return Constant(x.data.reshape((1,) * (4 - x.data.ndim) + x.data.shape).transpose(TO_ROWS))
        own = shape_of(x)
        if own == shape and turns and isinstance(x, Var) and x not in self.rows:
            self.rows[x] = op.permute_dims(x, axes=TO_ROWS)
        if x in self.rows and own == shape:
            return self.there(x)
        if len(own) == 4 and own[2:] == (1, 1):
            return self.emit(op.reshape(x, ShapeExpr((own[0], 1, 1, own[1]))))
        return None


def _has_whole_vectors(convolution: Call, block: int) -> bool:
    """Whether a depthwise convolution of float32 has channels of which a block is a divisor."""
    data = convolution.args[0]
    return shape_of(data)[1] % block == 0 and dtype_of(data) == "float32"


def _read_as_rows(function: Function, block: int) -> set[Var]:
    """The images whose rows something reads, through what is computed on rows where its arguments are there."""
    found: set[Var] = set()
    for binding in reversed(list(bindings_of(function.body))):
        call = binding.value
        if not isinstance(call, Call) or len(shape_of(binding.var)) != 4:
            continue
        definition = definition_of(call)
        if call.op_name == "relax.permute_dims":
            is_read = tuple(call.attrs["axes"] or ()) == TO_ROWS
        elif definition is None or binding.var not in found:
            is_read = False
        elif is_depthwise(call):
            is_read = outputs_of_each(call) == 1 and _has_whole_vectors(call, block)
        else:
            is_read = is_elementwise(definition) or is_broadcast(definition)
        if is_read:
            found.update(a for a in call.args if isinstance(a, Var))
    return found


def convolve_rows(module: IRModule, block: int) -> IRModule:
    """Depthwise convolutions of float32 between rows of channels read and write them; `block` divides the channels."""
    return map_functions(module, lambda function: _Rows(function, block).rewrite(function))


def ConvolveRows(block: int) -> Pass:  # noqa: N802
    """See `convolve_rows`."""
    return graph_pass("ConvolveRows")(lambda module: convolve_rows(module, block))


__all__ = ["ConvolveRows", "convolve_rows"]
