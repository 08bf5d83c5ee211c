"""TVM's AutoTVM: templates written with te, their spaces, tuners, logs and dispatch."""

from autosched.autotvm import graph_tuner as graph_tuner
from autosched.autotvm import measure as measure
from autosched.autotvm import record as record
from autosched.autotvm import task as task
from autosched.autotvm import tophub as tophub
from autosched.autotvm import tuner as tuner
from autosched.autotvm.measure import (
    LocalBuilder, LocalRunner, MeasureErrorNo, MeasureInput, MeasureResult, RPCRunner, measure_option,
)  # fmt: skip
from autosched.autotvm.task import (
    ApplyConfig, ApplyFixedConfig as apply_fixed_config, ApplyGraphBest as apply_graph_best,
    ApplyHistoryBest as apply_history_best, ConfigEntity, ConfigSpace, DispatchContext, FallbackContext,
    clear_fallback_cache, get_config, template,
)  # fmt: skip
from autosched.autotvm.task.dispatcher import ApplyFixedConfig, ApplyGraphBest, ApplyHistoryBest
from autosched.autotvm.tuner import callback as callback
