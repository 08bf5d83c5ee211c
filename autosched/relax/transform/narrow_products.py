"""Products and convolutions with constant weights on bfloat16: both factors are rounded to it, sums stay float32.

Everything else is computed in float32: norms, softmax, sums, activations, products of two computed values but those of
attention. So each value is rounded once on its way into a product, and half as many bytes of weights are read.

Before:  y: float32 = matmul(x, w)
After:   y: float32 = matmul(astype(x, "bfloat16"), w_bfloat16, out_dtype="float32")

Where a back end multiplies so many rows faster as float32, both rounded factors are kept as that, with the same sums.

Attention rounds query, key and value, and its weights on their way to the values; scores and softmax are float32.

An image that convolutions read is kept as bfloat16 alone: sums beside a convolution read what it reads, maxima and
concatenations work on it. Convolutions of each channel for itself read it too; their few weights stay float32.

Before:  y = conv2d(x, w); z = add(y, x)
After:   b = astype(x, "bfloat16"); y = conv2d(b, w_bfloat16, out_dtype="float32"); z = add(y, astype(b, "float32"))
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from autosched.ir.module import IRModule
from autosched.ir.transform import Pass, graph_pass
from autosched.relax import op
from autosched.relax.expr import Binding, Call, Constant, Expr, Function, Tuple, Var
from autosched.relax.op.registry import definition_of, remake
from autosched.relax.rewrite import CallTracker, bindings_of, map_functions, users
from autosched.relax.struct_info import TensorStructInfo, tensor_infos
from autosched.relax.transform.bind_symbolic import symbolic_dims
from autosched.relax.transform.blocked import shape_of
from autosched.relax.transform.fuse_attention import ATTENTION
from autosched.relax.transform.layout_rules import is_convolution, is_depthwise
from autosched.runtime.bfloat16 import know_dtype

NARROW, WIDE = "bfloat16", "float32"
PRECISION = "autosched.precision"  # attribute of a module: what its products' factors are rounded to
# (shape of the weight, strides, groups) -> whether such a convolution is faster on bfloat16
Narrows = Callable[[Sequence[int], Sequence[int], int], bool]
Streams = Callable[[int], bool]  # rows -> whether such a product is faster with factors of bfloat16
Attends = Callable[[int, int], bool]  # queries, keys -> whether such an attention is faster on bfloat16
MOVES = ("relax.nn.max_pool2d", "relax.concat")  # give values that they are given


class _Narrower(CallTracker):
    def __init__(
        self, function: Function, constants: Mapping[Var, Constant], narrows: Narrows | None, streams: Streams,
        attends: Attends | None,
    ):  # fmt: skip
        super().__init__()
        self.attends = attends
        self.constants, self.narrows, self.readers, self.streams = constants, narrows, users(function), streams
        self.made = {b.var: b.value for b in function.bindings() if isinstance(b.value, Call)}
        self.weights: dict[tuple[int, str], Constant] = {}
        self.rows: dict[Expr, Expr] = {}
        self.rounded: dict[Expr, Expr] = {}  # rows, as float32
        self.images: dict[Expr, Expr] = {}  # of the rows those that convolutions read

    def call(self, call: Call, var: Var) -> Expr:
        self.calls[var] = call  # what it was
        definition = definition_of(call)
        if definition is None or not _is_wide(call) or not call.args or not _is_wide(call.args[0]):
            return call
        if definition.name == "matmul":
            return self.product(call)
        if definition.name == "add":
            return self.sum(call)
        if call.op_name in ATTENTION:
            return self.attention(call)
        return self.convolution(call) if is_convolution(call) and self.narrows is not None else call

    def product(self, call: Call) -> Expr:
        x, weight = call.args[0], self.weight(call, 2)
        if weight is None:
            return call
        if not self.streams(_rows(x)):
            return remake(call, [self.round(x), self.narrow_weight(weight, WIDE)])
        return remake(call, [self.narrow(x), self.narrow_weight(weight)], {"out_dtype": WIDE})

    def attention(self, call: Call) -> Call:
        """Query, key and value as bfloat16, where so many of them are faster so."""
        heads, layouts = call.args[:3], call.attrs["layouts"]
        if self.attends is None or call.attrs["out_dtype"] is not None or not all(map(_is_wide, heads)):
            return call
        counts = (shape_of(x)[layout.index("S")] for x, layout in zip(heads[:2], layouts, strict=False))
        if not self.attends(*counts):
            return call
        return remake(call, [*map(self.narrow, heads), *call.args[3:]], {"out_dtype": WIDE})

    def weight(self, call: Call, ndim: int) -> Constant | None:
        """The second factor, where it is a constant of so many dimensions."""
        given = call.args[1]
        weight = self.constants.get(given) if isinstance(given, Var) else given
        is_one = isinstance(weight, Constant) and weight.data.ndim == ndim and weight.data.dtype == WIDE
        return weight if is_one else None

    def convolution(self, call: Call) -> Expr:
        weight, attrs = self.weight(call, 4), call.attrs
        assert self.narrows is not None, "asked before"
        if weight is None or not self.narrows(weight.data.shape, attrs["strides"], attrs["groups"]):
            return call
        own = weight if is_depthwise(call) else self.narrow_weight(weight)
        return remake(call, [self.image(call.args[0]), own], {"out_dtype": WIDE})

    def image(self, x: Expr) -> Expr:
        """An image as bfloat16; one that is made of others' values is made of those."""
        if x in self.images:
            return self.images[x]
        made = self.call_of(x)
        if made is not None and made.op_name in MOVES and self.is_narrow(x):  # type: ignore[arg-type]
            first = made.args[0]
            parts = Tuple(tuple(map(self.image, first.fields))) if isinstance(first, Tuple) else self.image(first)
            self.images[x] = self.emit(remake(made, [parts]))
        else:
            self.images[x] = self.narrow(x)
        return self.images[x]

    def is_narrow(self, x: Var) -> bool:
        """Whether all who read an image can read it as bfloat16."""
        for reader in self.readers.get(x, (None,)):
            call = None if reader is None else self.made.get(reader)
            if reader is None or call is None:
                return False
            if call.op_name in MOVES and self.is_narrow(reader):
                continue
            if call.op_name != "relax.add" and not is_convolution(call):
                return False
        return True

    def sum(self, call: Call) -> Expr:
        """A sum reads an image that a convolution reads as that does: of two the one that was there first."""
        shapes = [shape_of(a) for a in call.args]
        shared = next((x for x in self.images if any(x is a for a in call.args)), None)
        if shared is None or len(shapes[0]) != 4 or shapes[0] != shapes[1] or call.args[0] is call.args[1]:
            return call
        other = next(a for a in call.args if a is not shared)
        return remake(call, [other, self.emit(op.astype(self.images[shared], WIDE))])

    def narrow(self, x: Expr) -> Expr:
        if x not in self.rows:
            self.rows[x] = self.emit(op.astype(x, NARROW))
        return self.rows[x]

    def round(self, x: Expr) -> Expr:
        """Rounded values as float32."""
        if x not in self.rounded:
            self.rounded[x] = self.emit(op.astype(self.narrow(x), WIDE))
        return self.rounded[x]

    def narrow_weight(self, weight: Constant, dtype: str = NARROW) -> Constant:
        """A weight's rounded values, in a dtype that holds them."""
        key = id(weight.data), dtype
        if key not in self.weights:
            self.weights[key] = Constant(np.ascontiguousarray(weight.data.astype(NARROW).astype(dtype)))
        return self.weights[key]


def _is_wide(x: Expr) -> bool:
    return isinstance(x.struct_info, TensorStructInfo) and x.struct_info.dtype == WIDE


def _rows(x: Expr) -> int:
    """How many rows a product has; 0 where that is known when the model runs."""
    assert isinstance(x.struct_info, TensorStructInfo), "an operand of a product is a tensor"
    return math.prod(x.struct_info.static_shape[:-1]) if x.struct_info.is_static else 0


def narrow_products(
    module: IRModule, narrows: Narrows | None = None, streams: Streams = lambda rows: True,
    attends: Attends | None = None,
) -> IRModule:  # fmt: skip
    """See above; keeps the types of inputs and outputs. Raises InvalidTypeError where ml_dtypes is missing.

    narrows  which convolutions of images of static shape are converted; None: none
    streams  which products multiply bfloat16; in others rounded factors are float32
    attends  which attentions of static shape are converted; None: none
    """

    know_dtype(NARROW)

    def convert(function: Function) -> Function:
        known = {b.var: b.value for b in bindings_of(function.body) if isinstance(b.value, Constant)}
        static = (None, None) if symbolic_dims(function) else (narrows, attends)
        return _Narrower(function, known, static[0], streams, static[1]).rewrite(function)

    return map_functions(module, convert)


def NarrowProducts(  # noqa: N802
    narrows: Narrows | None = None, streams: Streams = lambda rows: True, attends: Attends | None = None
) -> Pass:
    """See `narrow_products`."""
    return graph_pass("NarrowProducts")(lambda module: narrow_products(module, narrows, streams, attends))


def computes_in_bfloat16(module: IRModule, name: str = "main") -> bool:
    """Whether a function has parameters or constants of bfloat16 and no product of float32 that would be rounded.

    Batched products over one element are not: so positions are multiplied by frequencies.
    """
    function = module[name]
    values: list[Var | Constant] = [*function.params, *_constants(function)]
    if all(info.dtype != NARROW for v in values for info in tensor_infos(v.struct_info)):
        return False
    return not any(map(_is_wide_product, function.bindings()))


def _is_wide_product(binding: Binding) -> bool:
    call = binding.value
    if not isinstance(call, Call) or not call.args or not _is_wide(call.args[0]):
        return False
    definition = definition_of(call)
    if definition is None:
        return False
    if definition.name == "matmul":
        x, y = (a.struct_info for a in call.args)
        assert isinstance(x, TensorStructInfo) and isinstance(y, TensorStructInfo), "operands of a product are tensors"
        return y.ndim == 2 or x.shape is None or x.dims[-1:] != (1,)
    return definition.name.startswith("nn.conv") or call.op_name in ATTENTION


def _constants(function: Function) -> list[Constant]:
    found = []
    for b in bindings_of(function.body):
        arguments = b.value.args if isinstance(b.value, Call) else (b.value,)
        found += [a for a in arguments if isinstance(a, Constant)]
    return found


__all__ = ["NARROW", "PRECISION", "NarrowProducts", "computes_in_bfloat16", "narrow_products"]
