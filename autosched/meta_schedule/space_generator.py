"""Where candidates come from: the templates' spaces, or a function of the user."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from autosched.errors import InvalidTypeError, InvalidValueError, refuse
from autosched.meta_schedule.options import refuse_rules
from autosched.meta_schedule.workload import module_of
from autosched.space import Config
from autosched.target import Target
from autosched.templates import default_config
from autosched.tir import PrimFunc, Schedule

ANNOTATION = "autosched.config"  # of the root block: the configuration that the build applies


def annotated(mod: object, config: Config) -> Schedule:
    """A schedule whose trace says which configuration the build is to apply."""
    sch = Schedule(module_of(mod))
    sch.annotate(sch.get_block("root"), ANNOTATION, config.to_json())
    return sch


class ScheduleFn:
    """A space given by a function that schedules with random choices: sch_fn(sch) -> None, a Schedule, or several."""

    def __init__(self, sch_fn: Callable[[Schedule], Schedule | Sequence[Schedule] | None], sch_rules: object = None,
                 postprocs: object = None,
                 mutator_probs: object = None):  # fmt: skip
        refuse_rules("ScheduleFn", sch_rules, postprocs, mutator_probs)
        if not callable(sch_fn):
            raise InvalidTypeError(f"ScheduleFn takes a function, got {type(sch_fn).__name__}")
        self.sch_fn = sch_fn

    def generate_design_space(self, mod: object, target: Target, seed: int = 0) -> list[Schedule]:
        """The schedules that one call of the function makes."""
        sch = Schedule(module_of(mod), seed=seed)
        made = self.sch_fn(sch)
        if made is None:
            return [sch]
        schedules = [made] if isinstance(made, Schedule) else list(made)
        if not all(isinstance(s, Schedule) for s in schedules):
            raise InvalidTypeError("the function of a space gives None, a Schedule or a list of them")
        return schedules


class PostOrderApply:
    """The spaces of the templates that fit the computation."""

    def __init__(self, f_block_filter: object = None, sch_rules: object = "from-target",
                 postprocs: object = "from-target", mutator_probs: object = "from-target"):  # fmt: skip
        refuse_rules("PostOrderApply", sch_rules, postprocs, mutator_probs)
        refuse("PostOrderApply", f_block_filter=f_block_filter is not None)
        self.f_block_filter = f_block_filter

    def generate_design_space(self, mod: object, target: Target, seed: int = 0) -> list[Schedule]:
        """One schedule: the templates' default."""
        func = module_of(mod)["main"]
        assert isinstance(func, PrimFunc), "module_of gives a PrimFunc"
        return [annotated(mod, default_config(func, target))]


SpaceGenerator = PostOrderApply


def create(space: object = "post-order-apply", *args: object, **kwargs: object) -> ScheduleFn | PostOrderApply:
    """A space from its name, a function, or a space. Raises ValueError for another name."""
    if isinstance(space, ScheduleFn | PostOrderApply):
        return space
    if callable(space):
        return ScheduleFn(space)
    if space != "post-order-apply":
        raise InvalidValueError(f"unknown space '{space}'", hint='use "post-order-apply" or a function')
    return PostOrderApply(*args, **kwargs)
