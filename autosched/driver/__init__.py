"""Where compiler, tuner and records meet: building, tuning, measuring.

Names that a build does not need are loaded when they are first used. `tune`, `bench` and `rebuild` are taken from their
modules: here these names are sub-packages and modules.
"""

from typing import TYPE_CHECKING

from autosched.driver.build.choose import BuildReport
from autosched.driver.build.entry import build, build_report, name_targets
from autosched.driver.model_files import load_model, split_ranges
from autosched.lazy_names import lazy_names

if TYPE_CHECKING:
    from autosched.driver.bench.entry import BenchReport
    from autosched.driver.build.lower import lower
    from autosched.driver.late_files import build_late_file, can_wait
    from autosched.driver.options import TuneOptions
    from autosched.driver.tasks import extract_tasks
    from autosched.driver.tune.first import tune_first
    from autosched.driver.tune.report import TuneReport
    from autosched.driver.tune.task_list import list_tasks

__all__ = [
    "BenchReport", "BuildReport", "TuneOptions", "TuneReport", "build", "build_late_file", "build_report", "can_wait",
    "extract_tasks", "list_tasks", "load_model", "lower", "name_targets", "split_ranges", "tune_first",
]  # fmt: skip

__getattr__, __dir__ = lazy_names(__name__)
