"""Passes over graph functions: a file each."""

from autosched.relax.transform.bind_params import BindParams
from autosched.relax.transform.canonicalize import CanonicalizeBindings, canonicalize_bindings, canonicalize_operators
from autosched.relax.transform.choose_layouts import choose_layouts
from autosched.relax.transform.common_subexpr import EliminateCommonSubexpr, eliminate_common_subexpr
from autosched.relax.transform.dead_code import DeadCodeElimination, dead_code_elimination
from autosched.relax.transform.decompose import DecomposeOpsForInference, decompose_for_inference
from autosched.relax.transform.fold_batchnorm import FoldBatchnormToConv2D, fold_batchnorm, fold_scales
from autosched.relax.transform.fold_constant import FoldConstant, fold_constants
from autosched.relax.transform.remove_identity import remove_identity
