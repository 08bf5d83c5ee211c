"""TVM's passes of the graph level that are not here, and what to do instead."""

from __future__ import annotations

from collections.abc import Mapping

_BUILD = "relax.build does it by itself: leave it out"
_VM = "there are no instructions of TVM's VM to lower to: relax.build takes the module without it"
_DEVICE = "there is one device: leave it out"

ABSENT: Mapping[str, str] = {
    **dict.fromkeys((
        "StaticPlanBlockMemory", "DataflowUseInplaceCalls", "ComputePrimValue",
        "SplitLayoutRewritePreproc", "AttachAttrLayoutFreeBuffers",
    ), _BUILD),
    **dict.fromkeys((
        "CallTIRRewrite", "LowerAllocTensor", "KillAfterLastUse", "LowerRuntimeBuiltin", "VMShapeLower",
    ), _VM),
    **dict.fromkeys(("UpdateVDevice", "RealizeVDevice", "SpecializePrimFuncBasedOnCallSite"), _DEVICE),
    "RewriteCUDAGraph": "a model that is built for a GPU runs as one CUDA graph: leave it out",
    "AllocateWorkspace": "functions of external libraries allocate their own workspace",
    "FewShotTuning": "autosched.tune, or MetaScheduleTuneIRMod, with few trials",
    "LazyTransformParams": "LiftTransformParams gives the function that transforms parameters",
    "LazyGetInput": "functions take their arguments when they are called",
    "LazySetOutput": "functions give their results when they return",
    "LambdaLift": "functions inside of functions are not well-formed: make them functions of the module",
    "AlterOpImpl": "LegalizeOps takes customize_legalize_map",
    "SplitCallTIRByPattern": "FuseOpsByPattern finds forms before operators are legalized",
}  # fmt: skip
