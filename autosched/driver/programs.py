"""Things that run a model, ours and other runtimes', behind one small interface, for `bench`."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from autosched.errors import UsageError
from autosched.runtime import Executable, GraphModule

INTEGER_LIMIT = 2  # integer inputs are often indices or masks: 0 and 1 are in range for all of them


@dataclass(frozen=True)
class Program:
    """A model made ready: `run()` runs it once on inputs that are set already."""

    name: str
    threads: int
    run: Callable[[], object]


def random_inputs(specs: Mapping[str, tuple[tuple[int, ...], str]], seed: int = 0) -> dict[str, np.ndarray]:
    """Seeded inputs by name from (shape, dtype): normal numbers, small integers."""
    rng = np.random.default_rng(seed)
    arrays = {}
    for name, (shape, dtype) in specs.items():
        if np.issubdtype(np.dtype(dtype), np.floating):
            arrays[name] = rng.standard_normal(shape).astype(dtype)
        else:
            arrays[name] = rng.integers(0, INTEGER_LIMIT, shape).astype(dtype)
    return arrays


def input_specs(executable: Executable) -> dict[str, tuple[tuple[int, ...], str]]:
    """Shape and dtype of each input by name."""
    return {v.name: (v.shape, v.dtype) for v in executable.inputs}


def autosched_program(name: str, executable: Executable, threads: int) -> Program:
    """A built model in the graph executor."""
    module = GraphModule(executable, threads=threads)
    for key, value in random_inputs(input_specs(executable)).items():
        module.set_input(key, value)
    return Program(name, threads, module.run)


def _fixed(shape: Sequence[Any], name: str, shapes: Mapping[str, tuple[int, ...]] | None) -> tuple[int, ...]:
    if shapes and name in shapes:
        return tuple(shapes[name])
    if not all(isinstance(d, int) and d > 0 for d in shape):
        raise UsageError(f"input '{name}' has dynamic dimensions {list(shape)}", hint=f'give --shapes "{name}:1x…"')
    return tuple(int(d) for d in shape)


def onnxruntime_program(path: Path, threads: int, shapes: Mapping[str, tuple[int, ...]] | None) -> Program:
    """The model in ONNX Runtime, with its inputs bound so that a run does no more than compute."""
    ort = _import("onnxruntime")
    options = ort.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    options.log_severity_level = 3
    session = ort.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    dtypes = {
        "tensor(float)": "float32",
        "tensor(int64)": "int64",
        "tensor(int32)": "int32",
        "tensor(double)": "float64",
    }
    specs = {i.name: (_fixed(i.shape, i.name, shapes), dtypes.get(i.type, "float32")) for i in session.get_inputs()}
    binding = session.io_binding()
    kept = random_inputs(specs)
    for name, array in kept.items():
        binding.bind_cpu_input(name, array)
    for output in session.get_outputs():
        binding.bind_output(output.name, "cpu")
    return Program("onnxruntime", threads, lambda: (session.run_with_iobinding(binding), kept)[0])


def openvino_program(path: Path, threads: int, shapes: Mapping[str, tuple[int, ...]] | None) -> Program:
    """The model in OpenVINO, latency mode, float32."""
    ov = _import("openvino")
    core = ov.Core()
    model = core.read_model(str(path))
    if shapes:
        model.reshape({name: list(shape) for name, shape in shapes.items()})
    settings = {"INFERENCE_NUM_THREADS": threads, "PERFORMANCE_HINT": "LATENCY", "INFERENCE_PRECISION_HINT": "f32"}
    compiled = core.compile_model(model, "CPU", settings)
    request = compiled.create_infer_request()
    specs = {p.get_any_name(): (tuple(p.get_shape()), p.get_element_type().to_dtype().name) for p in compiled.inputs}
    for name, array in random_inputs(specs).items():
        request.set_tensor(name, ov.Tensor(array))
    return Program("openvino", threads, request.infer)


PEERS: Mapping[str, Callable[[Path, int, Mapping[str, tuple[int, ...]] | None], Program]] = {
    "onnxruntime": onnxruntime_program,
    "openvino": openvino_program,
}


def peer_program(name: str, path: Path, threads: int, shapes: Mapping[str, tuple[int, ...]] | None = None) -> Program:
    """The model of an .onnx file in another runtime. Raises UsageError where that cannot be."""
    if name not in PEERS:
        raise UsageError(f"{name} cannot run an .onnx file", hint=f"use --with {','.join(PEERS)}")
    return PEERS[name](path, threads, shapes)


def _import(package: str) -> Any:
    try:
        return importlib.import_module(package)
    except ImportError:
        raise UsageError(f"{package} is not installed", hint=f"pip install {package}") from None
