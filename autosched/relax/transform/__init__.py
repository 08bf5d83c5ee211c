"""Passes over modules, under TVM's names: each is called with its options and gives a pass."""

from typing import Any

from autosched.lazy_names import lazy_names
from autosched.ir.transform import Pass, PassContext, Sequential, absent, module_pass
from autosched.relax.transform.add_bytes import AddBytes, add_bytes
from autosched.relax.transform.absent_passes import ABSENT
from autosched.relax.transform.annotate_patterns import AnnotateTIROpPattern, OpPattern, annotate_patterns, pattern_of
from autosched.relax.transform.bind_params import BindParams
from autosched.relax.transform.bind_symbolic import BindSymbolicVars
from autosched.relax.transform.build_steps import (
    AttachGlobalSymbol,
    ConvertToDataflow,
    Normalize,
    NormalizeGlobalVar,
    OptimizeLayoutTransform,
    RemovePurityChecking,
    ToNonDataflow,
)
from autosched.relax.transform.canonicalize_bindings import CanonicalizeBindings, canonicalize_bindings
from autosched.relax.transform.choose_layouts import ChooseLayouts, choose_layouts
from autosched.relax.transform.combine_matmul import CombineParallelMatmul, combine_parallel_matmul
from autosched.relax.transform.common_subexpr import EliminateCommonSubexpr, eliminate_common_subexpr
from autosched.relax.transform.convert_layout import ConvertLayout, convert_layout
from autosched.relax.transform.convolve_planes import ConvolvePlanes, convolve_planes
from autosched.relax.transform.convolve_rows import ConvolveRows, convolve_rows
from autosched.relax.transform.copy_outputs import CopyOutputs, copy_outputs
from autosched.relax.transform.dead_code import DeadCodeElimination, dead_code_elimination
from autosched.relax.transform.decompose import DecomposeOpsForInference, DecomposeOpsForTraining, decompose_ops
from autosched.relax.transform.kernel_calls import FastMathTransform, FuseTransposeMatmul
from autosched.relax.transform.reshape_calls import RemoveRedundantReshape, RewriteDataflowReshape
from autosched.relax.transform.expand_conv import ExpandConvolutions, expand_convolutions
from autosched.relax.transform.find_gelu import FindGelu, find_gelu
from autosched.relax.transform.find_norms import FindNorms, find_norms
from autosched.relax.transform.flatten_means import FlattenMeans, flatten_means
from autosched.relax.transform.flatten_rows import FlattenRows, flatten_rows
from autosched.relax.transform.inline_calls import InlinePrivateFunctions
from autosched.relax.transform.fold_constant import FoldConstant, fold_constant
from autosched.relax.transform.fold_scale import FoldBatchnormToConv2D, fold_scale
from autosched.relax.transform.fuse_attention import FuseAttention, fuse_attention
from autosched.relax.transform.fuse_byte_attention import FuseByteAttention, fuse_byte_attention
from autosched.relax.transform.fuse_by_pattern import (
    FuseOpsByPattern,
    FusionPattern,
    MergeCompositeFunctions,
    PatternCheckContext,
)
from autosched.relax.transform.fuse_ops import FuseOps, fuse_ops
from autosched.relax.transform.fuse_tir import FuseTIR, fuse_tir
from autosched.relax.transform.gradient import Gradient
from autosched.relax.transform.gradient_rules import register_gradient
from autosched.relax.transform.integer_products import IntegerProducts, integer_products
from autosched.relax.transform.keep_bytes import KeepBytes, keep_bytes
from autosched.relax.transform.layout_costs import LayoutOracle
from autosched.relax.transform.layout_example import layout_example, stored_shapes
from autosched.relax.transform.legalize_ops import LegalizeKernels, LegalizeOps, legalize_ops
from autosched.relax.transform.lift_params import BundleModelParams, LiftTransformParams
from autosched.relax.transform.mixed_precision import ToMixedPrecision
from autosched.relax.transform.narrow_products import NarrowProducts, narrow_products
from autosched.relax.transform.pack_weights import PackWeights, pack_weights
from autosched.relax.transform.remove_identity import RemoveIdentity, remove_identity
from autosched.relax.transform.reorder_products import (
    AdjustMatmulOrder,
    ExpandMatmulOfSum,
    ReorderPermuteDimsAfterConcat,
    ReorderTakeAfterMatmul,
)
from autosched.relax.transform.run_codegen import RunCodegen
from autosched.relax.transform.share_positions import SharePositions
from autosched.relax.transform.signatures import (
    ExpandTupleArguments,
    RemoveUnusedOutputs,
    RemoveUnusedParameters,
    UpdateParamStructInfo,
)
from autosched.relax.transform.sink_views import SinkViews, sink_views
from autosched.relax.transform.slice_inputs import SliceInputs, slice_inputs
from autosched.relax.transform.slice_splits import SliceSplits, slice_splits
from autosched.relax.transform.slice_takes import SliceTakes, slice_takes
from autosched.relax.transform.split_concats import SplitConcats, split_concats
from autosched.relax.transform.split_products import SplitProducts, split_products
from autosched.relax.transform.sum_convolutions import SumConvolutions, sum_convolutions
from autosched.relax.transform.topological_sort import TopologicalSort
from autosched.relax.transform.unpack_result import UnpackResult, unpack_result
from autosched.relax.transform.views import VIEWS, is_view, without_kernel
from autosched.relax.transform.user_passes import dataflowblock_pass, function_pass
from autosched.relax.transform.widen_bytes import WidenBytes, widen_bytes
from autosched.relax.transform.widen_halves import WidenHalves

_late, __dir__ = lazy_names(__name__)


def __getattr__(name: str) -> object:
    if name in ABSENT:
        raise absent("relax.transform", name, ABSENT)
    return _late(name)
