"""Comparisons, logic and bits, choices, conversions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from autosched.frontend.torch.converters.index import nonzero_numpy
from autosched.frontend.torch.emitter import Emitter, info_of
from autosched.frontend.torch.registry import converter
from autosched.relax import op
from autosched.relax.expr import Expr

COMPARE = {
    "eq": op.equal, "ne": op.not_equal, "lt": op.less, "le": op.less_equal, "gt": op.greater, "ge": op.greater_equal,
}  # fmt: skip
LOGIC = {"logical_and": op.logical_and, "logical_or": op.logical_or, "logical_xor": op.logical_xor}
BITS = {
    "bitwise_and": (op.bitwise_and, op.logical_and), "bitwise_or": (op.bitwise_or, op.logical_or),
    "bitwise_xor": (op.bitwise_xor, op.logical_xor),
}  # fmt: skip
PYTHON_NAMES = {"bitwise_and": "and", "bitwise_or": "or", "bitwise_xor": "xor"}  # `&` of a traced program
SHIFTS = {
    ("bitwise_left_shift", "lshift", "__lshift__"): op.left_shift,
    ("bitwise_right_shift", "rshift", "__rshift__"): op.right_shift,
}


def _register() -> None:
    for name, definition in COMPARE.items():

        def compare(t: Emitter, input: object, other: object, *, _op: Callable[..., Expr] = definition) -> Expr:
            a, b = t.alike(input, other)
            return _op(*((t.cast(x, "int8") for x in (a, b)) if info_of(a).dtype == "bool" else (a, b)))

        converter(name)(compare)
    for name, definition in LOGIC.items():

        def logic(t: Emitter, input: Expr, other: Expr, *, _op: Callable[..., Expr] = definition) -> object:
            return _op(t.as_dtype(input, "bool"), t.as_dtype(other, "bool"))

        converter(name)(logic)
    for name, (of_integers, of_truths) in BITS.items():

        def bits(t: Emitter, input: object, other: object, *, _ops: Any = (of_integers, of_truths)) -> Any:
            a, b = t.alike(input, other)
            return _ops[info_of(a).dtype == "bool"](a, b)

        short = PYTHON_NAMES[name]
        converter(name, short, f"{short}_", f"__{short}__")(bits)
    for names, definition in SHIFTS.items():

        def shift(t: Emitter, input: Expr, other: Expr, *, _op: Callable[..., Expr] = definition) -> object:
            return _op(*t.alike(input, other))

        converter(*names)(shift)


_register()


@converter("logical_not")
def logical_not(t: Emitter, input: Expr) -> Expr:
    return op.logical_not(t.cast(input, "bool"))


@converter("bitwise_not", "invert")
def bitwise_not(t: Emitter, input: Expr) -> Expr:
    return op.logical_not(input) if info_of(input).dtype == "bool" else op.bitwise_not(input)


@converter("isnan")
def isnan(t: Emitter, input: Expr) -> Expr:
    return op.isnan(t.as_float(input))


@converter("isinf")
def isinf(t: Emitter, input: Expr) -> Expr:
    return op.isinf(t.as_float(input))


@converter("isfinite")
def isfinite(t: Emitter, input: Expr) -> Expr:
    return op.isfinite(t.as_float(input))


@converter("where")
def where(t: Emitter, condition: Expr, input: Expr | None = None, other: Expr | None = None) -> Expr | Sequence[Expr]:
    """One of two values; of a condition alone the positions where it holds, in each dimension."""
    if input is None or other is None:
        return nonzero_numpy(t, condition)
    return op.where(t.cast(condition, "bool"), *t.alike(input, other))


@converter("masked_fill")
def masked_fill(t: Emitter, input: Expr, mask: Expr, value: object) -> Expr:
    filled = t.as_dtype(value, info_of(input).dtype)
    return op.where(mask, filled, input)


@converter("to", "_to_copy", "type_as", "type", "to_dtype")
def to(t: Emitter, input: Expr, *args: object, dtype: object = None, **_: object) -> Expr:
    for value in args:
        if isinstance(value, Expr):
            dtype = info_of(value).dtype
        elif not isinstance(value, bool) and value in t.dtypes:
            dtype = value
    return input if dtype is None else t.cast(input, t.dtype(dtype))


@converter("convert_element_type", "_conversion")
def convert(t: Emitter, input: Expr, dtype: object) -> Expr:
    return t.cast(input, t.dtype(dtype))


@converter("float")
def to_float(t: Emitter, input: Expr) -> Expr:
    return t.cast(input, "float32")


@converter("long")
def to_long(t: Emitter, input: Expr) -> Expr:
    return t.cast(input, "int64")


@converter("copy")
def copy(t: Emitter, input: Expr, src: Expr, non_blocking: bool = False) -> Expr:
    """The values of `src`, in the shape and dtype of `input`."""
    value = t.cast(src, info_of(input).dtype)
    shape = t.shape(input)
    return t.broadcast(value, shape)


@converter(
    "contiguous", "clone", "detach", "alias", "lift_fresh_copy", "lift_fresh", "detach_copy", "requires_grad_",
    "identity", "alias_copy", "positive", "view_of", "conj_physical", "real",
)  # fmt: skip
def same(t: Emitter, input: Expr, *_: object, **__: object) -> Expr:
    return input
