"""Positions that come at run time: `check_index` gives the position in [0, size) or reports that there is none.

A kernel that meets a position out of range goes on with position 0, so that no foreign memory is touched, and the run
raises IndexOutOfRangeError afterwards.
"""

from __future__ import annotations

import dataclasses

import numpy as np

from autosched.errors import IndexOutOfRangeError, InvalidValueError
from autosched.tir import expr as E
from autosched.tir.expr import ExprLike, PrimExpr, as_int
from autosched.tir.function import PrimFunc
from autosched.tir.functor import rewrite

CHECK_INDEX = "check_index"
CHECKED = "autosched.checks"  # attribute of a function all of whose accesses are to be checked while it runs
MODES = ("raise", "positive", "nearest", "clip", "wrap", "fast")


def position(value: ExprLike, size: int | PrimExpr, what: str, mode: str = "raise") -> PrimExpr:
    """The position that a run-time value means along a dimension of `size`, as an int64 in [0, size).

    size  a number, or an expression of symbols
    what  names the place in messages: "take along axis 0"
    mode  "raise": a negative value counts from the end, others out of range are reported (as "fast", which in TVM
          leaves them undefined); "positive": negative ones are reported too; "nearest": as "raise", but those out of
          range mean the nearest position; "clip" and "wrap" as in NumPy
    Raises InvalidValueError for another mode, IndexOutOfRangeError for a constant out of range.
    """
    index = E.cast("int64", value)
    if mode in ("clip", "nearest"):
        return _clipped(index, size, from_end=mode == "nearest")
    if mode == "wrap":
        return E.floormod(index, E.to_expr(size, "int64"))
    if mode not in MODES:
        raise InvalidValueError(f"{what}: mode '{mode}'", hint=f"use one of {', '.join(MODES)}")
    if not isinstance(size, int):
        least = E.const(0, "int64") if mode == "positive" else E.sub(0, size)
        return end_position(E.Call(CHECK_INDEX, (index, least, size, E.StringImm(what)), "int64"))
    low = 0 if mode == "positive" else -size
    if isinstance(index, E.IntImm):
        return E.const(checked(index.value, low, size, what), "int64")
    args = (index, E.const(low, "int64"), E.const(size, "int64"), E.StringImm(what))
    return E.Call(CHECK_INDEX, args, "int64")


def end_position(call: E.Call) -> PrimExpr:
    """A `check_index` along a dimension of symbolic size, which has one element at least, for the index 0 or -1."""
    index, low, size, _ = call.args
    while isinstance(index, E.Cast):
        index = index.value
    if E.const_int(size) is not None or not isinstance(index, E.IntImm):
        return call
    if index.value == 0:
        return E.const(0, "int64")
    return E.sub(size, 1) if index.value == -1 and E.const_int(low) != 0 else call


def _clipped(index: PrimExpr, size: int | PrimExpr, from_end: bool) -> PrimExpr:
    if from_end:
        index = E.select(E.compare(E.LT, index, 0), index + size, index)
    return E.maximum(E.minimum(index, size - 1), E.const(0, "int64"))


def out_of_range(value: int, low: int, size: int, what: str, where: str | None = None) -> IndexOutOfRangeError:
    """The error for a position that is not in [low, size)."""
    return IndexOutOfRangeError(f"{what}: index {value} is out of range [{low}, {size})", where=where)


def checked(value: int, low: int, size: int, what: str) -> int:
    """The position of a known value. Raises IndexOutOfRangeError."""
    if not low <= value < size:
        raise out_of_range(value, low, size, what)
    return value + size if value < 0 else value


def evaluate_check(values: object, call: E.Call, guarded: bool = False) -> np.ndarray:
    """What a `check_index` call gives for an array of values.

    guarded  the values may be unused: those out of range become 0
    Raises   IndexOutOfRangeError.
    """
    low, size = as_int(call.args[1]), as_int(call.args[2])
    assert isinstance(call.args[3], E.StringImm), "position made it"
    found = np.asarray(values, np.int64)
    wrong = (found < low) | (found >= size)
    if wrong.any():
        if not guarded:
            raise out_of_range(int(found[wrong].flat[0]), low, size, call.args[3].value)
        found = np.where(wrong, 0, found)
    return np.where(found < 0, found + size, found)


def clip_positions(func: PrimFunc) -> PrimFunc:
    """The function with checks replaced: positions out of range become the nearest valid ones, nothing is reported."""

    def step(x: object) -> object:
        if not isinstance(x, E.Call) or x.op != CHECK_INDEX:
            return x
        index, low, size, _ = x.args
        return _clipped(index, size, from_end=E.const_int(low) != 0)

    body = rewrite(func.body, step)
    return func if body is func.body else dataclasses.replace(func, body=body)
