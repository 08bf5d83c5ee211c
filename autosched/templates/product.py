"""Products: which operand is read along the rows of the result, and which along its columns."""

from __future__ import annotations

from dataclasses import dataclass

from autosched.templates.classify import Contraction, index_vars, is_parameter, reduced, spatial
from autosched.tir import BufferLoad, PrimFunc, Var

UNPACKED = "autosched.unpacked"  # attribute of a function whose right-hand side is read as it is, see `unpacked`


@dataclass(frozen=True)
class Operands:
    """The roles in a matrix product: `rows` is read along m, `columns` along n."""

    rows: BufferLoad
    columns: BufferLoad
    batch: int  # leading output dimensions that are neither m nor n
    n_contiguous: bool
    is_weight: bool


def find_operands(func: PrimFunc, c: Contraction) -> Operands | None:
    """The operands of a sum of products over one axis; None where it is no matrix product."""
    out = [iv.var for iv in spatial(c.block)]
    if len(reduced(c.block)) != 1 or len(out) < 2:
        return None
    n = out[-1]
    for rows, columns in ((c.a, c.b), (c.b, c.a)):
        row_vars, column_vars = index_vars(rows), index_vars(columns)
        if row_vars is None or column_vars is None or not _holds(column_vars, n) or _holds(row_vars, n):
            continue
        shared = [v for v in out[:-1] if _holds(column_vars, v)]
        if not _holds(row_vars, out[-2]) or any(v is out[-2] for v in shared):
            continue
        contiguous = columns.indices[-1] is n
        weight = not shared and len(columns.indices) == 2 and is_parameter(func, columns)
        weight = weight and not func.attrs.get(UNPACKED)
        return Operands(rows, columns, len(out) - 2, contiguous, weight)
    return None


BYTE_GROUP, PAIR = 4, 2  # elements in a word of 32 bits, of which a lane adds the products up at once: bytes, others
_GROUPS = {
    ("uint8", "int8", "int32"): BYTE_GROUP,
    ("int16", "int16", "int32"): PAIR,
    ("bfloat16", "bfloat16", "float32"): PAIR,
}


def lane_group(c: Contraction, shared: BufferLoad, own: BufferLoad) -> int:
    """How many steps of its reduction a lane does at once: four of unsigned bytes times signed ones, two of
    bfloat16 or int16.

    shared  what is the same for all lanes;  own: of each lane
    """
    return _GROUPS.get((shared.buffer.dtype, own.buffer.dtype, c.block.writes[0].buffer.dtype), 1)


def _holds(variables: tuple[Var, ...], v: Var) -> bool:
    return any(x is v for x in variables)
