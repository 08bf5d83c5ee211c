"""An emulator of CUDA kernels: LLVM IR as Numba's CUDA target emits it runs on the CPU, with every access checked."""

from autosched.codegen.cuda.emulate.faults import EmulationError
from autosched.codegen.cuda.emulate.driver import EmulatorDriver
from autosched.codegen.cuda.emulate.kernel import run_kernel
from autosched.codegen.cuda.emulate.launch import Checks, run_launch
from autosched.codegen.cuda.emulate.trace import Accesses, Trace

__all__ = ["Accesses", "Checks", "EmulationError", "EmulatorDriver", "Trace", "run_kernel", "run_launch"]
