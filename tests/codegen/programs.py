"""Small scheduled functions that several tests of code generation compile, and a way to run a kernel."""

from __future__ import annotations

import ctypes
import dataclasses
import math
import operator
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from autosched.codegen import CompiledKernel
from autosched.ir.node import FrozenDict
from autosched.runtime.loader import load_objects
from autosched.tir import (
    REDUCE,
    SPATIAL,
    Block,
    BlockRealize,
    Buffer,
    BufferStore,
    For,
    IntImm,
    IterVar,
    LoopKind,
    PrimExpr,
    PrimFunc,
    Range,
    SeqStmt,
    Stmt,
    Var,
    all_of,
    const,
    make_root,
    maximum,
)  # fmt: skip
from autosched.tir.functor import rewrite


def aligned(shape: Sequence[int], dtype: str = "float32", fill: int = 0xCD) -> np.ndarray[Any, Any]:
    """An array at a multiple of 64 bytes, full of `fill` bytes."""
    size = int(np.prod(shape)) * np.dtype(dtype).itemsize
    raw = np.full(size + 64, fill, np.uint8)
    start = -raw.ctypes.data % 64
    return raw[start : start + size].view(dtype).reshape(shape)


def run(compiled: CompiledKernel, arrays: Sequence[np.ndarray[Any, Any]], pieces: int = 1) -> None:
    """Run all phases on the arrays, each in some pieces one after the other, as different workers would."""
    kernel = compiled.kernel
    addresses = load_objects([kernel])
    scratch = aligned((kernel.scratch_size(pieces) + 64,), "uint8")
    given = (*(a.ctypes.data for a in arrays), scratch.ctypes.data, *kernel.numbers)
    slots = (ctypes.c_void_p * len(given))(*given)
    prototype = ctypes.CFUNCTYPE(None, ctypes.c_void_p, *[ctypes.c_int64] * 3)
    for phase in kernel.phases:
        body = prototype(addresses[phase.symbol])
        cuts = np.linspace(0, phase.n_tasks, pieces + 1).astype(int)
        for worker, (first, last) in enumerate(zip(cuts, cuts[1:])):
            body(ctypes.addressof(slots), int(first), int(last), worker)


def loop(
    name: str,
    extent: int,
    body: Callable[[Var], Stmt],
    kind: str = "serial",
    annotations: Mapping[str, Any] | None = None,
) -> For:
    """A loop from 0; `body` gets its variable."""
    var = Var(name)
    return For(var, const(0), const(extent), LoopKind(kind), body(var), annotations=FrozenDict(annotations or {}))


def buffer(name: str, *shape: int, dtype: str = "float32", scope: str = "global") -> Buffer:
    return Buffer(name, tuple(const(s) for s in shape), dtype, scope=scope)


def function(buffers: Sequence[Buffer], body: Stmt, allocated: Sequence[Buffer] = ()) -> PrimFunc:
    """A PrimFunc whose parameters are `buffers`; without `allocated`, `body` may be lowered already."""
    handles = {Var(f"var_{b.name}", "handle"): b for b in buffers}
    attrs = FrozenDict({"global_symbol": "main", "tir.noalias": True})
    return PrimFunc(tuple(handles), FrozenDict(handles), make_root(body, tuple(allocated)), attrs=attrs)


def with_kinds(func: PrimFunc, **kinds: str) -> PrimFunc:
    """The function with loops of these names run as said: i="parallel"."""

    def step(node: Any) -> Any:
        if isinstance(node, For) and node.loop_var.name in kinds:
            return dataclasses.replace(node, kind=LoopKind(kinds[node.loop_var.name]))
        return node

    return rewrite(func, step)


def block(
    name: str, domain: Sequence[tuple[int, str]], values: Sequence[PrimExpr], predicate: PrimExpr,
    body: Callable[..., Stmt], init: Callable[..., Stmt] | None = None,
) -> BlockRealize:  # fmt: skip
    """A block over iteration variables of the given (extent, kind)."""
    variables = [Var(f"v{i}") for i in range(len(domain))]
    iter_vars = tuple(IterVar(Range(const(0), const(n)), v, k) for v, (n, k) in zip(variables, domain, strict=True))
    start = None if init is None else init(*variables)
    return BlockRealize(tuple(values), predicate, Block(iter_vars, (), (), name, body(*variables), start))


def matmul(m: int, n: int, k: int, rows: int, vectors: int, lanes: int) -> PrimFunc:
    """C = relu(A @ B + bias) in register tiles of rows x (vectors * lanes), B packed [n / width, k, width]."""
    width = vectors * lanes
    a, packed = buffer("A", m, k), buffer("B_packed", -(-n // width), k, width)
    bias, c = buffer("bias", n), buffer("C", m, n)
    acc = buffer("C_local", m, n, scope="local")

    def tile(i_o: Var, j_o: Var) -> Stmt:
        def each(name: str, body: Callable[..., Stmt], k_value: Var | None = None) -> Stmt:
            def element(i: Var, j: Var, lane: Var) -> Stmt:
                row, column = i_o * rows + i, j_o * width + j * lanes + lane
                domain = [(m, SPATIAL), (n, SPATIAL)] + ([] if k_value is None else [(k, REDUCE)])
                values = [row, column] + ([] if k_value is None else [k_value])
                return block(name, domain, values, all_of(row < m, column < n), body)

            def columns(i: Var) -> Stmt:
                return loop(
                    "j", vectors, lambda j: loop("lane", lanes, lambda v: element(i, j, v), "vectorized"), "unrolled"
                )

            return loop("i", rows, columns, "unrolled")

        start = each("init", lambda i, j: BufferStore(acc, const(0.0), (i, j)))
        update = loop("k", k, lambda kk: each("update", multiply_add, kk))
        finish = each("epilogue", lambda i, j: BufferStore(c, maximum(acc[i, j] + bias[j], 0.0), (i, j)))
        return SeqStmt((start, update, finish))

    def multiply_add(i: Var, j: Var, kk: Var) -> Stmt:
        return BufferStore(acc, acc[i, j] + a[i, kk] * packed[j // width, kk, j % width], (i, j))

    body = loop("j_o", -(-n // width), lambda j_o: loop("i_o", -(-m // rows), lambda i_o: tile(i_o, j_o)), "parallel")
    return function([a, packed, bias, c], body, [acc])


def pack(b: np.ndarray[Any, Any], width: int) -> np.ndarray[Any, Any]:
    """B as `matmul` wants it, padded with zeros."""
    k, n = b.shape
    panels = -(-n // width)
    padded = np.zeros((k, panels * width), b.dtype)
    padded[:, :n] = b
    result = aligned((panels, k, width), str(b.dtype))
    result[:] = padded.reshape(k, panels, width).transpose(1, 0, 2)
    return result


TRUE = IntImm(1, "bool")


def apart(steps: Iterable[Sequence[int]], of: Buffer) -> list[int]:
    """How many elements steps along the last dimensions of a buffer without gaps are."""
    strides = [math.prod(of.const_shape()[d + 1 :]) for d in range(of.ndim)]
    return [sum(map(operator.mul, step, strides[-len(step) :])) for step in steps]
