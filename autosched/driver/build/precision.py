"""What the products of a model are computed on: an attribute of its module, which the graph level's passes read."""

from __future__ import annotations

from autosched.errors import TargetError, UsageError
from autosched.ir import IRModule
from autosched.relax.expr import Function
from autosched.relax.transform.narrow_products import NARROW, PRECISION, WIDE, computes_in_bfloat16
from autosched.target import Target
from autosched.templates import product_types, widened_dtypes
from autosched.templates.tf32 import TF32

PRECISIONS = {"float32": WIDE, "bf16": NARROW, "bfloat16": NARROW, "tf32": TF32}


def with_precision(module: IRModule, precision: str | None, target: Target) -> IRModule:
    """The module that says what was asked for; None: nothing. Raises UsageError, TargetError for what there is not."""
    if precision is None:
        return module
    if precision not in PRECISIONS:
        raise UsageError(f"precision '{precision}'", hint=f"use one of {', '.join(PRECISIONS)}")
    if not any(isinstance(f, Function) for _, f in module.functions_items()):
        raise UsageError("precision is for models", hint="a function's arrays have the types that it says")
    chosen = PRECISIONS[precision]
    if chosen != WIDE and chosen not in (*widened_dtypes(target), *product_types(target)):
        raise TargetError(f"precision='{precision}' for {target.kind.name}", hint="there a model's own types are used")
    return module.with_attr(PRECISION, chosen)


def precision_of(module: IRModule, target: Target) -> str:
    """What products round their factors to: as was asked for, else bfloat16 in models of it, on CPUs."""
    asked, there = module.attrs.get(PRECISION), (*widened_dtypes(target), *product_types(target))
    if asked is not None:
        return str(asked) if asked in there else WIDE
    return NARROW if NARROW in there and computes_in_bfloat16(module) else WIDE
