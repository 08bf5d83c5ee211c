"""A user's own `numba.cuda` function as a `CudaKernel`, compiled as ours are; its arguments are Numba's, not ours."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from autosched.codegen.backends import GENERATOR
from autosched.codegen.cuda.assembler import assemble
from autosched.codegen.cuda.compiled import LINKED_MODULE
from autosched.errors import CodegenError
from autosched.runtime.cuda.kernel import CudaKernel, Launch, LaunchResources, Resources
from autosched.runtime.kernel import pack_text
from autosched.target import Target
from autosched.target.gpus import GpuFacts

if TYPE_CHECKING:
    from autosched.codegen.cuda.numba_cuda import Plan


@dataclass(frozen=True, slots=True)
class UserOptions:
    """Options of `numba.cuda.jit` that change the code.

    max_registers  of a thread; 0: as many as there are
    launch_bounds  as numba.cuda has them; (): none
    """

    fastmath: bool = False
    max_registers: int = 0
    launch_bounds: tuple[int, ...] = ()

    @staticmethod
    def of(options: Mapping[str, Any]) -> UserOptions:
        """The options of these names among others."""
        bounds = options.get("launch_bounds") or ()
        return UserOptions(
            bool(options.get("fastmath")),
            int(options.get("max_registers") or 0),
            (bounds,) if isinstance(bounds, int) else tuple(bounds),
        )


@dataclass(frozen=True, slots=True)
class UserKernel:
    """A compiled kernel and what it takes for each argument (see `numba_cuda.parameter_plan`).

    kernel  has one launch, whose grid, block and shared memory are the caller's to set
    """

    kernel: CudaKernel
    plan: tuple[Plan, ...]

    @property
    def registers(self) -> int:
        """Of a thread."""
        return self.kernel.resources.registers

    def occupancy(self, gpu: GpuFacts, threads: int, shared_bytes: int) -> float:
        """Resident threads of an SM over the most there can be, for blocks of this size; 0.0 where none fits.

        shared_bytes  dynamic
        """
        return gpu.occupancy(threads, self.registers, self.kernel.resources.shared_bytes + shared_bytes)


def compile_user_kernel(
    function: Callable[..., object], types: Sequence[object], target: Target, options: UserOptions, source: str = ""
) -> UserKernel:
    """Compile a Python function written for `numba.cuda` for arguments of Numba's types.

    Raises CodegenError for what Numba, libnvvm or the assembler refuses.
    """
    from autosched.codegen.cuda.numba_cuda import lower_user_kernel, parameter_plan, to_ptx

    gpu = target.gpu
    plan = tuple(parameter_plan(kind) for kind in types)
    name = re.sub(r"\W", "_", function.__name__)
    digest = hashlib.sha256("\x1f".join((source, str(types), str(options), GENERATOR)).encode()).hexdigest()[:12]
    symbol = f"{name}_{digest}"
    texts = lower_user_kernel(function, types, symbol, options.launch_bounds, fastmath=options.fastmath)
    ptx = to_ptx(texts, gpu.arch.replace("sm_", "compute_"), fastmath=options.fastmath)
    found = assemble(ptx, gpu.arch, options.max_registers)
    if symbol not in found.registers:
        raise CodegenError(f"the assembler's log does not name {symbol}", hint="another version of nvJitLink is there")
    shared = found.shared_bytes.get(symbol, 0)
    if gpu.compute_capability[0] == 9:  # here alone the log counts what is reserved for the system
        shared = max(0, shared - gpu.reserved_shared)
    used = LaunchResources(
        found.registers[symbol], shared, found.stack_bytes.get(symbol, 0), found.spill_bytes.get(symbol, 0), 1.0
    )
    kernel = CudaKernel(
        name=name,
        args=(),
        source=source,
        target=target.to_json(),
        generator=GENERATOR,
        llvm_packed=pack_text(LINKED_MODULE.join(texts)),
        launches=(Launch(symbol, (1, 1, 1), (1, 1, 1)),),
        images={gpu.arch: found.cubin},
        resources=Resources((used,)),
        ptx_packed=pack_text(ptx),
    )
    return UserKernel(kernel, plan)
