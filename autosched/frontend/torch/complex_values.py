"""Complex tensors: two real ones each, and how operators are written with these."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import NoReturn

import numpy as np

from autosched.frontend.torch.emitter import Emitter, Value, info_of
from autosched.frontend.torch.registry import CONVERTERS, C, Converter
from autosched.relax.expr import Constant, Expr

COMPLEX: dict[str, Converter] = {}  # what takes complex tensors and treats their parts differently
PARTS = {"torch.complex64": "float32", "torch.complex128": "float64"}  # the dtype of the parts
BY_PART = frozenset((  # what moves elements, or adds them up: each part by itself
    "view", "reshape", "_unsafe_view", "view_copy", "_reshape_copy", "flatten", "unflatten", "permute", "permute_copy",
    "transpose", "transpose_copy", "swapaxes", "t", "unsqueeze", "unsqueeze_copy", "squeeze", "squeeze_copy", "expand",
    "expand_copy", "expand_as", "repeat", "tile", "cat", "concat", "concatenate", "stack", "split", "split_with_sizes",
    "split_copy", "split_with_sizes_copy", "chunk", "unbind", "slice", "slice_copy", "select", "select_copy", "narrow",
    "narrow_copy", "getitem", "index_select", "index", "_unsafe_index", "gather", "diagonal", "diagonal_copy", "unfold",
    "unfold_copy", "flip", "roll", "slice_scatter", "select_scatter", "diagonal_scatter", "copy", "contiguous", "clone",
    "detach", "alias", "alias_copy", "lift_fresh_copy", "lift_fresh", "detach_copy", "identity", "positive", "where",
    "sum", "mean", "cumsum", "add", "sub", "subtract", "rsub", "neg", "negative", "tril", "triu", "constant_pad_nd",
    "pad",
))  # fmt: skip

CREATED = (
    "zeros",
    "ones",
    "empty",
    "full",
    "zeros_like",
    "ones_like",
    "full_like",
    "new_zeros",
    "new_ones",
    "new_full",
)


@dataclass(frozen=True)
class Complex:
    """A complex tensor. The imaginary part is None where it is 0 everywhere."""

    real: Expr
    imag: Expr | None = None

    def imaginary(self, t: Emitter) -> Expr:
        """The imaginary part as a tensor."""
        return zeros(t, self.real) if self.imag is None else self.imag


def zeros(t: Emitter, like: Expr) -> Constant:
    """As many zeros of the same dtype."""
    return Constant(np.zeros(t.shape(like), info_of(like).dtype))


def complex_converter(*names: str) -> Callable[[C], C]:
    """Register what operators do with complex tensors; arguments are `Complex`, real tensors and Python's numbers."""

    def register(function: C) -> C:
        for name in names:
            COMPLEX[name] = function
        return function

    return register


def of_reals(t: Emitter, *_: object, **__: object) -> NoReturn:
    """The converter of an operator that is known for complex tensors alone."""
    raise t.fail("this operator of real numbers is not supported")


def complex_constant(array: np.ndarray) -> Complex:
    """Values that are known."""
    return Complex(Constant(np.ascontiguousarray(array.real)), Constant(np.ascontiguousarray(array.imag)))


def has_complex(args: Sequence[object], kwargs: Mapping[str, object]) -> bool:
    """Whether an operator takes or makes complex numbers."""
    values = [*args, *kwargs.values()]
    values += [v for value in values if isinstance(value, tuple | list) for v in value]
    return any(
        isinstance(v, Complex | complex) or str(v) in PARTS for v in values if not isinstance(v, Expr | tuple | list)
    )


def as_complex(t: Emitter, value: object, dtype: str) -> Complex:
    """A tensor or number as a complex tensor with parts of a dtype."""
    if isinstance(value, Complex):
        return Complex(t.cast(value.real, dtype), None if value.imag is None else t.cast(value.imag, dtype))
    if isinstance(value, complex):
        return Complex(*(Constant(np.asarray(part, dtype)) for part in (value.real, value.imag)))
    return Complex(t.as_dtype(value, dtype))


def part_dtype(*values: object) -> str:
    """The dtype of the parts of a result: float64 where a tensor of that precision takes part."""
    tensors = [v.real if isinstance(v, Complex) else v for v in values]
    dtypes = [info_of(v).dtype for v in tensors if isinstance(v, Expr)]
    return "float64" if "float64" in dtypes else "float32"


def complex_result(t: Emitter, name: str, args: Sequence[Value], kwargs: Mapping[str, Value]) -> Value:
    """What an operator gives that takes or makes complex tensors. Raises ImportModelError where it is not known."""
    if name in COMPLEX:
        return COMPLEX[name](t, *args, **kwargs)
    if name not in BY_PART and name not in CREATED:
        raise t.fail(f"{name} of complex numbers is not supported")
    dtype = next((PARTS[str(v)] for v in kwargs.values() if str(v) in PARTS), None)
    if dtype is not None:
        kwargs = {k: dtype if str(v) in PARTS else v for k, v in kwargs.items()}
    if name in CREATED:
        args = [a.real if isinstance(a, Complex) else a for a in args]
        made = [
            CONVERTERS[name](t, *(getattr(a, part) if isinstance(a, complex) else a for a in args), **kwargs)
            for part in (("real", "imag") if any(isinstance(a, complex) for a in args) else ("real",))
        ]
        return Complex(*made)
    if name == "where":  # the condition is no part of the result
        args = [args[0], *_same_type(t, list(args[1:]))]
    elif name in ("add", "sub", "subtract", "rsub", "copy", "slice_scatter", "select_scatter", "diagonal_scatter"):
        args = [*_same_type(t, list(args[:2])), *args[2:]]
    elif name in ("cat", "concat", "concatenate", "stack"):
        args = [_same_type(t, list(args[0])), *args[1:]]
    real = CONVERTERS[name](t, *_part(args, 0, t), **kwargs)
    if not _any_imaginary(args):
        return tuple(Complex(r) for r in real) if isinstance(real, tuple) else Complex(real)
    imag = CONVERTERS[name](t, *_part(args, 1, t), **kwargs)
    if isinstance(real, tuple):
        return tuple(Complex(a, b) for a, b in zip(real, imag, strict=True))
    return Complex(real, imag)


def _same_type(t: Emitter, values: list[Value]) -> list[Value]:
    dtype = part_dtype(*values)
    return [as_complex(t, v, dtype) for v in values]


def _any_imaginary(value: object) -> bool:
    if isinstance(value, tuple | list):
        return any(_any_imaginary(v) for v in value)
    return isinstance(value, Complex) and value.imag is not None


def _part(value: object, which: int, t: Emitter) -> Value:
    """Arguments with one part of each complex tensor in its place."""
    if isinstance(value, tuple | list):
        return [_part(v, which, t) for v in value]
    if isinstance(value, Complex):
        return value.imaginary(t) if which else value.real
    return value
