# Made by `python -m tests.stubs` from the file beside it and autosched/public_names.py.
from autosched.driver.bench.entry import BenchReport as BenchReport
from autosched.driver.build.choose import BuildReport as BuildReport
from autosched.driver.build.entry import build as build
from autosched.driver.build.entry import build_report as build_report
from autosched.driver.build.entry import name_targets as name_targets
from autosched.driver.build.lower import lower as lower
from autosched.driver.late_files import build_late_file as build_late_file
from autosched.driver.late_files import can_wait as can_wait
from autosched.driver.model_files import load_model as load_model
from autosched.driver.model_files import split_ranges as split_ranges
from autosched.driver.options import TuneOptions as TuneOptions
from autosched.driver.tasks import extract_tasks as extract_tasks
from autosched.driver.tune.first import tune_first as tune_first
from autosched.driver.tune.report import TuneReport as TuneReport
from autosched.driver.tune.task_list import list_tasks as list_tasks
