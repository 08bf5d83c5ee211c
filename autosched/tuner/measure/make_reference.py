"""Inputs and float64 results that the results of candidates are compared with, made once per task.

Inputs are of order one: standard normal floats, small integers (below the extent of what they index, where they are
used as an index). Where that gives results that are not finite, or a largest result that dwarfs the others (a division
by something near zero), floats are drawn from [0.5, 1.5) instead.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np

from autosched.ir.node import preorder
from autosched.runtime.bfloat16 import know_dtype
from autosched.templates.tf32 import SHARE, allows_tf32
from autosched.tir import REDUCE, Block, Buffer, BufferLoad, PrimFunc, as_int
from autosched.tir.checked_index import CHECK_INDEX
from autosched.tir.dtypes import is_float
from autosched.tir.expr import Call, Cast
from autosched.tir.functor import blocks, loads, stores
from autosched.tuner.measure.reference import (
    CHECKED_AGAINST,
    Reference,
    StoredReference,
    rounding_share,
    store_reference,
)

Evaluate = Callable[[PrimFunc, list[np.ndarray]], Sequence[np.ndarray]]

MOST_STEPS = 8_000_000_000  # of a reduction that is evaluated whole: some seconds
_DWARFS = 1e4
_SOME = 10_000  # values that the usual size is taken from


class FuncReferences:
    """References of PrimFuncs, evaluated here.

    evaluate  gives float64 results of a task's function; None: `tir.evaluate`
    """

    role = "autosched.tuner.measure.run_role:RunRole"
    checked_against = CHECKED_AGAINST
    most_extra = 1000
    spare: Literal["at once", "after a loss"] = "at once"

    def __init__(self, evaluate: Evaluate | None = None):
        self._evaluate = evaluate

    def store(self, func: Any, seed: int, folder: Path, key: str, ask: object) -> StoredReference:
        """See `References`."""
        return store_reference(make_reference(func, seed, self._evaluate), folder, key)


def make_reference(func: PrimFunc, seed: int = 0, evaluate: Evaluate | None = None) -> Reference:
    """Draw inputs for an unscheduled function in natural layouts and evaluate it in float64.

    evaluate  gives the outputs for the inputs; None: `tir.evaluate`, of a large reduction a random part of its results
    """
    evaluate = evaluate or functools.partial(_tir_evaluate, seed=seed)
    inputs, outputs = split_buffers(func)
    drawn = _draw(func, inputs, seed, normal=True)
    results = _evaluate(evaluate, func, drawn)
    if not all(_is_tame(result, _steps(func) > MOST_STEPS) for result in results):
        drawn = _draw(func, inputs, seed, normal=False)
        results = _evaluate(evaluate, func, drawn)
    share = math.sqrt(reduction_length(func))
    more = SHARE if allows_tf32(func) else 0.0
    rounding = tuple(1.0 if _is_quantised(func, b) else rounding_share(b.dtype, share) + more for b in outputs)
    is_part = _steps(func) > MOST_STEPS and any(r.dtype.kind == "f" and np.isnan(r).any() for r in results)
    return Reference(tuple(drawn), tuple(results), rounding, seed, is_part)


def split_buffers(func: PrimFunc) -> tuple[tuple[Buffer, ...], tuple[Buffer, ...]]:
    """Divide the buffers of the interface into inputs and outputs: what is stored to is an output."""
    written = {store.buffer for store in stores(func.body)}
    outputs = tuple(buffer for buffer in func.buffers if buffer in written)
    return tuple(buffer for buffer in func.buffers if buffer not in written), outputs


def reduction_length(func: PrimFunc) -> int:
    """Give the number of terms in the longest reduction of a function; 1 where there is none."""
    return max(map(_terms, blocks(func.body)), default=1)


def _is_quantised(func: PrimFunc, output: Buffer) -> bool:
    """Whether an output's bytes are made of floats, which a kernel may round to the neighbour."""
    made = (x for block in blocks(func.body) for x in preorder(block.body) if isinstance(x, Cast))
    return output.dtype in ("int8", "uint8") and any(x.dtype == output.dtype and is_float(x.value.dtype) for x in made)


def _terms(block: Block) -> int:
    return math.prod(as_int(axis.dom.extent) for axis in block.iter_vars if axis.kind == REDUCE)


def _steps(func: PrimFunc) -> int:
    """The number of steps of the largest reduction of a function."""
    return max((math.prod(as_int(v.dom.extent) for v in b.iter_vars) for b in blocks(func.body)), default=0)


def _tir_evaluate(func: PrimFunc, inputs: list[np.ndarray], seed: int = 0) -> Sequence[np.ndarray]:
    """All results; of a reduction that would take many seconds some, unless each result hangs on all of them."""
    from autosched.tir.evaluate import Sample, evaluate

    if _steps(func) > MOST_STEPS:
        found = evaluate(func, inputs, Sample(MOST_STEPS, seed))
        if all(r.dtype.kind != "f" or not np.isnan(r).all() for r in found):
            return found
    return evaluate(func, inputs)


def _evaluate(evaluate: Evaluate, func: PrimFunc, inputs: list[np.ndarray]) -> list[np.ndarray]:
    with np.errstate(all="ignore"):
        return [np.ascontiguousarray(result) for result in evaluate(func, inputs)]


def _is_tame(result: np.ndarray, is_part: bool) -> bool:
    """Tell whether all values are finite and the largest is not far beyond the usual ones.

    is_part  whether NaN stands for what was not evaluated
    """
    if result.dtype.kind != "f" or result.size == 0:
        return True
    sizes = np.abs(result).ravel()
    if is_part:
        sizes = sizes[~np.isnan(sizes)]
    if not bool(np.isfinite(sizes).all()):
        return False
    some = sizes[:: max(1, sizes.size // _SOME)]
    some = some[some > 0]
    return some.size == 0 or float(sizes.max()) <= _DWARFS * float(np.median(some))


def _draw(func: PrimFunc, inputs: Sequence[Buffer], seed: int, *, normal: bool) -> list[np.ndarray]:
    return [_draw_one(func, buffer, np.random.default_rng([seed, i]), normal) for i, buffer in enumerate(inputs)]


def _draw_one(func: PrimFunc, buffer: Buffer, rng: np.random.Generator, normal: bool) -> np.ndarray:
    shape, dtype = buffer.const_shape(), buffer.dtype
    know_dtype(dtype)
    if dtype == "bool":
        return rng.integers(0, 2, shape).astype(bool)
    if not dtype.startswith("float"):
        low = 0 if dtype.startswith("u") else -8
        low, high = (0, limit) if (limit := index_limit(func, buffer)) else (low, 8)
        return rng.integers(low, high, shape).astype(dtype)
    kind = np.float64 if dtype == "float64" else np.float32
    values = rng.standard_normal(shape, kind) if normal else rng.random(shape, kind) + kind(0.5)
    return np.asarray(values, dtype)


def index_limit(func: PrimFunc, buffer: Buffer) -> int | None:
    """Give the least extent that the buffer's values index; None where they are no indices."""
    limits = [
        as_int(extent)
        for load in preorder(func.body)
        if isinstance(load, BufferLoad)
        for index, extent in zip(load.indices, load.buffer.shape, strict=True)
        if any(inner.buffer is buffer for inner in loads(index))
    ]
    limits += [
        as_int(call.args[2])
        for call in preorder(func.body)
        if isinstance(call, Call) and call.op == CHECK_INDEX and any(x.buffer is buffer for x in loads(call.args[0]))
    ]
    return min(limits, default=None)
