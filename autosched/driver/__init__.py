"""Where compiler, tuner and records meet: `build`, `lower`, `tune`, `bench`."""

from autosched.driver.bench.entry import BenchReport, bench
from autosched.driver.build.entry import build, build_report
from autosched.driver.build.lower import lower
from autosched.driver.onnx_files import build_onnx_file, can_wait
from autosched.driver.model_files import load_model, split_ranges
from autosched.driver.rebuild import rebuild
from autosched.driver.build.choose import BuildReport
from autosched.driver.tune.task_list import list_tasks
from autosched.driver.tasks import extract_tasks
from autosched.driver.tune.entry import TuneOptions, TuneReport, tune
from autosched.driver.tune.entry import tune_first
