"""Named pipelines, as TVM calls them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from autosched.errors import InvalidValueError
from autosched.ir.transform import Sequential
from autosched.relax.transform import (
    AnnotateTIROpPattern,
    AttachGlobalSymbol,
    CallTIRRewrite,
    ComputePrimValue,
    FoldConstant,
    FuseOps,
    FuseTIR,
    KillAfterLastUse,
    LegalizeOps,
    LowerAllocTensor,
    LowerRuntimeBuiltin,
    RemovePurityChecking,
    RewriteCUDAGraph,
    RewriteDataflowReshape,
    StaticPlanBlockMemory,
    ToNonDataflow,
    VMShapeLower,
)

PIPELINES: dict[str, Callable[..., Sequential]] = {}


def register_pipeline(name: str) -> Callable[[Callable[..., Sequential]], Callable[..., Sequential]]:
    """Decorator: the function makes the pipeline called `name`. Raises ValueError where there is one already."""

    def register(make: Callable[..., Sequential]) -> Callable[..., Sequential]:
        if name in PIPELINES:
            raise InvalidValueError(f"pipeline '{name}' is registered already")
        PIPELINES[name] = make
        return make

    return register


@register_pipeline("zero")
def zero_pipeline() -> Sequential:
    """Operators to kernels, fused: no layouts, no schedules."""
    return Sequential([LegalizeOps(), AnnotateTIROpPattern(), FoldConstant(), FuseOps(), FuseTIR()], name="zero")


@register_pipeline("default_build")
def default_build_pipeline() -> Sequential:
    """TVM's build steps in their order; most of them are part of the build itself, see `transform.build_steps`."""
    steps = (
        RewriteDataflowReshape(), ToNonDataflow(), RemovePurityChecking(), CallTIRRewrite(), StaticPlanBlockMemory(),
        RewriteCUDAGraph(), LowerAllocTensor(), KillAfterLastUse(), LowerRuntimeBuiltin(), ComputePrimValue(),
        VMShapeLower(), AttachGlobalSymbol(),
    )  # fmt: skip
    return Sequential(steps, name="default_build")


@register_pipeline("default")
def default_pipeline() -> Sequential:
    """The zero pipeline, then the build steps."""
    return Sequential([zero_pipeline(), default_build_pipeline()], name="default")


def get_default_pipeline(target: Any) -> Sequential:
    """The pipeline that a build for a target runs."""
    del target  # one for all of them
    return get_pipeline("default")


def get_pipeline(name: str = "zero", **options: Any) -> Sequential:
    """The pipeline of a name. Raises ValueError listing those there are."""
    if name not in PIPELINES:
        raise InvalidValueError(f"unknown pipeline '{name}'", hint=f"there are {sorted(PIPELINES)}")
    return PIPELINES[name](**options)
