"""Run a compiled kernel, all its launches, on the emulator."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from autosched.codegen.cuda.build import NEXT_MODULE
from autosched.codegen.cuda.emulate.launch import Checks, Order, run_launch
from autosched.codegen.cuda.emulate.trace import Trace
from autosched.errors import InvalidValueError
from autosched.runtime.cuda.kernel import CudaKernel
from autosched.runtime.faults import Faults

# Register tiles at a border read places of shared memory that nobody filled, for results that are not stored. That
# memory begins as NaNs, so a result that does use one shows.
KERNEL_CHECKS = Checks(unset=False)


def run_kernel(
    kernel: CudaKernel,
    arrays: Sequence[np.ndarray],
    *,
    order: Order = "late",
    checks: Checks = KERNEL_CHECKS,
    traces: Sequence[Trace | None] = (),
) -> None:
    """Run the launches of a kernel in order; the arrays are its inputs, then its outputs, which change in place.

    traces  one for each launch, or none

    A kernel whose sizes come with the call is given as it is for them (`CudaKernel.at`).
    Raises EmulationError at the first fault, CodegenError for code that the emulator does not know, after the run the
    error of a check that failed (IndexOutOfRangeError).
    """
    if len(arrays) != len(kernel.args):
        raise InvalidValueError(f"kernel '{kernel.name}' takes {len(kernel.args)} arrays, not {len(arrays)}")
    texts = kernel.llvm.split(NEXT_MODULE) if kernel.launches else []
    scratch: np.ndarray | int = 0
    if kernel.scratch_bytes:
        scratch = np.full(kernel.scratch_bytes, 0xFF, np.uint8)
    faults = Faults([(kernel.name, kernel)])
    words = [faults.words.view(np.uint64).reshape(-1)] if faults else []
    for k, sizes in kernel.calls:
        launch = kernel.launches[k]
        run_launch(
            texts[k],
            launch.symbol,
            launch.grid,
            launch.block,
            launch.shared_bytes,
            [*arrays, scratch, *words, *map(int, sizes)],
            order=order,
            trace=traces[k] if k < len(traces) else None,
            cluster=launch.cluster,
            tensor_maps=launch.tensor_maps,
            checks=checks,
        )
    faults.check()
