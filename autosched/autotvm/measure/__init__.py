"""Measuring AutoTVM's configurations."""

from autosched.autotvm.measure.local import LocalBuilder, LocalRunner, RPCRunner, create_measure_batch, measure_option
from autosched.autotvm.measure.types import BuildResult, MeasureErrorNo, MeasureInput, MeasureResult
