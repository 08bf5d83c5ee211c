"""Intrinsics of the user's own: what a name is replaced by when code is generated."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from autosched.errors import InvalidTypeError
from autosched.ir.node import preorder
from autosched.tir.expr import Call, PrimExpr, StringImm
from autosched.tir.function import PrimFunc
from autosched.tir.functor import rewrite

T = TypeVar("T")
Rule = Callable[[Call], object]
_RULES: dict[tuple[str, str], tuple[int, Rule]] = {}  # (intrinsic, kind of target) -> (level, rule)
_ATTRS: dict[tuple[str, str], tuple[int, object]] = {}  # (intrinsic, key) -> (level, value)


def register_op_attr(op_name: str, attr_key: str, value: object = None, level: int = 10) -> object:
    """Note an attribute of an intrinsic, unless one of a higher level is; with a value of None a decorator."""
    if not isinstance(op_name, str) or not isinstance(attr_key, str):
        raise InvalidTypeError("register_op_attr takes the operator's and the attribute's names")

    def register(v: T) -> T:
        if level >= _ATTRS.get((op_name, attr_key), (level, v))[0]:
            _ATTRS[op_name, attr_key] = (level, v)
        return v

    return register if value is None else register(value)


def register_intrin_lowering(
    op_name: str, target: str, *, f: Rule | None = None, level: int = 10
) -> Rule | Callable[[Rule], Rule]:
    """Say what an intrinsic is replaced by when code is generated for a target; "default" is for all.

    f  takes the call (`op.args`, `op.dtype`) and gives an expression; without it a decorator
    """
    if not isinstance(op_name, str) or not isinstance(target, str):
        raise InvalidTypeError("register_intrin_lowering takes the intrinsic's and the target's names")

    def register(rule: Rule) -> Rule:
        if not callable(rule):
            raise InvalidTypeError(f"register_intrin_lowering: f is a {type(rule).__name__}, no function")
        name = op_name.removeprefix("tir.")
        if level >= _RULES.get((name, target), (0, rule))[0]:
            _RULES[name, target] = (level, rule)
        return rule

    return register if f is None else register(f)


_C_CALLS = ("call_pure_extern", "call_extern")
_C_NAMES = frozenset((
    "exp", "exp2", "exp10", "log", "log2", "log10", "log1p", "sqrt", "rsqrt", "tanh", "sin", "cos", "tan", "asin",
    "acos", "atan", "sinh", "cosh", "asinh", "acosh", "atanh", "pow", "fabs", "floor", "ceil", "trunc", "round",
    "nearbyint", "erf", "fmod", "atan2", "hypot", "copysign", "fma",
))  # fmt: skip


def _of_c(x: Call) -> Call:
    """A function of C's mathematics, as "expf" or CUDA's "__expf", as our own; others as they are."""
    name = x.args[0].value if isinstance(x.args[0], StringImm) else ""
    short = name.removeprefix("__")
    short = short.removesuffix("f") if short not in _C_NAMES else short
    return Call(short, x.args[1:], x.dtype) if short in _C_NAMES and len(x.args) > 1 else x


def lower_custom_intrinsics(func: PrimFunc, target: str = "llvm") -> PrimFunc:
    """The function with the user's intrinsics replaced, as their rules for a kind of target say."""
    if not any(
        isinstance(x, Call) and (x.op in _C_CALLS or any(x.op == r for r, _ in _RULES)) for x in preorder(func.body)
    ):
        return func

    def step(x: object) -> object:
        if not isinstance(x, Call):
            return x
        if x.op in _C_CALLS:
            return _of_c(x)
        for kind in (target, "default"):
            if (x.op, kind) in _RULES:
                new = _RULES[x.op, kind][1](x)
                return new if isinstance(new, PrimExpr) else x
        return x

    return func.with_body(rewrite(func.body, step))
