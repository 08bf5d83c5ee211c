"""TVM's MetaSchedule, a compatibility layer over `autosched.tune` and traces of `tir.Schedule`.

A tuned kernel's trace annotates the root block with the configuration that tuning found; the build applies it.
Where the space is a function of the user, the trace is what that function did.
"""

from autosched.meta_schedule import database, relax_integration, space_generator, tir_integration
from autosched.meta_schedule.context import MeasureCandidate, TuneContext
from autosched.meta_schedule.database import Database, JSONDatabase, MemoryDatabase, TuningRecord, Workload
from autosched.meta_schedule.options import builder, cost_model, runner, search_strategy
from autosched.meta_schedule.relax_integration import compile_relax, extract_tasks, tune_relax
from autosched.meta_schedule.tasks import ExtractedTask, tune_tasks
from autosched.meta_schedule.tir_integration import compile_tir, tune_tir

__all__ = [
    "Database", "ExtractedTask", "JSONDatabase", "MeasureCandidate", "MemoryDatabase", "TuneContext", "TuningRecord",
    "Workload", "builder", "compile_relax", "compile_tir", "cost_model", "database", "extract_tasks",
    "relax_integration", "runner", "search_strategy", "space_generator", "tir_integration", "tune_relax", "tune_tasks",
    "tune_tir",
]  # fmt: skip
