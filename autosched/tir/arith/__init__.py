"""TVM's `arith` (0.27: `sym`), over the analyzer of `tir.simplify`."""

from autosched.tir.arith.analyzer import Analyzer, ConstIntBound, ModularSet
from autosched.tir.arith.bounds import deduce_bound, detect_clip_bound, detect_linear_equation
from autosched.tir.arith.int_set import IntervalSet, IntSet, estimate_region_lower_bound, estimate_region_strict_bound
from autosched.tir.arith.int_set import estimate_region_upper_bound
from autosched.tir.arith.inverse import inverse_affine_iter_map
from autosched.tir.arith.iter_map import IterMapResult, detect_iter_map, iter_map_simplify, normalize_to_iter_sum
from autosched.tir.arith.iter_mapper import IterMapLevel
from autosched.tir.arith.iter_nodes import IterMapExpr, IterMark, IterSplitExpr, IterSumExpr, normalize_iter_map_to_expr
from autosched.tir.arith.subspace import subspace_divide

__all__ = [
    "Analyzer", "ConstIntBound", "IntSet", "IntervalSet", "IterMapExpr", "IterMapLevel", "IterMapResult", "IterMark",
    "IterSplitExpr", "IterSumExpr", "ModularSet", "deduce_bound", "detect_clip_bound", "detect_iter_map",
    "detect_linear_equation", "estimate_region_lower_bound", "estimate_region_strict_bound",
    "estimate_region_upper_bound", "inverse_affine_iter_map", "iter_map_simplify", "normalize_iter_map_to_expr",
    "normalize_to_iter_sum", "subspace_divide",
]  # fmt: skip
