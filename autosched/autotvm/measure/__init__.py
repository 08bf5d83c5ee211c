"""Measuring AutoTVM's configurations."""

from autosched.autotvm.measure.local import (
    Builder, LocalBuilder, LocalRunner, RPCRunner, Runner, create_measure_batch, measure_option,
)  # fmt: skip
from autosched.autotvm.measure.types import BuildResult, MeasureErrorNo, MeasureInput, MeasureResult
