"""What the wrong uses of tests/wrong_uses.txt start from: the names of a script, and small things to misuse."""

# ruff: noqa: F401
from __future__ import annotations

import json
from typing import Any

import numpy as np

import autosched
import autosched as tvm
from autosched import autotvm, relax, relay, te, tir, topi
from autosched import meta_schedule as ms
from autosched.contrib import graph_executor
from autosched.contrib.debugger import debug_executor
from autosched.relax.frontend import nn
from autosched.runtime.vm import VirtualMachine as RelayVM
from autosched.script import ir as I
from autosched.script import relax as R
from autosched.script import tir as T

dev = tvm.cpu(0)


def vector(n: Any = 8) -> Any:
    A = te.placeholder((n,), name="A")
    B = te.compute((n,), lambda i: A[i] + 1.0, name="B")
    return A, B


def product() -> Any:
    A = te.placeholder((8, 8), name="A")
    B = te.placeholder((8, 8), name="B")
    k = te.reduce_axis((0, 8), name="k")
    return A, B, te.compute((8, 8), lambda i, j: te.sum(A[i, k] * B[k, j], axis=k), name="C")


def chain() -> Any:
    A = te.placeholder((8, 8), name="A")
    B = te.compute((8, 8), lambda i, j: A[i, j] * 2.0, name="B")
    C = te.compute((8, 8), lambda i, j: B[i, j] + 1.0, name="C")
    return tir.Schedule(te.create_prim_func([A, C]))


def matmul() -> Any:
    return tir.Schedule(te.create_prim_func(list(product())))


def relax_var(*shape: Any, dtype: Any = "float32", name: Any = "x") -> Any:
    return relax.Var(name, relax.TensorStructInfo(shape, dtype))


def relu_module() -> Any:
    bb = relax.BlockBuilder()
    x = relax_var(2, 3)
    with bb.function("main", [x]):
        bb.emit_func_output(bb.emit(relax.op.nn.relu(x)))
    return bb.get()


def relu_vm() -> Any:
    return relax.VirtualMachine(relax.build(relu_module(), "llvm"), dev)


def relay_module() -> Any:
    x = relay.var("x", shape=(2, 3), dtype="float32")
    w = relay.var("w", shape=(4, 3), dtype="float32")
    return tvm.IRModule.from_expr(relay.Function([x, w], relay.nn.relu(relay.nn.dense(x, w))))


def graph() -> Any:
    lib = relay.build(relay_module(), "llvm", params={"w": np.ones((4, 3), "float32")})
    return graph_executor.GraphModule(lib["default"](dev))


def relay_vm() -> Any:
    exe = relay.vm.compile(relay_module(), "llvm", params={"w": np.ones((4, 3), "float32")})
    return RelayVM(exe, dev)


@autotvm.template("wrong/vector")
def tiled_vector(n: Any) -> Any:
    A, B = vector(n)
    s = te.create_schedule(B.op)
    cfg = autotvm.get_config()
    cfg.define_split("tile", B.op.axis[0], num_outputs=2)
    cfg["tile"].apply(s, B, B.op.axis[0])
    return s, [A, B]
