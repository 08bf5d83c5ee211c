# Made by `python -m tests.stubs` from the file beside it and autosched/public_names.py.
from autosched.autotvm import graph_tuner as graph_tuner
from autosched.autotvm import measure as measure
from autosched.autotvm import record as record
from autosched.autotvm import task as task
from autosched.autotvm import tophub as tophub
from autosched.autotvm import tuner as tuner
from autosched.autotvm.measure import LocalBuilder as LocalBuilder
from autosched.autotvm.measure import LocalRunner as LocalRunner
from autosched.autotvm.measure import MeasureErrorNo as MeasureErrorNo
from autosched.autotvm.measure import MeasureInput as MeasureInput
from autosched.autotvm.measure import MeasureResult as MeasureResult
from autosched.autotvm.measure import RPCRunner as RPCRunner
from autosched.autotvm.measure import measure_option as measure_option
from autosched.autotvm.task import ApplyConfig as ApplyConfig
from autosched.autotvm.task import ApplyFixedConfig as _apply_fixed_config
from autosched.autotvm.task import ApplyGraphBest as _apply_graph_best
from autosched.autotvm.task import ApplyHistoryBest as _apply_history_best
from autosched.autotvm.task import ConfigEntity as ConfigEntity
from autosched.autotvm.task import ConfigSpace as ConfigSpace
from autosched.autotvm.task import DispatchContext as DispatchContext
from autosched.autotvm.task import FallbackContext as FallbackContext
from autosched.autotvm.task import clear_fallback_cache as clear_fallback_cache
from autosched.autotvm.task import get_config as get_config
from autosched.autotvm.task import template as template
from autosched.autotvm.task.dispatcher import ApplyFixedConfig as ApplyFixedConfig
from autosched.autotvm.task.dispatcher import ApplyGraphBest as ApplyGraphBest
from autosched.autotvm.task.dispatcher import ApplyHistoryBest as ApplyHistoryBest
from autosched.autotvm.tuner import callback as callback
apply_fixed_config = _apply_fixed_config
apply_graph_best = _apply_graph_best
apply_history_best = _apply_history_best
