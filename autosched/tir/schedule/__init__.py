"""Schedules: rewriting functions of the loop level step by step."""

from autosched.lazy_names import lazy_names
from autosched.tir.schedule.rv import BlockRV, ExprRV, LoopRV
from autosched.tir.schedule.schedule import Schedule
from autosched.tir.schedule.trace import Instruction, Trace

__all__ = ["BlockRV", "ExprRV", "Instruction", "LoopRV", "Schedule", "Trace"]

__getattr__, __dir__ = lazy_names(__name__)
