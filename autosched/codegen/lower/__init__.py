"""From a scheduled PrimFunc to plain loops: a pass a file, run in the order of `pipeline.lower_func`."""

from autosched.codegen.lower.phases import LoweredPhase, split_phases
from autosched.codegen.lower.pipeline import lower_func

__all__ = ["LoweredPhase", "lower_func", "split_phases"]
