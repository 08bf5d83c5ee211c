"""Operators that change shapes, put tensors together or take them apart."""

from __future__ import annotations

from collections.abc import Sequence

from autosched.errors import InvalidValueError
from autosched.frontend.nn.core import Tensor, wrap_nested
from autosched.frontend.nn.op.arguments import shape_of, value_of
from autosched.relax import op as R
from autosched.relax.expr import Tuple


def reshape(x: Tensor, shape: object, name: str = "reshape") -> Tensor:
    """Another shape; one dimension may be -1."""
    call = R.reshape(value_of(x, name), shape_of(shape))
    resolved = R.reshape(x._expr, call.struct_info.shape)  # type: ignore[union-attr]
    return wrap_nested(resolved, name)  # type: ignore[no-any-return]


def permute_dims(x: Tensor, axes: Sequence[int] | None = None, name: str | None = None) -> Tensor:
    """The dimensions in another order; reversed by default."""
    return wrap_nested(  # type: ignore[no-any-return]
        R.permute_dims(value_of(x, "permute_dims"), axes=None if axes is None else list(axes)), name or "permute_dims"
    )


permute = permute_dims


def unsqueeze(x: Tensor, dim: int, name: str = "unsqueeze") -> Tensor:
    """A dimension of one more."""
    return wrap_nested(R.expand_dims(value_of(x, name), axis=dim), name)  # type: ignore[no-any-return]


def squeeze(x: Tensor, axis: int = -1, name: str = "squeeze") -> Tensor:
    """A dimension of one less."""
    return wrap_nested(R.squeeze(value_of(x, name), axis=[axis]), name)  # type: ignore[no-any-return]


def broadcast_to(x: Tensor, shape: Sequence[object], name: str = "broadcast_to") -> Tensor:
    """Dimensions of one repeated."""
    return wrap_nested(R.broadcast_to(value_of(x, name), shape_of(shape)), name)  # type: ignore[no-any-return]


def repeat(x: Tensor, repeats: int, axis: int | None = None, name: str = "repeat") -> Tensor:
    """Each element several times in a row along an axis; of the flat tensor where there is none."""
    if axis is None:
        x, axis = reshape(x, [-1]), 0
    shape = list(x.struct_info.static_shape)
    axis %= len(shape)
    wide = broadcast_to(unsqueeze(x, axis + 1), [*shape[: axis + 1], repeats, *shape[axis + 1 :]])
    return reshape(wide, [*shape[:axis], shape[axis] * repeats, *shape[axis + 1 :]], name)


def concat(x: Sequence[Tensor], dim: int, name: str = "concat") -> Tensor:
    """Tensors joined along a dimension."""
    return wrap_nested(R.concat(Tuple(tuple(value_of(t, name) for t in x)), axis=dim), name)  # type: ignore[no-any-return]


def stack(x: Sequence[Tensor], dim: int = 0, name: str = "stack") -> Tensor:
    """Tensors joined along a new dimension."""
    axis = dim if dim >= 0 else dim + x[0].ndim + 1
    return concat([unsqueeze(t, axis) for t in x], axis, name)


def split(
    x: Tensor, indices_or_sections: int | Sequence[int], axis: int = 0, name: str = "split"
) -> tuple[Tensor, ...]:
    """In equal parts, or cut at positions."""
    cuts = indices_or_sections if isinstance(indices_or_sections, int) else list(indices_or_sections)
    return wrap_nested(R.split(value_of(x, name), indices_or_sections=cuts, axis=axis), name)  # type: ignore[no-any-return]


def chunk(x: Tensor, chunks: int, dim: int = 0, name: str = "chunk") -> tuple[Tensor, ...]:
    """In equal parts."""
    return split(x, chunks, dim, name)


def pad(x: Tensor, pad: Sequence[int], mode: str = "constant", value: float = 0.0, name: str = "pad") -> Tensor:
    """Widths before and after each dimension, the last dimension first."""
    if mode != "constant":
        raise InvalidValueError(f"pad with mode '{mode}' is not supported", hint="use 'constant'")
    widths = [0] * (2 * x.ndim)
    for i in range(len(pad) // 2):
        at = 2 * (x.ndim - 1 - i)
        widths[at : at + 2] = pad[2 * i : 2 * i + 2]
    return wrap_nested(R.nn.pad(value_of(x, name), pad_width=widths, pad_value=value), name)  # type: ignore[no-any-return]
