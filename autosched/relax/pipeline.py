"""Named pipelines, as TVM calls them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from os import PathLike

from autosched.errors import InvalidValueError, refuse
from autosched.ir.module import IRModule
from autosched.ir.transform import Pass, Sequential, graph_pass
from autosched.relax import transform
from autosched.relax.transform import (
    AnnotateTIROpPattern,
    AttachGlobalSymbol,
    CanonicalizeBindings,
    DecomposeOpsForInference,
    FoldConstant,
    FuseOps,
    FuseTIR,
    LegalizeOps,
    RemovePurityChecking,
    ToNonDataflow,
)
from autosched.target import Target
from autosched.target.target import TargetLike

PIPELINES: dict[str, Callable[..., Sequential]] = {}
ZERO_PASSES: list[Callable[[], Sequence[Pass]]] = []  # what higher packages add to the zero pipeline when it is made


def register_pipeline(name: str) -> Callable[[Callable[..., Sequential]], Callable[..., Sequential]]:
    """Decorator: the function makes the pipeline called `name`. Raises ValueError where there is one already."""

    def register(make: Callable[..., Sequential]) -> Callable[..., Sequential]:
        if name in PIPELINES:
            raise InvalidValueError(f"register_pipeline: '{name}' is registered already")
        PIPELINES[name] = make
        return make

    return register


@register_pipeline("zero")
def zero_pipeline() -> Sequential:
    """Operators to kernels, fused: no layouts; no schedules but those of a tuning database that is current."""
    passes = [LegalizeOps(), AnnotateTIROpPattern(), FoldConstant(), FuseOps(), FuseTIR()]
    passes += [step for more in ZERO_PASSES for step in more()]
    return Sequential(passes, name="zero")


@register_pipeline("static_shape_tuning")
def static_shape_tuning_pipeline(
    total_trials: int, target: TargetLike, work_dir: str | PathLike[str] = "tuning_logs",
    cpu_weight_prepack: bool = False, max_trials_per_task: int | None = None,
) -> Sequential:  # fmt: skip
    """The zero pipeline, then tuning of its kernels into `work_dir`; without trials only what stands there is used."""
    refuse("static_shape_tuning", hint="relax.build packs weights by itself", cpu_weight_prepack=cpu_weight_prepack)
    steps: list[Pass] = [DecomposeOpsForInference(), CanonicalizeBindings(keep_tuples=False), zero_pipeline()]
    if total_trials > 0:
        steps.append(transform.MetaScheduleTuneIRMod({}, work_dir, total_trials, max_trials_per_task))
    steps.append(transform.MetaScheduleApplyDatabase(work_dir))

    def run(module: IRModule) -> IRModule:
        with Target(target):
            for step in steps:
                module = step(module)
        return module

    return Sequential([graph_pass("static_shape_tuning")(run)], name="static_shape_tuning")


@register_pipeline("default_build")
def default_build_pipeline() -> Sequential:
    """What of TVM's build steps is seen in the module; the others are part of the build itself."""
    return Sequential([ToNonDataflow(), RemovePurityChecking(), AttachGlobalSymbol()], name="default_build")


@register_pipeline("default")
def default_pipeline() -> Sequential:
    """The zero pipeline, then the build steps."""
    return Sequential([zero_pipeline(), default_build_pipeline()], name="default")


def get_default_pipeline(target: object) -> Sequential:
    """The pipeline that a build for a target runs."""
    del target  # one for all of them
    return get_pipeline("default")


def get_pipeline(name: str = "zero", **options: object) -> Sequential:
    """The pipeline of a name. Raises ValueError listing those there are."""
    if name not in PIPELINES:
        raise InvalidValueError(f"get_pipeline: unknown pipeline '{name}'", hint=f"there are {sorted(PIPELINES)}")
    return PIPELINES[name](**options)
