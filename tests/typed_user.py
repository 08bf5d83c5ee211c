"""A user's script as a strict type checker reads it: `make lint` checks it; each line marked wrong has to be wrong."""

from __future__ import annotations

from typing import assert_type

import numpy as np

import autosched
from autosched import TuneOptions, relax, te, tir
from autosched.contrib.graph_executor import GraphModule
from autosched.relax.frontend.onnx import from_onnx


def tune_and_build(path: str) -> float:
    report = autosched.tune(path, records="tuned.db", budget="10m", options=TuneOptions(trials=5))
    assert_type(TuneOptions(budget="10m").budget_s, float | None)
    assert_type(report, autosched.TuneReport)
    gain = sum(task.weight for task in report.tasks)
    executable = autosched.build(path, records="tuned.db", threads=2)
    if not isinstance(executable, autosched.Executable):
        raise TypeError("compiled when it is called")
    result = executable(np.zeros((1, 4), "float32"))
    first = result[0] if isinstance(result, tuple) else result
    assert_type(first, autosched.nd.NDArray)
    executable.save("model.asx")
    for kernel in executable.kernels.values():
        assert_type(kernel.source, str)
    return gain


def names_of_tvm(path: str) -> tuple[te.Tensor, autosched.IRModule]:
    module = from_onnx(path)
    assert_type(module, autosched.IRModule)
    a = te.placeholder((4, 4), name="A")
    b = te.compute((4, 4), lambda i, j: a[i, j] + 1, name="B")
    function = te.create_prim_func([a, b])
    assert_type(function, tir.PrimFunc)
    schedule = tir.Schedule(function)
    block = schedule.get_block("B")
    i, _ = schedule.get_loops(block)
    schedule.parallel(i)
    relax.transform.LegalizeOps()(module)
    GraphModule(autosched.load("model.asx")).run()
    assert_type(autosched.Target("cpu").is_cpu, bool)
    return a, module


def in_onnx_runtime_s_words(path: str) -> list[np.ndarray]:
    session = autosched.onnx.InferenceSession(path, providers=["CPUExecutionProvider"], accuracy="strict")
    assert_type(session.get_inputs()[0].name, str)
    return session.run(None, {"x": np.zeros((1, 4), "float32")})


def wrong() -> None:
    TuneOptions(trails=3)  # type: ignore[call-arg]
    TuneOptions(trials="many")  # type: ignore[arg-type]
    autosched.biuld("model.onnx")  # type: ignore[attr-defined]
    autosched.build("model.onnx", thread=2)  # type: ignore[call-overload]
    autosched.tune("model.onnx", budget=[3])  # type: ignore[arg-type]
    autosched.build("model.onnx").savee("model.asx")  # type: ignore[union-attr]
    autosched.onnx.InferenceSession("model.onnx", acuracy="strict")  # type: ignore[call-arg]
    autosched.tune("model.onnx", records=3)  # type: ignore[arg-type]
    te.placehodler((4,))  # type: ignore[attr-defined]
    te.placeholder(shape="many", name=3)  # type: ignore[arg-type]
    from autosched import TuneOption  # type: ignore[attr-defined]  # noqa: F401
