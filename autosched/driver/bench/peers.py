"""The other runtimes that `bench --with` knows, by name."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

from autosched.driver.bench.gpu_peers import onnxruntime_cuda_program, torch_compile_program, torch_cuda_program
from autosched.driver.bench.programs import (
    Program,
    Ranges,
    Shapes,
    onnxruntime_program,
    openvino_program,
    torch_program,
)
from autosched.errors import UsageError

PEERS: Mapping[str, Callable[[Path, int, Shapes | None, Ranges | None], Program]] = {
    "onnxruntime": onnxruntime_program,
    "openvino": openvino_program,
    "torch": torch_program,
    "onnxruntime-cuda": onnxruntime_cuda_program,
    "torch-cuda": torch_cuda_program,
    "torch-compile": torch_compile_program,
}


def peer_program(
    name: str, path: Path, threads: int, shapes: Shapes | None = None, ranges: Ranges | None = None
) -> Program:
    """The model of an .onnx file in another runtime; `ranges` as in `random_inputs`.

    Raises UsageError where that cannot be.
    """
    if name not in PEERS:
        raise UsageError(f"{name} cannot run an .onnx file", hint=f"use --with {','.join(PEERS)}")
    return PEERS[name](path, threads, shapes, ranges)
