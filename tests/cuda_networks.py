"""Networks at reduced sizes: whole on the emulator, and their kernels there and, thread by thread, through the CPU."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import nn

import autosched
from autosched.codegen import compile_func
from autosched.codegen.cuda.emulate.driver import EmulatorDriver
from autosched.codegen.cuda.emulate.kernel import run_kernel
from autosched.driver import extract_tasks
from autosched.errors import AutoschedError
from autosched.frontend.torch import from_exported_program
from autosched.ir import IRModule
from autosched.runtime.cuda.devices import use_driver
from autosched.runtime.cuda.kernel import CudaKernel
from autosched.target import Target
from autosched.task import Status, Task
from autosched.templates import apply_config, default_config
from autosched.testing.gpu import run_serially
from autosched.tuner.measure.check import check_output
from autosched.tuner.measure.make_reference import make_reference
from benchmarks import torch_models
from benchmarks.more_sequences import GPT, Recurrent
from benchmarks.more_vision import SqueezeExcite, Swin, TinyYolo, UNet, ViT, conv, head, mbconv

TARGET = Target("cuda -arch=sm_90a")
DTYPES = ("float32", "float16")
FAR = {"float32": 2e-5, "float16": 2e-2}  # of a result's largest value


@dataclass(frozen=True)
class Network:
    """A network with one input: a model and what is given to it."""

    make: Callable[[], torch.nn.Module]
    shape: tuple[int, ...]
    is_tokens: bool = False


def squeezed() -> nn.Module:
    """Global pools: between layers, where what they make scales all channels, and before the last one."""
    first = mbconv(8, 16, 8, 3, 1, nn.SiLU, SqueezeExcite(16, 4, nn.SiLU(), nn.Sigmoid()))
    second = mbconv(8, 24, 12, 5, 2, nn.Hardswish, SqueezeExcite(24, 8, nn.ReLU(), nn.Hardsigmoid()))
    return nn.Sequential(conv(3, 8, 3, 2, act=nn.SiLU()), first, second, head(12, 10))


NETWORKS = {
    "resnet18": Network(lambda: torch_models.resnet18(8, 10), (1, 3, 64, 64)),
    "resnet18, odd": Network(lambda: torch_models.resnet18(5, 7), (2, 3, 37, 29)),
    "mobilenet_v2": Network(lambda: torch_models.mobilenet_v2(4, 10), (1, 3, 64, 64)),
    "mobilenet_v2, odd": Network(lambda: torch_models.mobilenet_v2(5, 7), (2, 3, 45, 35)),
    "bert": Network(lambda: torch_models.bert(1, 64, 2), (1, 32, 64)),
    "bert, odd": Network(lambda: torch_models.bert(1, 33, 3), (2, 13, 33)),
    "gpt": Network(lambda: GPT(64, 2, 1, 100, 32), (1, 32), is_tokens=True),
    "gpt, odd": Network(lambda: GPT(27, 3, 1, 53, 21), (2, 19), is_tokens=True),
    "squeezed": Network(squeezed, (2, 3, 29, 37)),
    "yolo": Network(lambda: TinyYolo(4, 12), (1, 3, 64, 64)),
    "unet, odd": Network(lambda: UNet("bilinear", 4), (1, 3, 37, 29)),
    "vit": Network(lambda: ViT(32, 8, 48, 3, 1), (2, 3, 32, 32)),
    "swin": Network(lambda: Swin((2, 1), 32, 14, 7), (1, 3, 56, 56)),
    "lstm": Network(lambda: Recurrent(nn.LSTM, bidirectional=True), (2, 5, 64)),
}


def network_of(name: str, dtype: str) -> tuple[nn.Module, torch.Tensor]:
    """The network with seeded weights, and an input."""
    network = NETWORKS[name]
    torch.manual_seed(0)
    model = network.make().eval().to(getattr(torch, dtype))
    given = torch.randint(0, 50, network.shape) if network.is_tokens else torch.randn(network.shape)
    return model, given if network.is_tokens else given.to(getattr(torch, dtype))


def imported(model: nn.Module, given: torch.Tensor) -> IRModule:
    """The network as this package takes it."""
    made: Any = from_exported_program(torch.export.export(model, (given,)), unwrap_unit_return_tuple=True)
    assert isinstance(made, IRModule), "its weights are constants"
    return made


def tasks_of(name: str, dtype: str) -> tuple[Task, ...]:
    """The kernels that a network is made of for a GPU, equal ones once."""
    return extract_tasks(imported(*network_of(name, dtype)), TARGET)


def problems_of_whole(name: str, dtype: str) -> Iterator[str]:
    """What is wrong with a network as it is built and run, in words: its result beside PyTorch's in float64."""
    model, given = network_of(name, dtype)
    try:
        with use_driver(EmulatorDriver):
            built = autosched.build(imported(model, given), target=TARGET, records=[])
            found = built(given.numpy()).numpy().astype(np.float64)
    except AutoschedError as error:
        yield f"{name}: {type(error).__name__}: {error.line}"
        return
    with torch.no_grad():
        expected = model.double()(given if NETWORKS[name].is_tokens else given.double()).numpy()
    far = np.abs(found - expected).max() / np.abs(expected).max()
    if not far <= FAR[dtype]:
        yield f"{name}: results are {far:.1e} of the largest from those in float64"


def problems_of(task: Task) -> Iterator[str]:
    """What is wrong with a task's default kernel, in words; nothing where both ways give the right results."""
    reference = make_reference(task.func)
    config = default_config(task.func, TARGET)
    applied = apply_config(task.func, config, TARGET)
    scheduled = applied.func

    def verdict(outputs: list[np.ndarray], way: str) -> Iterator[str]:
        for k, (found, expected) in enumerate(zip(outputs, reference.outputs, strict=True)):
            judged = check_output(f"output {k}", found, expected.reshape(found.shape), reference.rounding[k])
            if judged.status is not Status.OK:
                yield f"{task.title}, {config}, {way}: {judged.text}"

    def arguments() -> tuple[list[np.ndarray], list[np.ndarray]]:
        outputs = [b for b in task.func.buffers][len(reference.inputs) :]
        made = [np.full(b.const_shape(), np.nan if "float" in b.dtype else 85, b.dtype) for b in outputs]
        given = [np.array(a if p is None else p.pack(a)) for a, p in zip(reference.inputs, applied.packs, strict=False)]
        return [*given, *made], made

    try:
        arrays, outputs = arguments()
        run_serially(scheduled, *arrays)
        yield from verdict(outputs, "on the CPU")
        kernel = compile_func(scheduled, TARGET, name="kernel").kernel
        assert isinstance(kernel, CudaKernel), "it was compiled for a GPU"
        for order in ("late", "ahead"):
            arrays, outputs = arguments()
            run_kernel(kernel, arrays, order=order)
            yield from verdict(outputs, f"on the emulator, {order}")
    except AutoschedError as error:
        yield f"{task.title}, {config}: {type(error).__name__}: {error.line}"
