"""How a PrimFunc may be fused with its neighbours, read from its blocks."""

from __future__ import annotations

from enum import IntEnum

from autosched.ir.module import IRModule
from autosched.ir.transform import Pass, graph_pass
from autosched.tir.axis import REDUCE
from autosched.tir.buffer import BufferLoad
from autosched.tir.expr import Add, Cast, Mul, PrimExpr, Var, const_int
from autosched.tir.function import PrimFunc
from autosched.tir.functor import blocks, loads
from autosched.tir.stmt import Block, BufferStore


class OpPattern(IntEnum):
    """TVM's classes, by their numbers."""

    ELEMENTWISE = 0  # every element from the same element of the inputs
    BROADCAST = 1  # … inputs may lack dimensions
    INJECTIVE = 2  # every element from one element: transpose, concat
    REDUCTION = 3
    OUT_FUSABLE = 4  # matmul, conv: element-wise consumers join
    TUPLE = 7
    OPAQUE = 8


def _is_reduction(block: Block) -> bool:
    return any(iv.kind == REDUCE for iv in block.iter_vars)


def _load_pattern(load: BufferLoad, variables: list[Var], extents: list[int | None]) -> OpPattern:
    """How one read relates to the element that is written."""
    if any(loads(i) for i in load.indices):
        return OpPattern.OPAQUE  # positions that data decide
    last, exact = -1, len(load.indices) == len(variables)
    for d, index in enumerate(load.indices):
        if const_int(index) == 0 and const_int(load.buffer.shape[d]) == 1:
            exact = exact and d < len(extents) and extents[d] == 1
            continue
        position = next((n for n, v in enumerate(variables) if v is index), -1)
        if position <= last:
            return OpPattern.INJECTIVE
        exact, last = exact and position == d, position
    return OpPattern.ELEMENTWISE if exact else OpPattern.BROADCAST


def block_pattern(block: Block, exact_is_enough: bool = False) -> OpPattern:
    """The pattern of a block without reduction.

    exact_is_enough  TVM's rule: with one input element by element, others may lack dimensions in ELEMENTWISE
    """
    body = block.body
    variables = [iv.var for iv in block.iter_vars]
    if block.init is not None or not isinstance(body, BufferStore):
        return OpPattern.OPAQUE
    if len(body.indices) != len(variables) or any(i is not v for i, v in zip(body.indices, variables, strict=True)):
        return OpPattern.OPAQUE
    extents = [const_int(iv.dom.extent) for iv in block.iter_vars]
    patterns = [_load_pattern(x, variables, extents) for x in loads(body.value)]
    found = max(patterns, default=OpPattern.ELEMENTWISE)
    if exact_is_enough and found is OpPattern.BROADCAST and OpPattern.ELEMENTWISE in patterns:
        return OpPattern.ELEMENTWISE
    return found


def _strip_casts(x: PrimExpr) -> PrimExpr:
    while isinstance(x, Cast):
        x = x.value
    return x


def _is_contraction(block: Block) -> bool:
    """Whether the block computes out += a * b of two different arrays."""
    body = block.body
    if not isinstance(body, BufferStore) or not isinstance(body.value, Add):
        return False
    product = _strip_casts(body.value.b)
    if not isinstance(product, Mul):
        return False
    a, b = _strip_casts(product.a), _strip_casts(product.b)
    return isinstance(a, BufferLoad) and isinstance(b, BufferLoad) and a.buffer is not b.buffer


def pattern_of(func: PrimFunc, exact_is_enough: bool = False) -> OpPattern:
    """The pattern of a whole function: OUT_FUSABLE where it ends in a contraction, else the least regular block's."""
    every = blocks(func.body)[1:]
    if not every or any(not isinstance(b.body, BufferStore) for b in every):
        return OpPattern.OPAQUE
    written = {b.body.buffer for b in every if isinstance(b.body, BufferStore)}
    if sum(buffer in written for buffer in func.buffers) != 1:
        return OpPattern.OPAQUE
    reductions = [b for b in every if _is_reduction(b)]
    others = max(
        (block_pattern(b, exact_is_enough) for b in every if not _is_reduction(b)), default=OpPattern.ELEMENTWISE
    )
    if others is OpPattern.OPAQUE or not reductions:
        return others
    if len(reductions) == 1 and reductions[0] is every[-1] and _is_contraction(every[-1]):
        return OpPattern.OUT_FUSABLE
    return OpPattern.REDUCTION


def annotate_patterns(module: IRModule) -> IRModule:
    """Give every PrimFunc without one the attribute `op_pattern`."""
    functions = {
        gv: f.with_attr("op_pattern", int(pattern_of(f, exact_is_enough=True)))
        if isinstance(f, PrimFunc) and "op_pattern" not in f.attrs
        else f
        for gv, f in module.functions.items()
    }
    return module.with_functions(functions)


def AnnotateTIROpPattern() -> Pass:  # noqa: N802
    """See `annotate_patterns`."""
    return graph_pass("AnnotateTIROpPattern")(annotate_patterns)
