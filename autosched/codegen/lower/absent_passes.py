"""TVM's passes of the loop level that are not here, and what to do instead."""

from __future__ import annotations

from collections.abc import Mapping

_KERNELS = "tvm.build makes a kernel of each nest that threads are bound in, and calls it"
_THREADS = "the build does it for a GPU: see kernel.source and kernel.ptx of what tvm.build gives"
_SHARED = "the build gives shared buffers that do not live at one time the same bytes: kernel.resources says how many"
_TILES = "tiles of tensor cores are buffers of the scopes wmma.*: tir.Schedule.cache_read, cache_write, tensorize"
_OTHER_DEVICES = "it is for a kind of device that no code is generated for"
_HOST = "tvm.build makes what is called, whose arguments are checked by the runtime"
_ALLOCATION = "tvm.lower, or LowerOpaqueBlock, gives each buffer its place and size"
_DTYPE = "the code generator computes small float types in float32 by itself"

ABSENT: Mapping[str, str] = {
    **dict.fromkeys((
        "AnnotateDeviceRegions", "SplitHostDevice", "LowerDeviceKernelLaunch", "DecorateDeviceScope",
        "LowerDeviceStorageAccessInfo",
    ), _KERNELS),
    "UnifyThreadBinding": "tvm.lower, or LowerOpaqueBlock, gives each thread axis of a nest one loop",
    **dict.fromkeys(("LowerWarpMemory", "LiftThreadBinding", "LowerThreadAllreduce", "InjectPTXLDG32"), _THREADS),
    **dict.fromkeys(("MergeDynamicSharedMemoryAllocations", "MergeSharedMemoryAllocations"), _SHARED),
    **dict.fromkeys(("InferFragment", "TransformMmaBufferLayout", "TensorCoreStorage"), _TILES),
    **dict.fromkeys((
        "CoProcSync", "LiftAttrScope", "TextureFlatten", "LowerVtcmAlloc", "LowerAsyncDMA", "VerifyVTCMLimit",
    ), _OTHER_DEVICES),
    **dict.fromkeys(("InjectPTXAsyncCopy", "InjectDoubleBuffer"),
                    "InjectSoftwarePipeline copies ahead, asynchronously in the stages that say so"),
    **dict.fromkeys(("LowerAutoCopy", "ManifestSharedMemoryLocalStage"),
                    "tir.Schedule.cache_read, compute_at and bind make a copy that threads share"),
    "InjectPermutedLayout": "tir.Schedule.storage_swizzle keeps rows of a shared buffer in different banks",
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
    "InstrumentBoundCheckers": "autosched.build(..., checks=True) checks each access of each kernel",
    "InjectPrefetch": "tir.Schedule.annotate(loop, 'prefetch_next', {buffer: elements}) asks the code generator",
    "InjectRollingBuffer": "tir.Schedule.rolling_buffer does it to a block",
    "ApplyLayoutTransforms": "tir.Schedule.transform_layout changes the layout of a buffer",
    **dict.fromkeys(("LegalizePackedCalls", "PointerValueTypeRewrite"), _HOST),
    "ConvertSSA": "every variable is introduced once already, as VerifySSA says",
    "ExtractPrimFuncConstants": "constants are arguments of kernels: leave it out",
    "InjectCopyIntrin": "tir.Schedule.tensorize puts an intrinsic in the place of a copy",
    "InstrumentProfileIntrinsics": "autosched bench --profile shows where the time goes",
    "RemapThreadAxis": "tir.Schedule.bind names a loop's thread axis",
    "SkipAssert": "kernels check what T.Assert says: leave it out of the function",
    "VerifyGPUCode": "the build refuses kernels too large for the device: kernel.resources says what they take",
    "RemoveWeightLayoutRewriteBlock": "the build packs weights by itself, with templates or layout annotations",
}  # fmt: skip
