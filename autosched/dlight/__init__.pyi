# Made by `python -m tests.stubs` from the file beside it and autosched/public_names.py.
from autosched.dlight import cpu as cpu
from autosched.dlight import gpu as gpu
from autosched.dlight.base import ApplyDefaultSchedule as ApplyDefaultSchedule
from autosched.dlight.base import ScheduleRule as ScheduleRule
