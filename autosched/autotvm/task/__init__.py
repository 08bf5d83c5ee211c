"""Templates, tasks, spaces and dispatch contexts, at TVM's paths."""

from autosched.autotvm.task import dispatcher as dispatcher
from autosched.autotvm.task import space as space
from autosched.autotvm.task.task import args_to_workload, deserialize_args, serialize_args
from autosched.autotvm.task.dispatcher import (
    ApplyConfig, ApplyFixedConfig, ApplyGraphBest, ApplyHistoryBest, DispatchContext, EmptyContext, FallbackContext,
    clear_fallback_cache,
)  # fmt: skip
from autosched.autotvm.task.extract import extract_from_multiple_program, extract_from_program
from autosched.autotvm.task.flop import compute_flop
from autosched.autotvm.task.space import ConfigEntity, ConfigSpace, FallbackConfigEntity
from autosched.autotvm.task.task import Task, create, get_config, template
