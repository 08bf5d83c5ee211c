"""Single operators in the vendors' libraries, for the tables."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from autosched.driver.bench.programs import Program


def dense_model(m: int, k: int, n: int, seed: int = 0) -> onnx.ModelProto:
    """y = x @ w with a constant weight, as an ONNX model."""
    rng = np.random.default_rng(seed)
    weight = (rng.standard_normal((k, n)) / np.sqrt(k)).astype(np.float32)
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["x", "w"], ["y"])],
        "dense",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [m, k])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [m, n])],
        [numpy_helper.from_array(weight, "w")],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


def save(model: onnx.ModelProto, folder: Path, name: str) -> Path:
    """Write a model into a folder and give its path."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{name}.onnx"
    path.write_bytes(model.SerializeToString())
    return path


def dense_programs(m: int, k: int, n: int, threads: int) -> list[Program]:
    """The product in MKL (through PyTorch) and OpenBLAS (through NumPy), into arrays that are there already."""
    import torch
    from threadpoolctl import threadpool_limits

    rng = np.random.default_rng(0)
    x = rng.standard_normal((m, k)).astype(np.float32)
    w = rng.standard_normal((k, n)).astype(np.float32)
    y = np.empty((m, n), np.float32)
    tx, tw, ty = torch.from_numpy(x), torch.from_numpy(w), torch.empty(m, n)
    torch.set_num_threads(threads)
    threadpool_limits(threads, user_api="blas")
    return [
        Program("torch (MKL)", threads, lambda: torch.mm(tx, tw, out=ty)),
        Program("numpy (OpenBLAS)", threads, lambda: np.matmul(x, w, out=y)),
    ]
