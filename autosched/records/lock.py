"""Lock files: which configuration each kernel of a model uses, so that every later build uses the same."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from autosched.errors import AutoschedError, RecordError
from autosched.records.contexts import FallbackContext
from autosched.records.files import replaced
from autosched.records.found import Found, Trust, Validator
from autosched.records.record import check_plain
from autosched.space import Config
from autosched.task import Task, Workload

if TYPE_CHECKING:
    from autosched.json_types import Json

LOCK_VERSION = 1
LARGEST_BYTES = 1 << 26


class Lock(FallbackContext):
    """The configurations of a lock file; nothing else is looked up, and what is not in it is an error.

    configs   by workload key
    versions  of the templates, when the lock was written
    layout_times  convolutions with the times, in seconds, by which the model's layouts were chosen
    """

    def __init__(
        self,
        configs: Mapping[str, Config],
        where: str,
        versions: Mapping[str, str] | None = None,
        layout_times: Sequence[tuple[Workload, float]] = (),
    ):
        self.configs, self.where, self.versions = configs, where, versions or {}
        self.layout_times = layout_times

    def own(self, task: Task, valid: Validator | None = None) -> Found:
        """The locked configuration. Raises RecordError where there is none, or it no longer fits the kernel."""
        hint = "write the lock again with `autosched logs lock`"
        config = self.configs.get(task.key)
        if config is None:
            raise RecordError(f"the lock has no configuration for {task.workload}", where=self.where, hint=hint)
        if objection := self._objection(config, valid):
            raise RecordError(f"the locked configuration of {task.workload}: {objection}", where=self.where, hint=hint)
        return Found(config, f"lock {Path(self.where).name}", Trust.SAME_DEVICE)

    def _objection(self, config: Config, valid: Validator | None) -> str:
        if valid is None:
            return ""
        made = self.versions.get(config.template, "1")
        now = getattr(valid, "versions", {}).get(config.template, made)
        return valid(config) if now == made else f"template '{config.template}' was at version {made}, now {now}"


def write_lock(
    path: Path,
    chosen: Mapping[str, tuple[Config, str]],
    facts: Mapping[str, object],
    layout_times: Mapping[str, float] | None = None,
) -> None:
    """Write a lock file, whole or not at all; equal choices give equal bytes.

    chosen  by workload key: the configuration, and where it came from
    facts   "templates": the version of each; target, threads and the like, which are for people and not read again
    layout_times  seconds by workload key: what layouts were chosen by
    Raises  RecordError if it cannot be written.
    """
    kernels = [
        {"workload": json.loads(key), "config": json.loads(config.key), "from": origin}
        for key, (config, origin) in sorted(chosen.items())
    ]
    layouts = [{"workload": json.loads(key), "seconds": s} for key, s in sorted((layout_times or {}).items())]
    document = {"autosched_lock": LOCK_VERSION, **facts, "kernels": kernels, "layouts": layouts}
    text = json.dumps(document, indent=1, sort_keys=True) + "\n"
    with replaced(path, "the lock") as file:
        file.write(text)


HOW = "`autosched logs lock MODEL` writes one"


def read_lock(path: Path) -> Lock:
    """Read a lock file. Raises RecordError for anything that is none."""
    try:
        if path.stat().st_size > LARGEST_BYTES:
            raise RecordError("too large for a lock", where=str(path))
        document = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise RecordError(f"cannot read the lock: {error.strerror}", where=str(path), hint=HOW) from None
    except (ValueError, RecursionError):
        raise RecordError("not a lock: no JSON", where=str(path), hint=HOW) from None
    if not isinstance(document, dict) or document.get("autosched_lock") != LOCK_VERSION:
        raise RecordError(f"not a lock of version {LOCK_VERSION}", where=str(path))
    try:
        check_plain(document)
        configs = {
            Workload.from_json(kernel["workload"]).key: Config.from_json(kernel["config"])
            for kernel in document["kernels"]
        }
        layouts = [(Workload.from_json(x["workload"]), _positive(x["seconds"])) for x in document.get("layouts", ())]
        versions = {str(name): str(version) for name, version in document.get("templates", {}).items()}
    except (AutoschedError, KeyError, TypeError, AttributeError) as error:
        raise RecordError(f"a malformed lock: {error}", where=str(path)) from None
    return Lock(configs, str(path), versions, layouts)


def _positive(seconds: Json) -> float:
    if type(seconds) not in (int, float) or not 0 < seconds < math.inf:
        raise TypeError(f"{seconds!r} is no time")
    return float(seconds)
