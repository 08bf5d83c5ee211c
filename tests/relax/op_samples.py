"""Seeded arguments for operator samples."""

from __future__ import annotations

from typing import Any

import ml_dtypes  # noqa: F401 - names bfloat16 for NumPy
import numpy as np

from autosched import relax
from autosched.relax.op.registry import OpDef, Sample


def draw(info: Any, sample: Sample, generator: np.random.Generator) -> Any:
    """A graph argument of the type: constants of random values, shapes as they are."""
    if isinstance(info, relax.TupleStructInfo):
        return relax.Tuple(tuple(draw(f, sample, generator) for f in info.fields))
    if isinstance(info, relax.ShapeStructInfo):
        return relax.ShapeExpr(info.values)
    shape, dtype = info.static_shape, info.dtype
    if dtype == "bool":
        return relax.Constant(generator.integers(0, 2, shape).astype(bool))
    if dtype == "uint32":  # words of packed integers
        return relax.Constant(generator.integers(0, 1 << 32, shape, dtype))
    low, high = sample.low, sample.high
    if dtype.startswith("int"):
        return relax.Constant(np.asarray(generator.integers(int(max(low, -2)), int(max(high, 2)), shape), dtype))
    return relax.Constant(np.asarray(generator.uniform(low, high, shape), dtype))


def arguments(definition: OpDef, sample: Sample, seed: int = 0) -> tuple[Any, ...]:
    """Constant arguments for a sample."""
    generator = np.random.default_rng(seed)
    return tuple(draw(t, sample, generator) for t in sample.types)
