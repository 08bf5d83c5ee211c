"""TVM's DLight: rules that schedule each PrimFunc of a module without tuning.

with Target("cuda"):
    mod = dlight.ApplyDefaultSchedule(dlight.gpu.Matmul(), dlight.gpu.Fallback())(mod)
"""

from autosched.dlight import cpu, gpu
from autosched.dlight.base import ApplyDefaultSchedule, ScheduleRule

__all__ = ["ApplyDefaultSchedule", "ScheduleRule", "cpu", "gpu"]
