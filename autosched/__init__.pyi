# Made by `python -m tests.stubs` from the file beside it and autosched/public_names.py.
from autosched import autotvm as autotvm
from autosched import codegen as codegen
from autosched import contrib as contrib
from autosched import dlight as dlight
from autosched import driver as driver
from autosched import errors as _error
from autosched import errors as errors
from autosched import frontend as frontend
from autosched import ir as ir
from autosched import meta_schedule as meta_schedule
from autosched import records as records
from autosched import relax as relax
from autosched import relay as relay
from autosched import rpc as rpc
from autosched import runtime as runtime
from autosched import script as script
from autosched import space as space
from autosched import target as target
from autosched import task as task
from autosched import te as te
from autosched import templates as templates
from autosched import testing as testing
from autosched import tir as _s_tir
from autosched import tir as _tirx
from autosched import tir as tir
from autosched import topi as topi
from autosched import tuner as tuner
from autosched.contrib import support as support
from autosched.driver import build as build
from autosched.driver import onnx_session as _onnx
from autosched.driver.bench.entry import BenchReport as BenchReport
from autosched.driver.bench.entry import bench as bench
from autosched.driver.build.lower import lower as lower
from autosched.driver.options import TuneOptions as TuneOptions
from autosched.driver.tune.entry import tune as tune
from autosched.driver.tune.report import TuneReport as TuneReport
from autosched.driver.vm.relax_build import compile_any as _compile
from autosched.errors import AutoschedError as AutoschedError
from autosched.errors import TVMError as TVMError
from autosched.extensions import load_extension as load_extension
from autosched.ir import IRModule as IRModule
from autosched.ir import instrument as instrument
from autosched.ir import transform as transform
from autosched.own.decorate import autotune as autotune
from autosched.own.function import AutotunedFunction as AutotunedFunction
from autosched.records import ApplyConfig as ApplyConfig
from autosched.records import ApplyHistoryBest as ApplyHistoryBest
from autosched.records import FallbackContext as FallbackContext
from autosched.relax.op.registry import define_op as _register_operator
from autosched.relay import parser as parser
from autosched.runtime import BenchmarkResult as BenchmarkResult
from autosched.runtime import Executable as Executable
from autosched.runtime import Module as Module
from autosched.runtime import ndarray as _nd
from autosched.runtime import registry as __ffi
from autosched.runtime import registry as _ffi
from autosched.runtime.library import load as load
from autosched.runtime.ndarray import context as context
from autosched.runtime.ndarray import cpu as cpu
from autosched.runtime.ndarray import cuda as cuda
from autosched.runtime.ndarray import device as device
from autosched.runtime.ndarray import ext_dev as ext_dev
from autosched.runtime.ndarray import gpu as gpu
from autosched.runtime.ndarray import hexagon as hexagon
from autosched.runtime.ndarray import metal as metal
from autosched.runtime.ndarray import opencl as opencl
from autosched.runtime.ndarray import rocm as rocm
from autosched.runtime.ndarray import vpi as vpi
from autosched.runtime.ndarray import vulkan as vulkan
from autosched.runtime.ndarray import webgpu as webgpu
from autosched.runtime.registry import get_global_func as get_global_func
from autosched.runtime.registry import register_func as _register_global_func
from autosched.runtime.registry import register_func as register_func
from autosched.runtime.values import convert as convert
from autosched.target import Target as Target
from autosched.templates.registry import register_template as register_template
from autosched.tir import arith as _sym
from autosched.tir import arith as arith
from autosched.tuner.search.registry import register_strategy as register_strategy
from autosched.version import __version__ as __version__
_ffi = __ffi
compile = _compile
error = _error
ffi = _ffi
nd = _nd
onnx = _onnx
register_global_func = _register_global_func
register_operator = _register_operator
s_tir = _s_tir
sym = _sym
tirx = _tirx
