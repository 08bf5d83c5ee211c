"""Real kernels for the tests of measurement: small Numba functions, compiled to objects by the kernel ABI.

The task is a matrix product C[32, 48] = A[32, 24] @ B[24, 48]; each kind of configuration computes it, or fails, in
its own way.
"""

from __future__ import annotations

import ctypes
import functools
import hashlib
import os
import sys
import time
from typing import Any

import numpy as np

from autosched import te
from autosched.errors import ScheduleError
from autosched.runtime.cpu.kernel import CpuKernel, Phase
from autosched.runtime.kernel import ArgSpec, Kernel
from autosched.space import Config
from autosched.target import Target
from autosched.task import Task, Workload
from autosched.tir import PrimFunc

M, N, K = 32, 48, 24
SIGNATURE = "void(CPointer(CPointer(float32)), int64, int64, int64)"


def matmul_task(threads: int = 1) -> Task:
    """The task that all kernels here compute."""
    a, b = te.placeholder((M, K), name="A"), te.placeholder((K, N), name="B")
    k = te.reduce_axis((0, K), "k")
    c = te.compute((M, N), lambda i, j: te.sum(a[i, k] * b[k, j], axis=k), name="C")
    workload = Workload("matmul", ("float32",) * 3, ((M, K), (K, N), (M, N)))
    return Task(workload, Target("cpu"), func=te.create_prim_func([a, b, c]), threads=threads)


def evaluate(func: PrimFunc, inputs: list[np.ndarray]) -> list[np.ndarray]:
    """The task in float64."""
    return [inputs[0].astype(np.float64) @ inputs[1].astype(np.float64)]


def config(kind: str, **knobs: Any) -> Config:
    """A configuration of KernelCompiler."""
    return Config("test", {"kind": kind, **knobs})


class Transposed:
    """A pack: the argument turned over."""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Transposed)

    def __hash__(self) -> int:
        return 1

    def pack(self, array: np.ndarray) -> np.ndarray:
        """The transposed copy."""
        return np.ascontiguousarray(array.T)


class KernelCompiler:
    """Compiles what the knob `kind` says; some kinds fail while they are compiled."""

    def warm_up(self, target: Target) -> None:
        """Compile something."""
        compile_object(right)

    def keep(self) -> None:
        """Nothing is stored here."""

    def native_loop(self) -> bytes:
        """The real one."""
        from autosched.codegen.native import native_object

        return native_object()

    def compile(self, func: PrimFunc, config: Config, target: Target) -> tuple[Kernel, tuple[Any, ...]]:
        """Compile, or fail."""
        assert [b.name for b in func.buffers] == ["A", "B", "C"], "the function came through the pipe"
        kind = config["kind"]
        match kind:
            case "build_error":
                raise ValueError("no such instruction")
            case "refused":
                raise ScheduleError("tile 7 does not fit")
            case "build_exit":
                sys.exit(3)
            case "build_hard_exit":
                os._exit(5)
            case "build_crash":
                ctypes.string_at(0)
            case "build_hang":
                time.sleep(1000)
            case "build_memory":
                np.ones(100 << 30, np.uint8)
            case "needs_python":
                return kernel(kind, functools.partial(compile_object, right, "PyErr_SetString")), ()
            case "scratch_memory":
                return kernel("right", functools.partial(compile_object, right), scratch=100 << 30), ()
            case "packed":
                return kernel(kind, functools.partial(compile_object, packed)), (None, Transposed(), None)
            case "other_arguments":
                return kernel("right", functools.partial(compile_object, right), args=ARGS[1:]), ()
        rounds = config.get("rounds", 0)
        return kernel(kind, functools.partial(compile_object, FUNCTIONS[kind], rounds=rounds)), ()


ARGS = (
    ArgSpec("A", "input", "float32", (M, K)),
    ArgSpec("B", "input", "float32", (K, N)),
    ArgSpec("C", "output", "float32", (M, N)),
)


def kernel(kind: str, code: Any, scratch: int = 0, args: tuple[ArgSpec, ...] = ARGS) -> Kernel:
    """A kernel of one phase, a piece for each row."""
    data, symbol = code()
    return CpuKernel(
        name=kind, phases=(Phase(symbol, M),), args=args, scratch_bytes=scratch, scratch_bytes_per_worker=64,
        object_code=data, flops=2 * M * N * K,
    )  # fmt: skip


def compile_object(function: Any, needs: str = "", rounds: int = 0) -> tuple[bytes, str]:
    """Object code of a function with the phase's signature, under a symbol of its own."""
    import llvmlite.binding as llvm
    from numba import cfunc

    function.__globals__["ROUNDS"] = rounds
    compiled = cfunc(SIGNATURE, nopython=True, error_model="numpy")(function)
    text = compiled.inspect_llvm()
    symbol = f"test_{function.__name__}_{hashlib.sha256(text.encode()).hexdigest()[:12]}_p0"
    module = llvm.parse_assembly(text)
    for value in (*module.functions, *module.global_variables):
        if value.name == compiled.native_name:
            value.name = symbol
        elif not value.is_declaration:
            value.linkage = "internal"
    if needs:
        caller = f"declare void @{needs}()\ndefine void @call_{needs}() {{\n call void @{needs}()\n ret void\n}}\n"
        module.link_in(llvm.parse_assembly(caller))
    machine = llvm.Target.from_default_triple().create_target_machine(reloc="pic", codemodel="default")
    return machine.emit_object(module), symbol


ROUNDS = 0  # how often the kind "slow" computes what it needs once


def right(slots, first, last, worker):  # type: ignore[no-untyped-def]
    a, b, c = slots[0], slots[1], slots[2]
    for i in range(first, last):
        for j in range(N):
            total = np.float32(0)
            for k in range(K):
                total += a[i * K + k] * b[k * N + j]
            c[i * N + j] = total


def slow(slots, first, last, worker):  # type: ignore[no-untyped-def]
    a, b, c = slots[0], slots[1], slots[2]
    for i in range(first, last):
        for j in range(N):
            total = np.float32(0)
            for r in range(ROUNDS + 1):
                total *= np.float32(r == ROUNDS) * np.float32(0)
                for k in range(K):
                    total += a[i * K + k] * b[k * N + j]
            c[i * N + j] = total


def packed(slots, first, last, worker):  # type: ignore[no-untyped-def]
    a, b, c = slots[0], slots[1], slots[2]
    for i in range(first, last):
        for j in range(N):
            total = np.float32(0)
            for k in range(K):
                total += a[i * K + k] * b[j * K + k]
            c[i * N + j] = total


def one_term_short(slots, first, last, worker):  # type: ignore[no-untyped-def]
    a, b, c = slots[0], slots[1], slots[2]
    for i in range(first, last):
        for j in range(N):
            total = np.float32(0)
            for k in range(K):
                if not (i == 5 and j == 7 and k == 3):
                    total += a[i * K + k] * b[k * N + j]
            c[i * N + j] = total


def last_row_missing(slots, first, last, worker):  # type: ignore[no-untyped-def]
    a, b, c = slots[0], slots[1], slots[2]
    for i in range(first, last):
        if i < M - 1:
            for j in range(N):
                total = np.float32(0)
                for k in range(K):
                    total += a[i * K + k] * b[k * N + j]
                c[i * N + j] = total


def makes_nan(slots, first, last, worker):  # type: ignore[no-untyped-def]
    c = slots[2]
    for i in range(first * N, last * N):
        c[i] = np.float32(0) / np.float32(first - first)


def beside_output(slots, first, last, worker):  # type: ignore[no-untyped-def]
    a, b, c = slots[0], slots[1], slots[2]
    for i in range(first, last):
        for j in range(N):
            total = np.float32(0)
            for k in range(K):
                total += a[i * K + k] * b[k * N + j]
            c[i * N + j] = total
    c[M * N] = np.float32(1)


def into_input(slots, first, last, worker):  # type: ignore[no-untyped-def]
    a, b, c = slots[0], slots[1], slots[2]
    for i in range(first, last):
        for j in range(N):
            total = np.float32(0)
            for k in range(K):
                total += a[i * K + k] * b[k * N + j]
            c[i * N + j] = total
        a[i * K] = np.float32(1)


def works_once(slots, first, last, worker):  # type: ignore[no-untyped-def]
    a, b, c, scratch = slots[0], slots[1], slots[2], slots[3]
    again = scratch[0] == np.float32(1)
    for i in range(first, last):
        for j in range(N):
            total = np.float32(1) if again else np.float32(0)
            for k in range(K):
                total += a[i * K + k] * b[k * N + j]
            c[i * N + j] = total
    scratch[0] = np.float32(1)


def wild_store(slots, first, last, worker):  # type: ignore[no-untyped-def]
    slots[2][first + (1 << 44)] = np.float32(1)


def endless(slots, first, last, worker):  # type: ignore[no-untyped-def]
    c = slots[2]
    while c[0] != np.float32(12345):
        c[1] = c[0] + np.float32(1)


FUNCTIONS = {
    f.__name__: f
    for f in (
        right, slow, one_term_short, last_row_missing, makes_nan, beside_output, into_input, works_once, wild_store,
        endless,
    )
}  # fmt: skip
