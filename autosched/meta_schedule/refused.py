"""Options of TVM's tuning that are not available here, refused by name."""

from __future__ import annotations

from typing import Any

from autosched.errors import refuse

DEFAULTS = (None, "default", "from-target")


def refuse_measuring(call: str, measure_callbacks: Any, task_scheduler: Any) -> None:
    """Refuse callbacks, and schedulers that share trials in another way. Raises InvalidValueError."""
    refuse(call, measure_callbacks=measure_callbacks not in DEFAULTS)
    known = isinstance(task_scheduler, str) and task_scheduler in ("gradient", "round-robin")
    refuse(call, hint="trials are shared equally", task_scheduler=not known)


def refuse_rules(call: str, sch_rules: Any, postprocs: Any, mutator_probs: Any) -> None:
    """Refuse rules of TVM's own spaces. Raises InvalidValueError."""
    refuse(
        call, hint="a function of a schedule describes a space of one's own", sch_rules=sch_rules not in DEFAULTS,
        postprocs=postprocs not in DEFAULTS, mutator_probs=mutator_probs not in DEFAULTS,
    )  # fmt: skip
