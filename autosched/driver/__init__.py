"""Where compiler, tuner and records meet: `build`, `lower`, `tune`, `bench`."""

from autosched.driver.bench import BenchReport, bench
from autosched.driver.build import build, build_report
from autosched.driver.lower import lower
from autosched.driver.model_files import load_model
from autosched.driver.rebuild import rebuild
from autosched.driver.report import BuildReport
from autosched.driver.task_list import list_tasks
from autosched.driver.tasks import extract_tasks
from autosched.driver.tune import TuneOptions, TuneReport, tune
