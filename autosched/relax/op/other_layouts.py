"""Layouts other than NCW, NCHW and NCDHW for operators over images: dimensions are brought into that order and back."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypedDict, TypeVar

import numpy as np

from autosched import topi
from autosched.errors import InvalidValueError
from autosched.ir.node import Attrs
from autosched.relax.op.registry import Limit, Limits
from autosched.relax.op.types import tensor
from autosched.relax.struct_info import StructInfo, TensorStructInfo
from autosched.te import Tensor

PLAIN, KERNEL = "NCHW", "OIHW"
LETTERS = {3: "W", 4: "HW", 5: "DHW"}  # of the dimensions behind the channels, by the number of all


def order_of(layout: str, plain: str = PLAIN) -> tuple[int, ...] | None:
    """How a tensor of a layout is transposed into the plain one; None where it is plain already, or has blocks.

    Raises ValueError for what is no order of the plain layout's letters.
    """
    if layout == plain or layout.endswith("c"):
        return None
    if sorted(layout) != sorted(plain):
        raise InvalidValueError(f"unknown layout '{layout}'", hint=f"use an order of {plain}")
    return tuple(layout.index(c) for c in plain)


def inverse(order: tuple[int, ...]) -> tuple[int, ...]:
    """The transposition that undoes another one."""
    return tuple(order.index(i) for i in range(len(order)))


def _permuted(info: StructInfo, order: tuple[int, ...] | None) -> StructInfo:
    if order is None:
        return info
    t = tensor(info)
    if t.ndim != len(order):
        return t  # refused by the operator's own rule
    return TensorStructInfo(tuple(t.dims[a] for a in order), t.dtype)


def plain_attrs(attrs: Attrs, key: str) -> tuple[tuple[tuple[int, ...] | None, ...], Attrs]:
    """(orders of data, weight and result, the attributes in plain layouts)."""
    inner = LETTERS.get(len(attrs[key]), "HW")
    plain, kernel = "NC" + inner, "OI" + inner
    orders = (
        order_of(attrs[key], plain), order_of(attrs["kernel_layout"], kernel) if "kernel_layout" in attrs else None,
        order_of(attrs["out_layout"] or attrs[key], plain),
    )  # fmt: skip
    data, weight, result = orders
    changed = {
        **({key: plain} if data else {}), **({"kernel_layout": kernel} if weight else {}),
        **({"out_layout": plain} if result else {}),
    }  # fmt: skip
    return orders, {**attrs, **changed}


class Rules(TypedDict):
    """What `define_op` takes of an operator whose layout is free."""

    infer_type: Callable[..., StructInfo]
    compute: Callable[..., Tensor]
    reference: Callable[..., np.ndarray]
    limits: Limits | None


T = TypeVar("T")


def any_layout(
    key: str, infer: Callable[..., StructInfo], compute: Callable[..., Tensor], reference: Callable[..., np.ndarray],
    limits: Limits | None = None,
) -> Rules:  # fmt: skip
    """The rules of an operator for NCHW as rules for every order of these dimensions; `key` names the attribute."""

    def infer_type(*types: StructInfo, **attrs: object) -> StructInfo:
        orders, plain = plain_attrs(attrs, key)
        found = infer(*map(_permuted, types, orders), **plain)
        return _permuted(found, inverse(orders[2])) if orders[2] else found

    def plain_limits(*types: StructInfo, **attrs: object) -> Sequence[Limit]:
        orders, plain = plain_attrs(attrs, key)
        return () if limits is None else limits(*map(_permuted, types, orders), **plain)

    def around(f: Callable[..., T], transpose: Callable[[T, tuple[int, ...]], T]) -> Callable[..., T]:
        def run(*args: T, **attrs: object) -> T:
            orders, plain = plain_attrs(attrs, key)
            result = f(*(transpose(a, o) if o else a for a, o in zip(args, orders, strict=False)), **plain)
            return transpose(result, inverse(orders[2])) if orders[2] else result

        return run

    def contiguous(x: np.ndarray, order: tuple[int, ...]) -> np.ndarray:
        return np.ascontiguousarray(np.transpose(x, order))

    return {
        "infer_type": infer_type, "compute": around(compute, topi.transpose),
        "reference": around(reference, contiguous), "limits": None if limits is None else plain_limits,
    }  # fmt: skip
