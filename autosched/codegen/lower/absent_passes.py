"""TVM's passes of the loop level that are not here, and what to do instead."""

from __future__ import annotations

from collections.abc import Mapping

_DEVICE = "it lowers for a GPU and comes with that target"
_HOST = "tvm.build makes what is called, whose arguments are checked by the runtime"
_ALLOCATION = "tvm.lower, or LowerOpaqueBlock, gives each buffer its place and size"
_DTYPE = "the code generator computes small float types in float32 by itself"

ABSENT: Mapping[str, str] = {
    **dict.fromkeys((
        "UnifyThreadBinding", "InjectVirtualThread", "MergeDynamicSharedMemoryAllocations",
        "MergeSharedMemoryAllocations", "ThreadSync", "InferFragment", "LowerThreadAllreduce", "AnnotateDeviceRegions",
        "SplitHostDevice", "LowerWarpMemory", "LowerDeviceStorageAccessInfo", "LowerDeviceKernelLaunch",
        "DecorateDeviceScope", "LowerCrossThreadReduction", "LowerAutoCopy", "TransformMmaBufferLayout",
        "ManifestSharedMemoryLocalStage", "LiftThreadBinding", "CoProcSync", "LiftAttrScope", "TextureFlatten",
        "InjectPTXAsyncCopy", "InjectPTXLDG32", "DefaultGPUSchedule", "TensorCoreStorage", "InjectSoftwarePipeline",
        "InjectDoubleBuffer", "InjectPermutedLayout", "LowerVtcmAlloc", "LowerAsyncDMA", "VerifyVTCMLimit",
    ), _DEVICE),
    **dict.fromkeys((
        "MakePackedAPI", "MakeUnpackedAPI", "LowerTVMBuiltin", "CombineContextCall", "LowerCustomDatatypes",
        "InlinePrivateFunctions",
    ), _HOST),
    **dict.fromkeys((
        "PlanAndUpdateBufferAllocationLocation", "CompactBufferAllocation", "StorageRewrite", "StorageFlatten",
        "UnifiedStaticMemoryPlanner", "UseAssumeToReduceBranches",
    ), _ALLOCATION),
    **dict.fromkeys((
        "BF16Legalize", "BF16StorageLegalize", "BF16ComputeLegalize", "FP8ComputeLegalize", "FP8StorageLegalize",
    ), _DTYPE),
    "VectorizeLoop": "there are no vector expressions: vectorized loops are written as vectors by the code generator, "
                     "and SkipVectorize makes them serial",
    "NarrowDataType": "ForceNarrowIndexToInt32 narrows all indices",
    "RenormalizeSplitPattern": "Simplify brings divisions and remainders into one form",
    "ReduceBranchingThroughOvercompute": "LoopPartition takes conditions out of the loops' full iterations",
    "AnnotateIrregularLoop": "loops are cut by LoopPartition where their extents are known",
    "InstrumentBoundCheckers": "tvm.tir.interpret runs a function and checks its accesses",
    "InjectPrefetch": "tir.Schedule.annotate(loop, 'prefetch_next', {buffer: elements}) asks the code generator",
    "InjectRollingBuffer": "tir.Schedule.rolling_buffer does it to a block",
    "ApplyLayoutTransforms": "tir.Schedule.transform_layout changes the layout of a buffer",
    "RemoveWeightLayoutRewriteBlock": "the build packs weights by itself, with templates or layout annotations",
}  # fmt: skip
