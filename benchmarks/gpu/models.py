"""Sections of whole models, and of what the executor takes."""

from __future__ import annotations

import copy
import functools
import time
from collections.abc import Iterable
from typing import Any

import autosched
from autosched import topi
from autosched.records import FallbackContext
from autosched.runtime import cuda
from benchmarks.gpu.bench import Bench, Case, Prepared, Row
from benchmarks.gpu.timing import in_turn, torch_replayed, torch_seconds
from benchmarks.gpu.workloads import of

# In the order of what they tell; compiling the peer takes most of the time, so the last ones may be left out.
MODELS = (
    ("resnet50", 1, "float16"), ("bert", 1, "float16"), ("gpt", 1, "float16"), ("resnet50", 1, "float32"),
    ("bert", 32, "float16"), ("resnet50", 32, "float16"), ("mobilenet_v2", 1, "float16"), ("resnet18", 1, "float16"),
    ("gpt", 32, "float16"), ("bert", 1, "float32"), ("gpt", 1, "float32"), ("mobilenet_v2", 1, "float32"),
    ("resnet18", 1, "float32"), ("mobilenet_v2", 32, "float16"), ("resnet18", 32, "float16"), ("bert", 32, "float32"),
    ("resnet50", 32, "float32"), ("gpt", 32, "float32"), ("mobilenet_v2", 32, "float32"), ("resnet18", 32, "float32"),
)  # fmt: skip


def models(bench: Bench) -> Iterable[Case]:
    """All beside PyTorch as it is, in a CUDA graph; then the first ones beside what its compiler makes of them."""
    chosen = (("mlp", 1, "float32"), ("mlp", 1, "float16")) if bench.is_tiny else MODELS
    for compiled in (False, True):
        for name, batch, dtype in chosen:
            case = f"{name} batch {batch} {dtype}"
            yield Case(case, functools.partial(_model, name=name, batch=batch, dtype=dtype, compiled=compiled))


def _model(bench: Bench, name: str, batch: int, dtype: str, *, compiled: bool) -> Iterable[Row]:
    """A model beside PyTorch's. The note has the largest error of both against float64, over the largest result."""
    try:
        import torch

        from autosched.frontend.torch import from_exported_program
    except ImportError as error:
        yield Row(name, note=f"{error.name} is missing")
        return
    module, example = network(torch, name, batch, dtype)
    imported = from_exported_program(torch.export.export(module, (example,)), unwrap_unit_return_tuple=True)
    model = autosched.build(imported, target=bench.target, records=FallbackContext())
    if bench.only_builds:
        raise Prepared
    executor = model.create_executor()
    executor.set_input(model.inputs[0].name, example.numpy())
    case, note, ours = f"{name} batch {batch} {dtype}", f"{len(model.kernels)} kernels", executor.program.seconds
    if bench.torch is None:
        yield Row(case, in_turn(bench, ours, None)[0], note=note)
        return
    module, given = module.cuda(), example.cuda()
    with torch.no_grad():
        executor.run()
        exact = copy.deepcopy(module).double()(given.double() if given.is_floating_point() else given)
        results = torch.from_dlpack(executor.get_output(0)), module(given)
        own, other = (float((x.double() - exact).abs().max() / exact.abs().max()) for x in results)
        note += f", error {own:.1e}, the peer's {other:.1e}" + ("" if own <= 2 * other + 1e-4 else ": WRONG")
        if not compiled:
            ours_s, theirs = in_turn(bench, ours, torch_replayed(torch, lambda: module(given)))
            yield Row(f"{case} / in a CUDA graph", ours_s, theirs, note=note)
            return
        made = torch.compile(module, mode="max-autotune")
        ours_s, theirs = in_turn(bench, ours, lambda number: torch_seconds(torch, lambda: made(given), number))
        yield Row(f"{case} / max-autotune", ours_s, theirs, note=note)


def network(torch: Any, name: str, batch: int, dtype: str) -> tuple[Any, Any]:
    """A module with random weights and an input; what batches are normalised by is what this one has."""
    from benchmarks import torch_models
    from benchmarks.more_sequences import GPT

    torch.manual_seed(0)
    if name == "gpt":
        module, example = GPT(768, 12, 4, 4000, 128), torch.randint(4000, (batch, 128))
        return module.eval().to(getattr(torch, dtype)), example
    module, example = torch_models.MODELS[name][0](), torch.randn(torch_models.example(name, batch).shape)
    for part in module.modules():
        if isinstance(part, torch.nn.BatchNorm2d):
            part.momentum = 1.0  # of what it has seen, the last alone
    with torch.no_grad():
        module.train()(example[:2] if batch > 1 else torch.cat((example, torch.randn(example.shape))))
    return module.eval().to(getattr(torch, dtype)), example.to(getattr(torch, dtype))


def overhead(bench: Bench) -> Iterable[Case]:
    yield Case("a graph of 100 kernels", _overhead)


def _overhead(bench: Bench) -> list[Row]:
    """The executor's own part of a chain of kernels that do next to nothing: the host's time of giving them out."""
    from autosched.runtime.cuda.program import CudaProgram
    from autosched.runtime.graph import Graph, Node, Storage, Value

    n, size = 4 if bench.is_tiny else 100, 64
    module = autosched.build(of((size,), topi.exp), target=bench.target, records=FallbackContext())
    (key, kernel), *_ = module.kernels.items()
    places = [Storage("input", 0), *(Storage("arena", 256 * (i % 2)) for i in range(n - 1)), Storage("output", 0)]
    values = tuple(Value(f"v{i}", (size,), "float32", place) for i, place in enumerate(places))
    nodes = tuple(Node(f"n{i}", key, (i,), (i + 1,)) for i in range(n))
    program = CudaProgram(Graph(values, nodes, (0,), (n,), 512), {key: kernel}, (), cuda(0))
    program.allocate(0)
    program.allocate(n)
    for _ in range(3):
        program.run()
    program.synchronize()
    start, repeats = time.perf_counter(), 2 if bench.is_tiny else 50
    for _ in range(repeats):
        program.run()
    host_s = (time.perf_counter() - start) / repeats / n
    program.synchronize()
    return [Row("host, a kernel", host_s), Row("device, a kernel", program.seconds(repeats) / repeats / n)]
