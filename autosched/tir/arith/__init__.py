"""TVM's `arith` (0.27: `sym`), over the analyzer of `tir.simplify`."""

from autosched.tir.arith.analyzer import Analyzer, ConstIntBound, ModularSet
from autosched.tir.arith.bounds import deduce_bound, detect_clip_bound, detect_linear_equation
from autosched.tir.arith.int_set import IntervalSet, IntSet, estimate_region_lower_bound, estimate_region_strict_bound
from autosched.tir.arith.int_set import estimate_region_upper_bound

__all__ = [
    "Analyzer", "ConstIntBound", "IntSet", "IntervalSet", "ModularSet", "deduce_bound", "detect_clip_bound",
    "detect_linear_equation", "estimate_region_lower_bound", "estimate_region_strict_bound",
    "estimate_region_upper_bound",
]  # fmt: skip
