"""Intrinsics of the user's own: what a name is replaced by when code is generated."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from autosched.errors import InvalidTypeError
from autosched.tir.expr import Call, PrimExpr
from autosched.tir.function import PrimFunc
from autosched.tir.functor import rewrite

Rule = Callable[[Any], Any]
_RULES: dict[tuple[str, str], tuple[int, Rule]] = {}  # (intrinsic, kind of target) -> (level, rule)
_ATTRS: dict[tuple[str, str], Any] = {}


def register_op_attr(op_name: str, attr_key: str, value: Any = None, level: int = 10) -> Any:
    """Note an attribute of an intrinsic; with a value of None a decorator of a function."""
    if not isinstance(op_name, str) or not isinstance(attr_key, str):
        raise InvalidTypeError("register_op_attr takes the operator's and the attribute's names")

    def register(v: Any) -> Any:
        _ATTRS[op_name, attr_key] = v
        return v

    return register if value is None else register(value)


def register_intrin_lowering(op_name: str, target: str, *, f: Rule | None = None, level: int = 10) -> Any:
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


def lower_custom_intrinsics(func: PrimFunc, target: str = "llvm") -> PrimFunc:
    """The function with the user's intrinsics replaced, as their rules for a kind of target say."""
    if not _RULES:
        return func

    def step(x: Any) -> Any:
        if not isinstance(x, Call):
            return x
        for kind in (target, "default"):
            if (x.op, kind) in _RULES:
                new = _RULES[x.op, kind][1](x)
                return new if isinstance(new, PrimExpr) else x
        return x

    return func.with_body(rewrite(func.body, step))
