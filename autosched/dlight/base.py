"""Schedule rules and the pass that tries them in order."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from autosched.errors import InvalidTypeError, TVMError
from autosched.ir.module import IRModule
from autosched.ir.transform import Pass, PassInfo
from autosched.target import Target
from autosched.tir import PrimFunc, Schedule

IS_SCHEDULED = "tir.is_scheduled"
Answer = Schedule | Sequence[Schedule] | None
Apply = Callable[[PrimFunc, Target, bool], Answer]


class ScheduleRule:
    """A rule: `apply` answers with a schedule (or several, where one may be chosen), None where it does not fit."""

    def apply(self, func: PrimFunc, target: Target, tunable: bool) -> Answer:
        """The schedule of a function for a target."""
        raise NotImplementedError("a rule defines apply(func, target, tunable)")

    @staticmethod
    def from_callable(name: str) -> Callable[[Apply], Callable[[], ScheduleRule]]:
        """Decorator: a function `(func, target, tunable)` becomes a kind of rule."""

        def decorate(apply: Apply) -> Callable[[], ScheduleRule]:
            return type(name, (ScheduleRule,), {"apply": lambda _, *args: apply(*args), "__doc__": apply.__doc__})

        return decorate


class ApplyDefaultSchedule(Pass):
    """The pass: each PrimFunc without the attribute `tir.is_scheduled` gets the first schedule that a rule answers.

    Raises  TVMError where there is no current target.
    """

    def __init__(self, *rules: ScheduleRule):
        for rule in rules:
            if not hasattr(rule, "apply"):
                raise InvalidTypeError(f"a rule has a method apply; {type(rule).__name__} has none")
        self.rules = rules
        super().__init__(self._run, PassInfo(0, "ApplyDefaultSchedule"))

    def _run(self, mod: IRModule) -> IRModule:
        target = Target.current(allow_none=True)
        if target is None:
            raise TVMError("DLight needs a current target", hint='use `with Target("cuda"):`')
        functions = dict(mod.functions)
        for gv, func in functions.items():
            if isinstance(func, PrimFunc) and not is_scheduled(func):
                found = first_answer(self.rules, func, target)
                if found is not None:
                    functions[gv] = found.with_attr(IS_SCHEDULED, True)
        return mod.with_functions(functions)


def is_scheduled(func: PrimFunc) -> bool:
    """Whether the function says that it has its schedule."""
    return bool(func.attrs.get(IS_SCHEDULED) or func.attrs.get("tirx.is_scheduled"))


def first_answer(rules: Sequence[ScheduleRule], func: PrimFunc, target: Target) -> PrimFunc | None:
    """The function as the first rule that fits schedules it; of several schedules the first."""
    for rule in rules:
        answer = rule.apply(func, target, False)
        if answer is None:
            continue
        schedule = answer if isinstance(answer, Schedule) else next(iter(answer), None)
        if schedule is not None:
            return schedule.func
    return None
