"""Checks of functions that are scheduled for a GPU, on machines without one."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator, Sequence

import numpy as np

from autosched.codegen import compile_func
from autosched.codegen.cuda.emulate.kernel import run_kernel
from autosched.codegen.cuda.emulate.launch import Order
from autosched.codegen.lower.device import lower_device
from autosched.codegen.lower.serial_threads import serial_threads
from autosched.runtime.cpu.kernel import CpuKernel
from autosched.runtime.cuda.kernel import CudaKernel
from autosched.runtime.faults import Faults
from autosched.runtime.loader import load_objects
from autosched.target import Target
from autosched.tir.function import PrimFunc

Array = np.ndarray


def run_serially(func: PrimFunc, *arrays: Array) -> None:
    """Run a scheduled function on a CPU, its threads one after the other between barriers; outputs are written.

    That is done twice, with the first and with the last thread of each block ahead, from the same start. Raises
    CodegenError for what no GPU code exists for, the error of a check that failed, AssertionError where the order of
    the threads shows in the results.
    """
    lowered = lower_device(func, instructions=False)
    before = [a.copy() for a in arrays]
    _run(serial_threads(func, lowered), arrays)
    _run(serial_threads(func, lowered, descending=True), before)
    for array, other in zip(arrays, before, strict=True):
        if array.tobytes() != other.tobytes():
            np.testing.assert_array_equal(array, other, err_msg="the order of the threads shows")


def run_in_all_ways(
    func: PrimFunc, target: Target, inputs: Sequence[Array], outputs: Sequence[Array]
) -> Iterator[tuple[str, list[Array]]]:
    """(which way, results) of a scheduled function: thread by thread on the CPU, on the emulator in both its orders.

    outputs  arrays that say what shapes and types the results have, and what stands there before
    """
    made = [a.copy() for a in outputs]
    run_serially(func, *inputs, *made)
    yield "on the CPU", made
    kernel = compile_func(func, target, name="kernel", use_cache=False).kernel
    assert isinstance(kernel, CudaKernel), "it was compiled for a GPU"
    orders: tuple[Order, ...] = ("late", "ahead")
    for order in orders:
        made = [a.copy() for a in outputs]
        run_kernel(kernel, [*inputs, *made], order=order)
        yield f"on the emulator, {order}", made


def _run(func: PrimFunc, arrays: Sequence[np.ndarray]) -> None:
    kernel = compile_func(func, "cpu", name="serial", use_cache=False).kernel
    assert isinstance(kernel, CpuKernel), "it was compiled for a CPU"
    addresses = load_objects([kernel])
    scratch = np.full(kernel.scratch_size(1) + 64, 0xFF, np.uint8)  # NaN: nothing is there before it is written
    start = scratch.ctypes.data + -scratch.ctypes.data % 64
    whole = [np.ascontiguousarray(a) for a in arrays]
    faults = Faults([(kernel.name, kernel)])
    words = [faults.address(0)] if faults else []
    slots = (ctypes.c_void_p * (len(whole) + 1 + len(words)))(*(a.ctypes.data for a in whole), start, *words)
    prototype = ctypes.CFUNCTYPE(None, ctypes.c_void_p, *[ctypes.c_int64] * 3)
    for phase in kernel.phases:
        prototype(addresses[phase.symbol])(ctypes.addressof(slots), 0, phase.n_tasks, 0)
    for array, result in zip(arrays, whole, strict=True):
        array[...] = result
    faults.check()
