"""The workload of a function: what records of its tuning are filed under."""

from __future__ import annotations

import re

from autosched.errors import ScheduleError
from autosched.ir.structural import structural_key
from autosched.target import Target
from autosched.task import Workload
from autosched.templates.accuracy import ACCURACY
from autosched.templates.base import Anchor
from autosched.templates.classify import blocks_of, contraction, reduced, spatial
from autosched.templates.product import UNPACKED
from autosched.templates.registry import templates_for
from autosched.templates.tf32 import PRODUCTS, TF32, allows_tf32
from autosched.tir import Block, PrimFunc
from autosched.tir.functor import free_vars
from autosched.tir.simplify import Analyzer, form_key


def describe(func: PrimFunc, target: Target) -> Workload:
    """Operator, dtypes and shapes of the interface, geometry, and the class of what is fused behind the anchor.

    Two functions of one workload accept the same configurations and run equally fast. Operators without a geometry of
    their own (element-wise chains, reductions) are distinguished by a digest of their form.
    """
    matches = templates_for(func, target)
    if not matches:
        raise ScheduleError(f"no template of the back end '{target.backend}' takes the function", hint="schedule it")
    _, anchor = matches[0]
    blocks = blocks_of(func)
    block = next((b for b in blocks if b.name_hint == anchor.block), None)
    attrs: dict[str, int | str | tuple[int, ...]] = {}
    if block is not None and contraction(block) is not None:
        attrs |= {"sizes": tuple(anchor.sizes.values()), "steps": _steps(block)}
        if allows_tf32(func):
            attrs["products"] = TF32
        if func.attrs.get(UNPACKED):
            attrs["columns"] = "unpacked"
    else:
        attrs["form"] = structural_key(
            func.without_attr("global_symbol").without_attr("op_pattern").without_attr(ACCURACY).without_attr(PRODUCTS)
        )[:16]
    return Workload(
        op=anchor.op,
        dtypes=tuple(b.dtype for b in func.buffers),
        shapes=tuple(b.const_shape() for b in func.buffers),
        attrs=attrs,
        epilogue=_epilogue(blocks, anchor),
    )


def _epilogue(blocks: tuple[Block, ...], anchor: Anchor) -> str:
    names = [b.name_hint for b in blocks]
    behind = names[names.index(anchor.block) + 1 :] if anchor.block in names else names
    return "+".join(re.sub(r"^T_|_\d+$", "", n) for n in behind)


def _steps(block: Block) -> tuple[int, ...]:
    """How far each access moves per step of each axis: strides and dilations of a convolution, all ones of a matmul."""
    c = contraction(block)
    assert c is not None
    axes = [iv.var for iv in (*spatial(block), *reduced(block))]
    analyzer = Analyzer()
    steps = []
    for access in (c.a, c.b):
        for index in access.indices:
            linear = analyzer.linear(index)
            present = free_vars(index)
            steps += [linear.terms.get(form_key(v), (0, v))[0] for v in axes if v in present]
    return tuple(steps)
