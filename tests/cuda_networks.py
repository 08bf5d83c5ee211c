"""The kernels of whole networks at reduced sizes: each through the CPU thread by thread and on the emulator."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import torch

from autosched.codegen import compile_func
from autosched.codegen.cuda.emulate.kernel import run_kernel
from autosched.driver import extract_tasks
from autosched.errors import AutoschedError
from autosched.frontend.torch import from_exported_program
from autosched.runtime.cuda.kernel import CudaKernel
from autosched.target import Target
from autosched.task import Status, Task
from autosched.templates import apply_config, default_config
from autosched.testing.gpu import run_serially
from autosched.tuner.measure.check import check_output
from autosched.tuner.measure.make_reference import make_reference
from benchmarks import torch_models
from benchmarks.more_sequences import GPT

TARGET = Target("cuda -arch=sm_90a")
DTYPES = ("float32", "float16")


@dataclass(frozen=True)
class Network:
    """A network with one input: a model and what is given to it."""

    make: Callable[[], torch.nn.Module]
    shape: tuple[int, ...]
    is_tokens: bool = False


NETWORKS = {
    "resnet18": Network(lambda: torch_models.resnet18(8, 10), (1, 3, 64, 64)),
    "resnet18, odd": Network(lambda: torch_models.resnet18(5, 7), (2, 3, 37, 29)),
    "mobilenet_v2": Network(lambda: torch_models.mobilenet_v2(4, 10), (1, 3, 64, 64)),
    "mobilenet_v2, odd": Network(lambda: torch_models.mobilenet_v2(5, 7), (2, 3, 45, 35)),
    "bert": Network(lambda: torch_models.bert(1, 64, 2), (1, 32, 64)),
    "bert, odd": Network(lambda: torch_models.bert(1, 33, 3), (2, 13, 33)),
    "gpt": Network(lambda: GPT(64, 2, 1, 100, 32), (1, 32), is_tokens=True),
    "gpt, odd": Network(lambda: GPT(27, 3, 1, 53, 21), (2, 19), is_tokens=True),
}


def tasks_of(name: str, dtype: str) -> tuple[Task, ...]:
    """The kernels that a network is made of for a GPU, equal ones once."""
    network = NETWORKS[name]
    torch.manual_seed(0)
    model = network.make().eval().to(getattr(torch, dtype))
    given = torch.zeros(network.shape, dtype=torch.int64 if network.is_tokens else getattr(torch, dtype))
    imported = from_exported_program(torch.export.export(model, (given,)), unwrap_unit_return_tuple=True)
    return extract_tasks(imported, TARGET)


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
