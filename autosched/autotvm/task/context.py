"""What AutoTVM's dispatch contexts have in common, and the two that need no logs.

They are contexts of `autosched.records` too, on one stack: what they do not know of a build's tasks is asked outside.
"""

from __future__ import annotations

import logging
from typing import Any

from autosched import records
from autosched.autotvm.task.space import FallbackConfigEntity
from autosched.records import contexts
from autosched.records.found import Found, Validator, miss
from autosched.target import Target
from autosched.task import Task

logger = logging.getLogger("autotvm")


class DispatchContext(records.DispatchContext):
    """Answers queries of templates, else hands them to the block around it."""

    def query(self, target: Target | None, workload: object) -> Any:
        """The configuration for a workload on a target: its own, else that of the enclosing block."""
        found = self._query_inside(target, workload)
        if found is not None:
            return found
        stack = contexts.current_stack()
        below = stack[: stack.index(self)] if self in stack else ()
        for context in reversed(below):
            if isinstance(context, DispatchContext):
                return context.query(target, workload)
        root = records.DispatchContext.root
        return root.query(target, workload) if isinstance(root, FallbackContext) else FallbackConfigEntity()

    def _query_inside(self, target: Target | None, workload: object) -> object:
        """What this context itself knows; None for nothing."""
        raise NotImplementedError

    def update(self, target: Target, workload: object, cfg: object) -> None:
        """Answer with `cfg` from now on."""
        raise NotImplementedError

    def own(self, task: Task, valid: Validator | None = None) -> Found:
        """Nothing is known of a build's tasks."""
        return miss("", "no record")


class ApplyConfig(DispatchContext):
    """Always answers with one configuration, and remembers what it was asked for."""

    def __init__(self, config: object):
        self._config = config
        self.workload: object = None

    def _query_inside(self, target: Target | None, workload: object) -> object:
        self.workload = workload
        return self._config

    def update(self, target: Target, workload: object, cfg: object) -> None:
        """Answer with `cfg` from now on."""
        self.workload, self._config = workload, cfg


class FallbackContext(records.FallbackContext, DispatchContext):
    """The outermost context: a configuration that its template fills, one warning for each workload."""

    def __init__(self) -> None:
        self.memory: dict[tuple[str, object], object] = {}
        self.messages: set[str] = set()
        self.silent = False

    def _query_inside(self, target: Target | None, workload: object) -> object:
        key = (str(target), workload)
        if key not in self.memory:
            message = (
                f"Cannot find config for target={target}, workload={workload}. A fallback configuration is used, "
                "which may bring great performance regression."
            )
            if not self.silent and message not in self.messages:
                self.messages.add(message)
                logger.warning(message)
            self.memory[key] = FallbackConfigEntity()
        return self.memory[key]

    def clear_cache(self, target: Target, workload: object) -> None:
        """Forget the configuration of a workload."""
        self.memory.pop((str(target), workload), None)

    def update(self, target: Target, workload: object, cfg: object) -> None:
        """Answer with `cfg` from now on."""
        self.memory[str(target), workload] = cfg
