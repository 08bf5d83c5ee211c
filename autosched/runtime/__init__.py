"""Runs built artifacts; imports neither the compiler nor Numba.

`cpu` and `cuda` are TVM's functions here, though sub-packages have the same names: these are loaded first, and what is
in them is imported by `from autosched.runtime.cuda.kernel import …`.
"""

from autosched.lazy_names import lazy_names
from autosched.runtime.array import NDArray, array, empty, from_dlpack
from autosched.runtime.artifact import Contents, NeedsRebuildError, is_artifact, load_contents, save_contents
from autosched.runtime.cache import KernelCache, kernel_cache
from autosched.runtime.cpu.kernel import CpuKernel, Phase
from autosched.runtime.cuda.kernel import CudaKernel, Launch
from autosched.runtime.device import (
    Device,
    cpu,
    cuda,
    device,
    ext_dev,
    hexagon,
    metal,
    opencl,
    rocm,
    vpi,
    vulkan,
    webgpu,
)
from autosched.runtime.executable import Executable
from autosched.runtime.graph import NOP, Graph, Node, Storage, Value, check_graph, graph_of_kernel
from autosched.runtime.graph_executor import GraphExecutor, NodeTime
from autosched.runtime.graph_module import GraphModule
from autosched.runtime.kernel import ABI_VERSION, ArgSpec, Kernel
from autosched.runtime.library import enabled, load_module, module_of_contents, num_threads, system_lib
from autosched.runtime.loader import ALLOWED_SYMBOLS, check_object, load_objects, unload_objects
from autosched.runtime.module import Function, Module
from autosched.runtime.params import load_param_dict, save_param_dict
from autosched.runtime.timing import BenchmarkResult, measure

Tensor, tensor = NDArray, array
__getattr__, __dir__ = lazy_names(__name__)

__all__ = [
    "ABI_VERSION",
    "ALLOWED_SYMBOLS",
    "NOP",
    "ArgSpec",
    "BenchmarkResult",
    "Contents",
    "CpuKernel",
    "CudaKernel",
    "Device",
    "Executable",
    "Function",
    "Graph",
    "GraphExecutor",
    "GraphModule",
    "Kernel",
    "KernelCache",
    "Launch",
    "Module",
    "NDArray",
    "NeedsRebuildError",
    "Node",
    "NodeTime",
    "Phase",
    "Storage",
    "Tensor",
    "Value",
    "array",
    "check_graph",
    "check_object",
    "cpu",
    "cuda",
    "device",
    "empty",
    "enabled",
    "ext_dev",
    "from_dlpack",
    "graph_of_kernel",
    "hexagon",
    "is_artifact",
    "kernel_cache",
    "load_contents",
    "load_module",
    "load_objects",
    "load_param_dict",
    "measure",
    "metal",
    "module_of_contents",
    "num_threads",
    "opencl",
    "rocm",
    "save_contents",
    "save_param_dict",
    "system_lib",
    "tensor",
    "unload_objects",
    "vpi",
    "vulkan",
    "webgpu",
]
