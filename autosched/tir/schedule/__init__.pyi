# Made by `python -m tests.stubs` from the file beside it and autosched/public_names.py.
from autosched.errors import ScheduleError as ScheduleError
from autosched.tir.schedule.rv import BlockRV as BlockRV
from autosched.tir.schedule.rv import BlockRV as _SBlockRV
from autosched.tir.schedule.rv import ExprRV as ExprRV
from autosched.tir.schedule.rv import LoopRV as LoopRV
from autosched.tir.schedule.schedule import Schedule as Schedule
from autosched.tir.schedule.trace import Instruction as Instruction
from autosched.tir.schedule.trace import Trace as Trace
SBlockRV = _SBlockRV
