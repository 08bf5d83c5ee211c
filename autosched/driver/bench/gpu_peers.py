"""Other runtimes on a GPU, for `bench`: a run ends when the device has finished."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

from autosched.driver.bench.programs import Program, Ranges, Shapes, import_peer, random_inputs, session_specs
from autosched.errors import UsageError

if TYPE_CHECKING:
    import torch

    from autosched.frontend.torch.network import TorchNetwork


def onnxruntime_cuda_program(path: Path, threads: int, shapes: Shapes | None, ranges: Ranges | None) -> Program:
    """The model in ONNX Runtime's CUDA provider, inputs and outputs in the device's memory.

    Raises UsageError where this build of it has no such provider.
    """
    ort = import_peer("onnxruntime")
    if "CUDAExecutionProvider" not in ort.get_available_providers():
        raise UsageError("this onnxruntime has no CUDA provider", hint="pip install onnxruntime-gpu")
    options = ort.SessionOptions()
    options.log_severity_level = 3
    providers = [("CUDAExecutionProvider", {"use_tf32": "0"}), "CPUExecutionProvider"]
    session = ort.InferenceSession(str(path), options, providers=providers)
    if "CUDAExecutionProvider" not in session.get_providers():  # it falls back to the CPU with a warning
        raise UsageError(
            "onnxruntime's CUDA provider does not start", hint="its versions of CUDA and cuDNN are missing"
        )
    binding = session.io_binding()
    for name, value in random_inputs(session_specs(session, shapes), ranges=ranges).items():
        binding.bind_ortvalue_input(name, ort.OrtValue.ortvalue_from_numpy(value, "cuda", 0))
    for output in session.get_outputs():
        binding.bind_output(output.name, "cuda")

    def run() -> None:
        session.run_with_iobinding(binding)
        binding.synchronize_outputs()

    return Program("onnxruntime-cuda", threads, run)


def torch_cuda_program(path: Path, threads: int, shapes: Shapes | None, ranges: Ranges | None) -> Program:
    """The imported graph, operator by operator, in eager PyTorch on the device."""
    torch, network, inputs = _on_device(path, shapes, ranges)
    return Program("torch-cuda", threads, _to_the_end(torch, network, inputs))


def torch_compile_program(path: Path, threads: int, shapes: Shapes | None, ranges: Ranges | None) -> Program:
    """The imported graph by `torch.compile(mode="max-autotune")` on the device."""
    torch, network, inputs = _on_device(path, shapes, ranges)
    compiled = torch.compile(lambda *given: network(*given), mode="max-autotune")
    return Program("torch-compile", threads, _to_the_end(torch, compiled, inputs))


def _on_device(
    path: Path, shapes: Shapes | None, ranges: Ranges | None
) -> tuple[ModuleType, TorchNetwork, list[torch.Tensor]]:
    """(PyTorch, the network, its inputs). Raises UsageError where PyTorch sees no GPU."""
    from autosched.driver.model_files import load_model
    from autosched.frontend.torch.network import TorchNetwork
    from autosched.relax.struct_info import tensor_infos

    torch = import_peer("torch")
    if not torch.cuda.is_available():
        raise UsageError("PyTorch sees no CUDA device here", hint="torch.cuda.is_available() says why in its warnings")
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    module = load_model(path, shapes)
    infos = {p.name: tensor_infos(p.struct_info)[0] for p in module["main"].params}
    specs = {name: (info.static_shape, info.dtype) for name, info in infos.items()}
    inputs = [torch.from_numpy(a).cuda() for a in random_inputs(specs, ranges=ranges).values()]
    return torch, TorchNetwork(module, device="cuda"), inputs


def _to_the_end(torch: ModuleType, call: Callable[..., object], inputs: list[object]) -> Callable[[], object]:
    def run() -> object:
        result = call(*inputs)
        torch.cuda.synchronize()
        return result

    return run
