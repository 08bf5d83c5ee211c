"""Right-hand sides of products that are read as they are: an attribute of PrimFuncs, for matrices that no call knows.

A constant is packed once, at build. A matrix that comes with the call would be packed in each call, which takes several
times as long as a product with few rows: 1 row and 768 x 3000 690 us packed, 85 us read as it is, 32 rows 1201 and
834 us, 128 rows 2924 and 2631 us (Zen 5).
"""

from __future__ import annotations

from autosched.ir import IRModule
from autosched.relax.expr import Call, Constant, Function, Var
from autosched.relax.op.call import CALL_TIR
from autosched.templates.classify import find_contraction, spatial
from autosched.templates.product import UNPACKED, find_operands
from autosched.tir import PrimFunc
from autosched.tir.expr import const_int

MOST_ROWS = 128
# Rows of the matrix whose distance is a multiple of a page share few sets of the first-level cache: 64 rows and
# 2048 x 2048 take 1.07 of the time with packing, 128 rows 1.25 (Zen 5).
PAGE_BYTES, MOST_ROWS_OF_PAGES = 4096, 32


def read_unpacked(module: IRModule) -> IRModule:
    """The module whose products of few rows read matrices that are no constants as they are."""
    given = _given(module)
    functions = {
        gv: f.with_attr(UNPACKED, True) if isinstance(f, PrimFunc) and _is_faster(f, given.get(gv.name, ())) else f
        for gv, f in module.functions_items()
    }
    return module.with_functions(functions)


def _given(module: IRModule) -> dict[str, set[int]]:
    """By the name of each function that is called: the positions of arguments that are a constant in no call."""
    given: dict[str, set[int]] = {}
    for _, function in module.functions_items():
        if not isinstance(function, Function):
            continue
        constants = {b.var for b in function.bindings() if isinstance(b.value, Constant)}
        for call in (b.value for b in function.bindings()):
            if isinstance(call, Call) and call.op_name == CALL_TIR.name:
                args = enumerate(call.args[1].fields)
                here = {i for i, x in args if isinstance(x, Var) and x not in constants}
                given[call.args[0].name] = given.get(call.args[0].name, here) & here
    return given


def _is_faster(func: PrimFunc, given: set[int] | tuple[()]) -> bool:
    """Whether a product takes less time with its right-hand side as it is than with packing it in each call."""
    c = find_contraction(func) if given else None
    operands = None if c is None else find_operands(func, c)
    if c is None or operands is None or not operands.is_weight or not operands.n_contiguous:
        return False
    matrix = operands.columns.buffer
    if matrix.dtype != "float32" or func.buffers.index(matrix) not in given:
        return False
    steps, columns = map(const_int, matrix.shape)
    if steps is None or columns is None:
        return False  # such a product packs what it reads itself
    rows, row_bytes = const_int(spatial(c.block)[-2].dom.extent), 4 * columns
    return rows is None or rows <= (MOST_ROWS if row_bytes % PAGE_BYTES else MOST_ROWS_OF_PAGES)
