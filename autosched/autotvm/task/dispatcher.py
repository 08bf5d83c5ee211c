"""AutoTVM's dispatch contexts over logs: which configuration a template gets, by target and workload."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from autosched import records
from autosched.autotvm.measure.types import MeasureInput, MeasureResult
from autosched.autotvm.record import encode, is_log, load_from_file, measure_str_key
from autosched.autotvm.task.context import ApplyConfig as ApplyConfig
from autosched.autotvm.task.context import DispatchContext, FallbackContext
from autosched.errors import InvalidTypeError, TVMError
from autosched.records import contexts
from autosched.records.found import Found, Validator
from autosched.target import Target
from autosched.task import Task

if TYPE_CHECKING:
    from autosched.autotvm.task.space import ConfigSpace

logger = logging.getLogger("autotvm")
Pair = tuple[MeasureInput, MeasureResult]


class ApplyFixedConfig(DispatchContext):
    """The first configuration of each task's space; the named schedules count as fast, others as slow."""

    def __init__(self, tasks: Sequence[Any], schedule_names: str | Sequence[str]):
        self._names = [schedule_names] if isinstance(schedule_names, str) else list(schedule_names)
        if not self._names:
            raise TVMError("apply_fixed_config needs schedule names")
        self._tasks = list(tasks)
        self.workload: object = None

    def _query_inside(self, target: Target | None, workload: object) -> ConfigSpace | None:
        self.workload = workload
        for task in self._tasks:
            if task.name == (workload[0] if isinstance(workload, tuple) and workload else None):
                config: ConfigSpace = task.config_space.get(0)
                config.cost = 1e-6 if task.name in self._names else 100000.0
                return config
        return None

    def update(self, target: Target, workload: object, cfg: object) -> None:
        """Remember the workload."""
        self.workload = workload


def _target_keys(target: Target | str) -> list[str]:
    found = Target(target)
    return list(found.keys)


class ApplyHistoryBest(DispatchContext):
    """The best configuration of AutoTVM's logs; databases and logs of ours serve the builds in the block.

    records  a log's path, a file, records (pairs of MeasureInput and MeasureResult), or a list of those
    """

    def __init__(self, records: Any):
        self.best_by_targetkey: dict[tuple[str, object], Pair] = {}
        self.best_by_model: dict[tuple[str, object], Pair] = {}
        self._best_user_defined: dict[tuple[str, object], ConfigSpace] = {}
        self._ours = _OwnHistory()
        if records is not None:
            self.load(records)

    def load(self, records: Any) -> None:
        """Add more records; the fastest of a workload counts."""
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

    def _add(self, inp: MeasureInput, res: MeasureResult) -> None:
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
        best: dict[tuple[str, object], Pair],
        key: tuple[str, object],
        inp: MeasureInput,
        res: MeasureResult,
        cost: float,
    ) -> None:
        if key not in best or float(np.mean(best[key][1].costs)) > cost:
            best[key] = (inp, res)

    def _query_inside(self, target: Target | None, workload: object) -> ConfigSpace | None:
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
                    found_config: ConfigSpace = best[key, workload][0].config
                    return found_config
        return None

    def update(self, target: Target, workload: object, cfg: Any) -> None:
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


class ApplyGraphBest(DispatchContext):
    """Configurations in the order in which templates are called.

    records  a log's path, or its records, one per call
    """

    def __init__(self, records: Any):
        self.records = list(load_from_file(records)) if isinstance(records, str | Path) else list(records)
        self._counter = 0
        self._global_cfg_dict: dict[tuple[str, object], ConfigSpace] = {}

    def _query_inside(self, target: Target | None, workload: object) -> ConfigSpace | None:
        if self._counter < len(self.records):
            config: ConfigSpace = self.records[self._counter][0].config
            self._counter += 1
            self.update(target, workload, config)
            return config
        return self._global_cfg_dict.get((str(target), workload))

    def update(self, target: Target | str | None, workload: object, cfg: Any) -> None:
        """Answer with `cfg` when all records are used up."""
        self._global_cfg_dict[str(target), workload] = cfg


class EmptyContext(DispatchContext):
    """Knows nothing; what TOPHUB_LOCATION=NONE gives. Entering it gives None."""

    def __enter__(self) -> None:  # type: ignore[override]
        return None

    def __exit__(self, *_: object) -> None:
        return None

    def _query_inside(self, target: Target | None, workload: object) -> ConfigSpace | None:
        return None


def clear_fallback_cache(target: Target, workload: object) -> None:
    """Forget the configuration that the outermost context made for a workload."""
    root = records.DispatchContext.root
    if isinstance(root, FallbackContext):
        root.clear_cache(target, workload)


if not isinstance(records.DispatchContext.root, FallbackContext):
    contexts.set_root(FallbackContext())


def pick_best(in_file: str | Path, out_file: str | Path) -> None:
    """Write the best line of each workload; an `out_file` that is there takes part and is replaced."""
    context: list[tuple[MeasureInput, MeasureResult]] = list(load_from_file(in_file))
    if os.path.isfile(out_file):
        context += list(load_from_file(out_file))
    best = ApplyHistoryBest(context)
    chosen: dict[str, tuple[MeasureInput, MeasureResult]] = {}
    for inp, res in [*best.best_by_targetkey.values(), *best.best_by_model.values()]:
        chosen[measure_str_key(inp)] = (inp, res)
    with open(out_file, "w") as file:
        for inp, res in chosen.values():
            file.write(encode(inp, res) + "\n")
