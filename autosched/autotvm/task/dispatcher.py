"""AutoTVM's dispatch contexts: which configuration a template gets, by target and workload.

They are contexts of `autosched.records` too, on one stack: what they do not know of a build's tasks is asked outside.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from autosched import records
from autosched.autotvm.task.space import FallbackConfigEntity
from autosched.errors import InvalidTypeError, TVMError
from autosched.records import contexts
from autosched.records.found import Found, Validator, miss
from autosched.target import Target
from autosched.task import Task

logger = logging.getLogger("autotvm")


class DispatchContext(records.DispatchContext):
    """Answers queries of templates, else hands them to the block around it."""

    def query(self, target: Target | None, workload: Any) -> Any:
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

    def _query_inside(self, target: Target | None, workload: Any) -> Any:
        """What this context itself knows; None for nothing."""
        raise NotImplementedError

    def update(self, target: Target, workload: Any, cfg: Any) -> None:
        """Answer with `cfg` from now on."""
        raise NotImplementedError

    def own(self, task: Task, valid: Validator | None = None) -> Found:
        """Nothing is known of a build's tasks."""
        return miss("", "no record")


class ApplyConfig(DispatchContext):
    """Always answers with one configuration, and remembers what it was asked for."""

    def __init__(self, config: Any):
        self._config = config
        self.workload: Any = None

    def _query_inside(self, target: Target | None, workload: Any) -> Any:
        self.workload = workload
        return self._config

    def update(self, target: Target, workload: Any, cfg: Any) -> None:
        """Answer with `cfg` from now on."""
        self.workload, self._config = workload, cfg


class ApplyFixedConfig(DispatchContext):
    """The first configuration of each task's space; the named schedules count as fast, others as slow."""

    def __init__(self, tasks: Sequence[Any], schedule_names: str | Sequence[str]):
        self._names = [schedule_names] if isinstance(schedule_names, str) else list(schedule_names)
        if not self._names:
            raise TVMError("apply_fixed_config needs schedule names")
        self._tasks = list(tasks)
        self.workload: Any = None

    def _query_inside(self, target: Target | None, workload: Any) -> Any:
        self.workload = workload
        for task in self._tasks:
            if task.name == (workload[0] if workload else None):
                config = task.config_space.get(0)
                config.cost = 1e-6 if task.name in self._names else 100000.0
                return config
        return None

    def update(self, target: Target, workload: Any, cfg: Any) -> None:
        """Remember the workload."""
        self.workload = workload


def _target_keys(target: Any) -> list[Any]:
    found = Target(target)
    return list(found.keys)


class ApplyHistoryBest(DispatchContext):
    """The best configuration of AutoTVM's logs; databases and logs of ours serve the builds in the block.

    records  a log's path, a file, records (pairs of MeasureInput and MeasureResult), or a list of those
    """

    def __init__(self, records: Any):
        self.best_by_targetkey: dict[tuple[Any, Any], tuple[Any, Any]] = {}
        self.best_by_model: dict[tuple[Any, Any], tuple[Any, Any]] = {}
        self._best_user_defined: dict[tuple[Any, Any], Any] = {}
        self._ours = _OwnHistory()
        if records is not None:
            self.load(records)

    def load(self, records: Any) -> None:
        """Add more records; the fastest of a workload counts."""
        from autosched.autotvm.record import is_log, load_from_file

        if hasattr(records, "readline"):
            records = list(load_from_file(records))
        if isinstance(records, str | Path):
            if not is_log(records):
                self._ours.load(records)
                return
            records = list(load_from_file(records))
        if not isinstance(records, Iterable):
            raise InvalidTypeError(f"records are a path, a file or pairs, not a {type(records).__name__}")
        count = 0
        for entry in records:
            if isinstance(entry, str | Path) or hasattr(entry, "readline"):
                self.load(entry)
                continue
            count += 1
            self._add(*entry)
        logger.debug("Finish loading %d records", count)

    def load_own(self, reader: records.RecordReader) -> None:
        """Add a reader of databases or logs of ours, which serves the builds in the block."""
        self._ours.load(reader)

    def _add(self, inp: Any, res: Any) -> None:
        if res.error_no != 0:
            return
        cost = float(np.mean(res.costs))
        workload = inp.task.workload
        for key in _target_keys(inp.target):
            self._keep(self.best_by_targetkey, (key, workload), inp, res, cost)
        model = Target(inp.target).model
        if model != "unknown":
            self._keep(self.best_by_model, (model, workload), inp, res, cost)

    @staticmethod
    def _keep(
        best: dict[tuple[Any, Any], tuple[Any, Any]], key: tuple[Any, Any], inp: Any, res: Any, cost: float
    ) -> None:
        if key not in best or float(np.mean(best[key][1].costs)) > cost:
            best[key] = (inp, res)

    def _query_inside(self, target: Target | None, workload: Any) -> Any:
        if target is None:
            raise TVMError(
                "Need a target context to find the history best.", hint='use `with autosched.target.Target("llvm"):`'
            )
        found = Target(target)
        keys = ([found.model] if found.model != "unknown" else []) + list(found.keys)
        for key in keys:
            if (key, workload) in self._best_user_defined:
                return self._best_user_defined[key, workload]
            for best in (self.best_by_model, self.best_by_targetkey):
                if (key, workload) in best:
                    return best[key, workload][0].config
        return None

    def update(self, target: Target, workload: Any, cfg: Any) -> None:
        """Answer with `cfg` from now on, whatever the logs say."""
        found = Target(target)
        keys = ([found.model] if found.model != "unknown" else []) + list(found.keys)
        for key in keys:
            self._best_user_defined[key, workload] = cfg
        cfg.cost = 1e-6 if getattr(cfg, "cost", None) is None else cfg.cost

    def own(self, task: Task, valid: Validator | None = None) -> Found:
        """What databases and logs of ours know of a build's task."""
        return self._ours.own(task, valid)


class _OwnHistory(records.ApplyHistoryBest):
    """Our databases and logs in one of AutoTVM's contexts."""

    def __init__(self) -> None:
        super().__init__(None)


class FallbackContext(records.FallbackContext, DispatchContext):
    """The outermost context: a configuration that its template fills, one warning for each workload."""

    def __init__(self) -> None:
        self.memory: dict[tuple[str, Any], Any] = {}
        self.messages: set[str] = set()
        self.silent = False

    def _query_inside(self, target: Target | None, workload: Any) -> Any:
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

    def clear_cache(self, target: Target, workload: Any) -> None:
        """Forget the configuration of a workload."""
        self.memory.pop((str(target), workload), None)

    def update(self, target: Target, workload: Any, cfg: Any) -> None:
        """Answer with `cfg` from now on."""
        self.memory[str(target), workload] = cfg


class ApplyGraphBest(DispatchContext):
    """Configurations in the order in which templates are called.

    records  a log's path, or its records, one per call
    """

    def __init__(self, records: Any):
        from autosched.autotvm.record import load_from_file

        self.records = list(load_from_file(records)) if isinstance(records, str | Path) else list(records)
        self._counter = 0
        self._global_cfg_dict: dict[Any, Any] = {}

    def _query_inside(self, target: Target | None, workload: Any) -> Any:
        if self._counter < len(self.records):
            config = self.records[self._counter][0].config
            self._counter += 1
            self.update(target, workload, config)
            return config
        return self._global_cfg_dict.get((str(target), workload))

    def update(self, target: Any, workload: Any, cfg: Any) -> None:
        """Answer with `cfg` when all records are used up."""
        self._global_cfg_dict[str(target), workload] = cfg


class EmptyContext(DispatchContext):
    """Knows nothing; what TOPHUB_LOCATION=NONE gives. Entering it gives None."""

    def __enter__(self) -> Any:
        return None

    def __exit__(self, *_: Any) -> None:
        return None

    def _query_inside(self, target: Target | None, workload: Any) -> Any:
        return None


def clear_fallback_cache(target: Target, workload: Any) -> None:
    """Forget the configuration that the outermost context made for a workload."""
    root = records.DispatchContext.root
    if isinstance(root, FallbackContext):
        root.clear_cache(target, workload)


if not isinstance(records.DispatchContext.root, FallbackContext):
    contexts.set_root(FallbackContext())
