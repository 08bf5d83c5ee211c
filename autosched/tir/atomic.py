"""Sums that several threads add to at once: `B[i] = T.atomic_add(B[i], x)`, or TVM's call with an address.

The value of `atomic_add` is the sum. It stands alone as what is stored, at the element that is its first argument.
"""

from __future__ import annotations

import dataclasses

from autosched.errors import InvalidTypeError
from autosched.tir.access import is_own
from autosched.tir.buffer import BufferLoad
from autosched.tir.expr import Call, ExprLike, PrimExpr, call, to_expr
from autosched.tir.function import PrimFunc
from autosched.tir.functor import rewrite
from autosched.tir.stmt import BufferStore, Evaluate

ATOMIC_ADD = "atomic_add"


def atomic_add(element: ExprLike, value: ExprLike) -> PrimExpr:
    """The sum of an element and a value, added without losing what other threads add meanwhile.

    Raises InvalidTypeError for what is no element of a buffer.
    """
    given = element.args[0] if isinstance(element, Call) and element.op == "address_of" else element
    if not isinstance(given, BufferLoad):
        raise InvalidTypeError(
            f"atomic_add: {given} is no element of a buffer", hint="write B[i] = T.atomic_add(B[i], x)"
        )
    other = to_expr(value, given.dtype) if isinstance(value, int | float) else to_expr(value)
    if other.dtype != given.dtype:
        raise InvalidTypeError(f"atomic_add: {other.dtype} is added to an element of {given.dtype}")
    return call(ATOMIC_ADD, element, other, dtype=given.dtype)


def added(store: BufferStore) -> PrimExpr | None:
    """What a store adds to its element at one go; None for other stores."""
    value = store.value
    if not isinstance(value, Call) or value.op != ATOMIC_ADD:
        return None
    return value.args[1] if is_own(value.args[0], store) else None


def store_atomics(func: PrimFunc) -> PrimFunc:
    """The function with calls of `atomic_add` that stand alone, as TVM writes them, as stores."""

    def step(x: object) -> object:
        if isinstance(x, Evaluate) and isinstance(x.value, Call) and x.value.op == ATOMIC_ADD:
            place, value = x.value.args
            element = place.args[0] if isinstance(place, Call) and place.op == "address_of" else place
            if isinstance(element, BufferLoad):
                total = Call(ATOMIC_ADD, (element, value), element.dtype)
                return BufferStore(element.buffer, total, element.indices)
        return x

    body = rewrite(func.body, step)
    return func if body is func.body else dataclasses.replace(func, body=body)
