# Made by `python -m tests.stubs` from the file beside it and autosched/public_names.py.
from autosched.autotvm.measure.local import Builder as Builder
from autosched.autotvm.measure.local import LocalBuilder as LocalBuilder
from autosched.autotvm.measure.local import LocalRunner as LocalRunner
from autosched.autotvm.measure.local import RPCRunner as RPCRunner
from autosched.autotvm.measure.local import Runner as Runner
from autosched.autotvm.measure.local import create_measure_batch as create_measure_batch
from autosched.autotvm.measure.local import measure_option as measure_option
from autosched.autotvm.measure.types import BuildResult as BuildResult
from autosched.autotvm.measure.types import MeasureErrorNo as MeasureErrorNo
from autosched.autotvm.measure.types import MeasureInput as MeasureInput
from autosched.autotvm.measure.types import MeasureResult as MeasureResult
