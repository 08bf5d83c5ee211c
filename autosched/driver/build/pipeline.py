"""The order of a build at the graph level, and the runner that verifies and prints between passes."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from functools import partial

from autosched.driver.build.graph_options import GraphOptions
from autosched.durations import log_step
from autosched.env import AUTOSCHED_PRINT_AFTER, AUTOSCHED_VERIFY
from autosched.ir.module import IRModule
from autosched.ir.transform import Pass
from autosched.ir.transform import run_passes as run
from autosched.relax.transform import (
    AddBytes,
    AnnotateTIROpPattern,
    CanonicalizeBindings,
    ChooseLayouts,
    ConvolvePlanes,
    ConvolveRows,
    CopyOutputs,
    DeadCodeElimination,
    EliminateCommonSubexpr,
    ExpandConvolutions,
    FindGelu,
    FindNorms,
    FlattenMeans,
    FlattenRows,
    FoldBatchnormToConv2D,
    FoldConstant,
    FuseAttention,
    FuseByteAttention,
    FuseOps,
    FuseTIR,
    IntegerProducts,
    KeepBytes,
    LayoutOracle,
    LegalizeKernels,
    NarrowProducts,
    RemoveIdentity,
    SharePositions,
    SinkViews,
    SliceInputs,
    SliceSplits,
    SliceTakes,
    SplitConcats,
    SplitProducts,
    SumConvolutions,
    UnpackResult,
    WidenBytes,
    WidenHalves,
)  # fmt: skip
from autosched.relax.transform.narrow_products import NARROW, WIDE
from autosched.relax.verify import verify
from autosched.target import Target
from autosched.templates import (
    convolves_planes,
    joins_convolutions,
    layout_blocks,
    multiplies_bytes,
    narrows_attention,
    narrows_convolution,
    shares_heads,
    splits_products,
    streams_bfloat16,
    sums_columns,
    tile_blocks,
    widened_dtypes,
    widens_bytes,
)  # fmt: skip

USUAL = GraphOptions()


def graph_passes(
    target: Target, oracle: LayoutOracle | None = None, precision: str = WIDE, options: GraphOptions = USUAL
) -> tuple[Pass, ...]:
    """What turns a model into calls of fused kernels, in order.

    oracle     what is known of convolutions in several layouts
    precision  "bfloat16": products with constant weights round their factors to it
    options    what tuning may choose of them
    """
    choices = (partial(f, target) for f in (narrows_convolution, streams_bfloat16, narrows_attention))
    narrow: tuple[Pass, ...] = (NarrowProducts(*choices),) if precision == NARROW else ()
    blocks, change_weight = options.layout_blocks(layout_blocks(target)), options.change_percent / 100
    layouts: tuple[Pass, ...] = ()
    if blocks:
        images = ChooseLayouts(blocks, oracle, tile_blocks(target), change_weight)
        layouts = ConvolveRows(min(blocks)), DeadCodeElimination(), images
    attention: tuple[Pass, ...] = (
        (FuseAttention(shares_heads(target)), DeadCodeElimination()) if options.fuse_attention else ()
    )
    halves = widened_dtypes(target)
    wide: tuple[Pass, ...] = (WidenHalves(halves), FoldConstant()) if halves else ()
    sums: tuple[Pass, ...] = (AddBytes(), DeadCodeElimination()) if multiplies_bytes(target) else ()
    bytes_: tuple[Pass, ...] = (
        (KeepBytes(), IntegerProducts(sums_columns(target), not widens_bytes(target)), DeadCodeElimination())
        if multiplies_bytes(target)
        else ()
    )
    fuses_bytes = options.fuse_attention and multiplies_bytes(target)
    heads: tuple[Pass, ...] = (FuseByteAttention(partial(narrows_attention, target)),) if fuses_bytes else ()
    if widens_bytes(target):
        bytes_ += (WidenBytes(),)
    joins = (
        None
        if options.join_convolutions == "none"
        else partial(joins_convolutions, target, always=options.join_convolutions == "all")
    )
    planes: tuple[Pass, ...] = (ConvolvePlanes(), DeadCodeElimination()) if convolves_planes(target) else ()
    products: tuple[Pass, ...] = (SplitProducts(),) if splits_products(target) else ()
    return (
        UnpackResult(), CanonicalizeBindings(keep_tuples=False), *bytes_, *wide, *heads,
        ExpandConvolutions(bool(blocks)), SliceInputs(), FoldConstant(),
        RemoveIdentity(), FindGelu(), FindNorms(), *products, SinkViews(), RemoveIdentity(), FoldConstant(),
        DeadCodeElimination(),
        FoldBatchnormToConv2D(), SumConvolutions(), DeadCodeElimination(), *planes, SplitConcats(),
        EliminateCommonSubexpr(keep_names=False),
        *attention, *narrow, *layouts, SliceSplits(), FlattenMeans(), FlattenRows(), SinkViews(), FoldConstant(),
        RemoveIdentity(), CanonicalizeBindings(keep_tuples=False), DeadCodeElimination(), *sums,
        SliceTakes(), SharePositions(), DeadCodeElimination(), LegalizeKernels(), AnnotateTIROpPattern(),
        FuseOps(with_sums=options.fuse_sums, joins=joins), FuseTIR(),
        CopyOutputs(), DeadCodeElimination(),
    )  # fmt: skip


def run_passes(module: IRModule, passes: Sequence[Pass]) -> IRModule:
    """Run passes in order; AUTOSCHED_VERIFY checks after each, AUTOSCHED_PRINT_AFTER prints (names, or "all")."""
    wanted = {name.strip() for name in AUTOSCHED_PRINT_AFTER.get().split(",")}

    def watch(name: str, result: IRModule, seconds: float) -> None:
        if name in wanted or "all" in wanted:
            print(f"# after {name}, {seconds * 1e3:.1f} ms\n{result.script()}", file=sys.stderr)
        log_step("relax/transform", name, seconds)

    return run(module, passes, verify=partial(verify, checked={}) if AUTOSCHED_VERIFY.get() else None, watch=watch)
