"""Databases of tuning records, under TVM's names."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import ClassVar

from autosched.errors import InvalidTypeError, InvalidValueError, RecordError, ScheduleError
from autosched.ir import IRModule
from autosched.json_types import Json
from autosched.meta_schedule.workload import Workload, form_of, module_of
from autosched.target import Target
from autosched.tir import Schedule
from autosched.tir.schedule import Trace

FAILED_S = 1e10  # run_secs of a candidate that could not be measured

PathOrNone = str | PathLike[str] | None
ArgsInfo = Sequence[Sequence[Json]]  # of each argument ("TENSOR", dtype, shape)


@dataclass(frozen=True, eq=False)
class TuningRecord:
    """A candidate and how long it took.

    run_secs   seconds, several; [1e10] where it failed; None where it was not measured
    args_info  ("TENSOR", dtype, shape) for each argument
    """

    trace: Trace | Json  # a Trace, or its JSON
    workload: Workload
    run_secs: Sequence[float] | None = None
    target: Target | None = None
    args_info: ArgsInfo | None = None

    def as_json(self, path: object = None) -> list[Json]:
        """[trace, run_secs, target, args_info]."""
        trace = self.trace.as_json() if isinstance(self.trace, Trace) else self.trace
        seconds = None if self.run_secs is None else [float(s) for s in self.run_secs]
        return [trace, seconds, None if self.target is None else json.loads(self.target.to_json()), self.args_info]

    @staticmethod
    def from_json(obj: Json, workload: Workload) -> TuningRecord:
        """Read what `as_json` gave."""
        trace, seconds, target, info = obj
        return TuningRecord(trace, workload, seconds, None if target is None else Target(target), info)

    @property
    def mean_s(self) -> float:
        """The mean time; infinite where there is none."""
        return sum(self.run_secs) / len(self.run_secs) if self.run_secs else float("inf")

    @property
    def is_valid(self) -> bool:
        """Whether it was measured without an error."""
        return self.mean_s < FAILED_S

    def schedule(self) -> Schedule:
        """The workload's schedule after the trace. Raises ScheduleError where it does not apply."""
        sch = Schedule(self.workload.mod)
        if isinstance(self.trace, Trace):
            self.trace.apply_to_schedule(sch)
        else:
            Trace.apply_json_to_schedule(self.trace, sch)
        return sch


class Database:
    """Base of databases; also TVM's `Database.create` and `Database.current`."""

    _stack: ClassVar[list[Database]] = []

    def __init__(self, module_equality: str = "structural"):
        self.module_equality = module_equality

    def has_workload(self, mod: object) -> bool:
        """Whether a module of that form was committed."""
        return self._find(mod) is not None

    def _find(self, mod: object) -> Workload | None:
        form = form_of(module_of(mod))
        return next((w for w in self._workloads() if w.form == form), None)

    def _workloads(self) -> Sequence[Workload]:
        raise NotImplementedError

    def commit_workload(self, mod: object) -> Workload:
        """The workload of a module, entered where it is new."""
        raise NotImplementedError

    def commit_tuning_record(self, record: TuningRecord) -> None:
        """Enter a record."""
        raise NotImplementedError

    def get_all_tuning_records(self) -> list[TuningRecord]:
        """All records, in the order in which they came."""
        raise NotImplementedError

    def get_top_k(self, workload: Workload, top_k: int) -> list[TuningRecord]:
        """The fastest records of a workload. Raises ValueError for a negative number."""
        if top_k < 0:
            raise InvalidValueError(f"the {top_k} best records")
        form = workload.form
        own = [r for r in self.get_all_tuning_records() if r.is_valid and r.workload.form == form]
        return sorted(own, key=lambda r: r.mean_s)[:top_k]

    def __len__(self) -> int:
        return len(self.get_all_tuning_records())

    def query_tuning_record(self, mod: object, target: object, workload_name: str = "main") -> TuningRecord | None:
        """The fastest record of a module; None where there is none."""
        workload = self._find(mod)
        best = [] if workload is None else self.get_top_k(workload, 1)
        return best[0] if best else None

    def query_schedule(self, mod: object, target: object, workload_name: str = "main") -> Schedule | None:
        """The module's schedule after the fastest record's trace; None where there is none."""
        record = self.query_tuning_record(mod, target, workload_name)
        if record is None:
            return None
        try:
            return TuningRecord(record.trace, Workload(module_of(mod))).schedule()
        except ScheduleError:
            return None

    def query_ir_module(self, mod: object, target: object, workload_name: str = "main") -> IRModule | None:
        """The scheduled module; None where there is none."""
        sch = self.query_schedule(mod, target, workload_name)
        return None if sch is None else sch.mod

    def query(
        self, mod: object, target: object, *, workload_name: str = "main", kind: str = "schedule"
    ) -> Schedule | TuningRecord | IRModule | None:
        """One of the three queries; kind "schedule", "record" or "ir_module"."""
        queries: dict[str, Callable[..., Schedule | TuningRecord | IRModule | None]] = {
            "schedule": self.query_schedule, "record": self.query_tuning_record, "ir_module": self.query_ir_module
        }  # fmt: skip
        if kind not in queries:
            raise InvalidValueError(f"unknown kind '{kind}'", hint=f"one of {sorted(queries)}")
        return queries[kind](mod, target, workload_name)

    def dump_pruned(self, destination: Database) -> None:
        """Enter the fastest record of every workload into another database."""
        for workload in self._workloads():
            for record in self.get_top_k(workload, 1):
                kept = destination.commit_workload(workload.mod)
                destination.commit_tuning_record(
                    TuningRecord(record.trace, kept, record.run_secs, record.target, record.args_info)
                )

    def __enter__(self) -> Database:
        Database._stack.append(self)
        return self

    def __exit__(self, *_: object) -> None:
        Database._stack.remove(self)

    @staticmethod
    def current() -> Database | None:
        """The database of the innermost `with` block; None outside."""
        return Database._stack[-1] if Database._stack else None

    @staticmethod
    def create(kind: object = "json", *args: object, **kwargs: object) -> Database:
        """A database: "json", "memory", "union" or "ordered_union". Raises ValueError for another kind."""
        kinds: dict[str, Callable[..., Database]] = {
            "json": JSONDatabase, "memory": MemoryDatabase, "union": UnionDatabase,
            "ordered_union": OrderedUnionDatabase,
        }  # fmt: skip
        if not isinstance(kind, str) or kind not in kinds:
            raise InvalidValueError(f"Unknown Database: {kind}", hint=f"one of {sorted(kinds)}")
        return kinds[kind](*args, **kwargs)


class MemoryDatabase(Database):
    """A database of this process."""

    def __init__(self, module_equality: str = "structural"):
        super().__init__(module_equality)
        self.workloads: list[Workload] = []
        self.records: list[TuningRecord] = []

    def _workloads(self) -> Sequence[Workload]:
        return self.workloads

    def commit_workload(self, mod: object) -> Workload:
        """See `Database`."""
        known = self._find(mod)
        if known is None:
            known = Workload(module_of(mod))
            self.workloads.append(known)
        return known

    def commit_tuning_record(self, record: TuningRecord) -> None:
        """See `Database`. Raises TypeError for what is no record."""
        if not isinstance(record, TuningRecord):
            raise InvalidTypeError(f"commit_tuning_record: expected a TuningRecord, got {type(record).__name__}")
        self.records.append(record)

    def get_all_tuning_records(self) -> list[TuningRecord]:
        """See `Database`."""
        return list(self.records)


class JSONDatabase(MemoryDatabase):
    """A database in two files of JSON lines, `database_workload.json` and `database_tuning_record.json`.

    path_workload, path_tuning_record  the files; or both in the folder `work_dir`
    Raises  ValueError where no files are named; RecordError for a damaged file, or a missing one with
            allow_missing=False
    """

    def __init__(
        self, path_workload: PathOrNone = None, path_tuning_record: PathOrNone = None, *, work_dir: PathOrNone = None,
        allow_missing: bool = True, module_equality: str = "structural",
    ):  # fmt: skip
        super().__init__(module_equality)
        if work_dir is not None:
            path_workload = path_workload or Path(work_dir) / "database_workload.json"
            path_tuning_record = path_tuning_record or Path(work_dir) / "database_tuning_record.json"
        if path_workload is None or path_tuning_record is None:
            raise InvalidValueError("`path_workload` is not specified", hint="give work_dir, or both paths")
        self.path_workload, self.path_tuning_record = Path(path_workload), Path(path_tuning_record)
        if not allow_missing and not self.path_workload.exists():
            raise RecordError(f"no such file: {self.path_workload}")
        for entry in _lines(self.path_workload):
            self.workloads.append(Workload.from_json(entry))
        for entry in _lines(self.path_tuning_record):
            try:
                index, body = entry
                self.records.append(TuningRecord.from_json(body, self.workloads[index]))
            except (TypeError, ValueError, IndexError) as error:
                raise RecordError(f"{self.path_tuning_record} is damaged: {error}") from error

    def commit_workload(self, mod: object) -> Workload:
        """See `Database`."""
        n_known = len(self.workloads)
        workload = super().commit_workload(mod)
        if len(self.workloads) > n_known:
            _append(self.path_workload, workload.as_json())
        return workload

    def commit_tuning_record(self, record: TuningRecord) -> None:
        """See `Database`."""
        super().commit_tuning_record(record)
        forms = [w.form for w in self.workloads]
        if record.workload.form not in forms:
            self.commit_workload(record.workload.mod)
            forms.append(record.workload.form)
        _append(self.path_tuning_record, [forms.index(record.workload.form), record.as_json()])


class UnionDatabase(Database):
    """Several databases; the fastest record of all of them answers."""

    def __init__(self, *databases: Database, module_equality: str = "structural"):
        super().__init__(module_equality)
        if not all(isinstance(d, Database) for d in databases):
            raise InvalidTypeError("a union is of databases")
        self.databases = databases

    def _workloads(self) -> Sequence[Workload]:
        return [w for d in self.databases for w in d._workloads()]

    def get_all_tuning_records(self) -> list[TuningRecord]:
        """See `Database`."""
        return [r for d in self.databases for r in d.get_all_tuning_records()]


class OrderedUnionDatabase(UnionDatabase):
    """Several databases; the first one that knows a module answers."""

    def query_tuning_record(self, mod: object, target: object, workload_name: str = "main") -> TuningRecord | None:
        """See `Database`."""
        for database in self.databases:
            if (record := database.query_tuning_record(mod, target, workload_name)) is not None:
                return record
        return None


def create(kind: object = "json", *args: object, **kwargs: object) -> Database:
    """See `Database.create`."""
    return Database.create(kind, *args, **kwargs)


def _lines(path: Path) -> list[Json]:
    if not path.exists():
        return []
    try:
        return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines() if line.strip()]
    except (ValueError, RecursionError) as error:
        raise RecordError(f"{path} is damaged: {error}") from error


def _append(path: Path, entry: object) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a", encoding="utf-8") as file:
        file.write(json.dumps(entry) + "\n")
