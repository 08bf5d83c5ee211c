"""Small kernels for the runtime's tests, compiled with Numba by the kernel ABI."""

from __future__ import annotations

import functools

import llvmlite.binding as llvm
import numpy as np
from numba import cfunc, types

from autosched.codegen.native import native_object
from autosched.runtime import ArgSpec, CpuKernel, Executable, Graph, Node, Phase, Storage, Value

_POINTERS = types.CPointer(types.CPointer(types.float32))
_SIGNATURE = types.void(_POINTERS, types.int64, types.int64, types.int64)
ROW = 64  # elements in a piece of work


def _add(slots, first, last, worker):
    for i in range(first * 64, last * 64):
        slots[2][i] = slots[0][i] + slots[1][i]


def _double(slots, first, last, worker):
    for i in range(first * 64, last * 64):
        slots[1][i] = slots[0][i] * np.float32(2)


def _row_sums(slots, first, last, worker):
    """First phase of `normalize`: each row's sum into shared scratch, through the worker's own part."""
    for row in range(first, last):
        own = 64 + worker * 16  # 256 bytes are shared, a worker has 64 of its own
        slots[2][own] = np.float32(0)
        for i in range(64):
            slots[2][own] += slots[0][row * 64 + i]
        slots[2][row] = slots[2][own]


def _divide_by_all(slots, first, last, worker):
    """Second phase: divide by the sum of all rows, which needs the barrier."""
    total = np.float32(0)
    for row in range(4):
        total += slots[2][row]
    for i in range(first * 64, last * 64):
        slots[1][i] = slots[0][i] / total


@functools.cache
def compile_phases(name: str, *functions: object) -> bytes:
    module = llvm.parse_assembly("")
    for index, function in enumerate(functions):
        callback = cfunc(_SIGNATURE, nopython=True, error_model="numpy")(function)
        part = llvm.parse_assembly(callback.inspect_llvm())
        for value in (*part.functions, *part.global_variables):
            if value.name == callback.native_name:
                value.name = f"{name}_p{index}"
            elif not value.is_declaration:
                value.linkage = "internal"
        module.link_in(part)
    machine = llvm.Target.from_default_triple().create_target_machine(opt=2, reloc="pic", codemodel="default")
    return bytes(machine.emit_object(module))


def _kernel(name: str, functions: tuple[object, ...], n_args: int, rows: int, **more: object) -> CpuKernel:
    args = [ArgSpec(f"x{i}", "input", "float32", (rows, ROW)) for i in range(n_args - 1)]
    args.append(ArgSpec("out", "output", "float32", (rows, ROW)))
    phases = tuple(Phase(f"{name}_p{index}", rows) for index in range(len(functions)))
    code = compile_phases(name, *functions)
    fields = {"scratch_bytes": 0, "scratch_bytes_per_worker": 0, **more}
    return CpuKernel(name=name, phases=phases, args=tuple(args), object_code=code, source=f"# {name}", **fields)


def add_kernel(rows: int = 3) -> CpuKernel:
    return _kernel("add", (_add,), 3, rows, flops=rows * ROW)


def double_kernel(rows: int = 3, flops: int = 0) -> CpuKernel:
    return _kernel("double", (_double,), 2, rows, flops=flops)


def normalize_kernel(flops: int = 10**9) -> CpuKernel:
    """Two phases over 4 rows with shared and per-worker scratch; `flops` large, so that it is split."""
    sizes = {"scratch_bytes": 256, "scratch_bytes_per_worker": 64}
    return _kernel("normalize", (_row_sums, _divide_by_all), 2, 4, flops=flops, **sizes)


def chain(rows: int, n_nodes: int, *, flops: int = 0, constant: bool = False) -> Executable:
    """Build x -> double -> double … -> (+ bias) with two alternating places in the arena."""
    size = rows * ROW * 4
    shape = (rows, ROW)
    values = [Value("x", shape, "float32", Storage("input", 0))]
    nodes = []
    for index in range(n_nodes):
        values.append(Value(f"v{index}", shape, "float32", Storage("arena", (index % 2) * size)))
        nodes.append(Node(f"double{index}", "double", (index,), (index + 1,)))
    kernels, constants = {"double": double_kernel(rows, flops)}, ()
    if constant:
        bias = np.arange(rows * ROW, dtype=np.float32).reshape(shape)
        values += [
            Value("bias", shape, "float32", Storage("const", 0)),
            Value("y", shape, "float32", Storage("output", 0)),
        ]
        nodes.append(Node("add", "add", (n_nodes, n_nodes + 1), (n_nodes + 2,)))
        kernels["add"], constants = add_kernel(rows), (bias,)
    graph = Graph(tuple(values), tuple(nodes), (0,), (len(values) - 1,), 2 * size)
    return Executable(kernels, graph, constants, native_object(), {"note": "test"})
