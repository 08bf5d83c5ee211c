"""`make bench-more`: models that are in no other table, with sizes nobody has tuned for, against every peer.

    python -m benchmarks.more_models [--only unet,gpt] [--threads 1] [--time 1] [--budget 1800]
    python -m benchmarks.more_models --save FOLDER [--only unet]

Ours untuned and with the shipped configurations, ONNX Runtime, OpenVINO and eager PyTorch, interleaved. Each model's
error against float64 stands beside its time, as a share of the largest output; ONNX Runtime's too.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import io
import logging
import math
import os
import tempfile
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx
import torch
from torch import Tensor, nn

import autosched
from autosched.driver import load_model
from autosched.driver.bench.peers import peer_program
from autosched.driver.bench.programs import (
    Program,
    autosched_program,
    input_specs,
    known_ranges,
    random_inputs,
)
from autosched.driver.bench.rounds import Timing, compare, measure
from autosched.errors import AutoschedError
from autosched.relax.evaluate import evaluate
from autosched.runtime import Executable, GraphModule
from benchmarks import more_sequences as sequences
from benchmarks import more_vision as vision
from benchmarks.machine import Table, describe, result_file, write
from benchmarks.models import CACHE, get_model
from benchmarks.records import records_for

PEERS = ("onnxruntime", "openvino", "torch")
LIGHT = ("alexnet", "densenet121", "shufflenet", "zfnet512")


@dataclass(frozen=True)
class Case:
    """A model and the shapes of its inputs; (shape, n) stands for integers below n."""

    name: str
    make: Callable[[], nn.Module] | None
    shapes: tuple[tuple[int, ...] | tuple[tuple[int, ...], int], ...] = ()

    @property
    def label(self) -> str:
        return " ".join([self.name, *("x".join(map(str, _shape(s))) for s in self.shapes[:1])])

    def example(self) -> tuple[Tensor, ...]:
        """Inputs; their values do not matter to the exporter."""
        generator = torch.Generator().manual_seed(0)
        return tuple(
            torch.randint(0, shape[1], shape[0], generator=generator)  # type: ignore[arg-type]
            if _is_integer(shape)
            else torch.randn(_shape(shape), generator=generator)
            for shape in self.shapes
        )


def _is_integer(shape: tuple[object, ...]) -> bool:
    return isinstance(shape[0], tuple)


def _shape(shape: tuple[object, ...]) -> tuple[int, ...]:
    return shape[0] if _is_integer(shape) else shape  # type: ignore[return-value]


def images(batch: int, height: int, width: int, channels: int = 3) -> tuple[tuple[int, ...], ...]:
    return ((batch, channels, height, width),)


CASES = (
    Case("efficientnet_b0", vision.efficientnet_b0, images(1, 224, 224)),
    Case("efficientnet_b0", vision.efficientnet_b0, images(8, 160, 160)),
    Case("mobilenet_v3", vision.mobilenet_v3_small, images(1, 224, 224)),
    Case("mobilenet_v3", vision.mobilenet_v3_small, images(8, 160, 160)),
    Case("convnext_tiny", vision.convnext_tiny, images(1, 224, 224)),
    Case("vit_s16", vision.vit_s16, images(1, 224, 224)),
    Case("swin", vision.swin, images(1, 224, 224)),
    Case("resnext50", vision.resnext50, images(1, 224, 224)),
    Case("regnety_400mf", vision.regnety_400mf, images(1, 224, 224)),
    Case("regnety_400mf", vision.regnety_400mf, images(8, 97, 131)),
    Case("ghostnet", vision.ghostnet, images(1, 160, 160)),
    Case("ghostnet", vision.ghostnet, images(1, 97, 131)),
    Case("unet", vision.unet, images(1, 160, 160)),
    Case("unet_bilinear", vision.unet_bilinear, images(1, 97, 131)),
    Case("espcn", vision.espcn, images(1, 97, 131, 1)),
    Case("tiny_yolo", vision.TinyYolo, images(1, 160, 160)),
    Case("wavenet", sequences.WaveNet, ((1, 1, 1000),)),
    Case("tcn", sequences.TCN, ((1, 16, 512),)),
    Case("tcn", sequences.TCN, ((8, 16, 200),)),
    Case("gpt", sequences.GPT, (((1, 64), 4000),)),
    Case("gpt", sequences.GPT, (((8, 33), 4000),)),
    Case("decoder", sequences.Decoder, ((1, 1, 512), (4, 1, 8, 127, 64), (4, 1, 8, 127, 64))),
    Case("lstm", sequences.lstm, ((1, 32, 64),)),
    Case("lstm", sequences.lstm, ((8, 32, 64),)),
    Case("gru", sequences.gru, ((1, 32, 64),)),
    Case("dlrm", sequences.DLRM, ((1, 13), ((1, 8), 1000))),
    Case("dlrm", sequences.DLRM, ((128, 13), ((128, 8), 1000))),
    Case("pointnet", sequences.PointNet, ((1, 3, 1000),)),
    Case("pointnet", sequences.PointNet, ((8, 3, 333),)),
    *(Case(name, None) for name in LIGHT),
)


def calibrated(module: nn.Module, example: Sequence[Tensor]) -> nn.Module:
    """Draw weights by He's rule and give batch norms the statistics of one run, so that no activation dies out."""
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for layer in module.modules():
            if isinstance(layer, nn.Linear | nn.Conv1d | nn.Conv2d | nn.ConvTranspose2d):
                fan_in = math.prod(layer.weight.shape[1:])
                layer.weight.normal_(0, math.sqrt(1.5 / fan_in), generator=generator)
                if layer.bias is not None:
                    layer.bias.normal_(0, 0.1, generator=generator)
            if isinstance(layer, nn.BatchNorm1d | nn.BatchNorm2d):
                layer.weight.uniform_(0.8, 1.2, generator=generator)
                layer.bias.normal_(0, 0.1, generator=generator)
                layer.momentum = 1.0
        if any(isinstance(layer, nn.BatchNorm1d | nn.BatchNorm2d) for layer in module.modules()):
            wide = [torch.randn((max(4, x.shape[0]), *x.shape[1:]), generator=generator) for x in example]
            module.train()(*wide)
    return module.eval()


def model_of(case: Case) -> onnx.ModelProto:
    """The case as an ONNX model with constant weights; kept between runs."""
    if case.make is None:
        return get_model(case.name, softmax=False)
    folder = Path(__file__).parent
    sources = b"".join((folder / f"more_{part}.py").read_bytes() for part in ("models", "sequences", "vision"))
    path = CACHE / f"{case.label.replace(' ', '-')}-{hashlib.sha256(sources).hexdigest()[:12]}.onnx"
    if not path.is_file():
        text = export(case).SerializeToString()
        CACHE.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=CACHE, delete=False) as file:
            file.write(text)
        os.replace(file.name, path)
    return onnx.load(path)


def export(case: Case) -> onnx.ModelProto:
    assert case.make is not None, "models that come as files are not exported"
    torch.manual_seed(0)
    example = case.example()
    module = calibrated(case.make(), example)
    logging.getLogger("torch.onnx").setLevel(logging.ERROR)
    names = [f"x{n}" for n in range(len(example))]
    with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
        warnings.simplefilter("ignore")
        return torch.onnx.export(module, example, dynamo=True, input_names=names).model_proto


@dataclass(frozen=True)
class Settings:
    """Threads, seconds for each program, where to work."""

    threads: int
    time_s: float
    folder: Path


@dataclass(frozen=True)
class Result:
    """One model's times and errors by program, how long its untuned build took, and which peers failed."""

    case: Case
    timings: Mapping[str, Timing]
    errors: Mapping[str, float]
    build_s: float
    failed: Mapping[str, str]

    @property
    def best(self) -> str:
        return min((p for p in PEERS if p in self.timings), key=lambda p: self.timings[p].median_s)

    def ratio(self, name: str) -> tuple[float, float]:
        """(ours / best peer, half the width of its interval)."""
        found = compare(self.timings[self.best], self.timings[name])
        return found.ratio, (found.high - found.low) / 2


def measure_case(case: Case, settings: Settings) -> Result:
    """Build, check and measure one model."""
    path = settings.folder / f"{case.label.replace(' ', '_')}.onnx"
    path.write_bytes(model_of(case).SerializeToString())
    begin = time.perf_counter()
    executables = {"untuned": _build(path, settings, untuned=True)}
    build_s = time.perf_counter() - begin
    executables["shipped"] = _build(path, settings, untuned=False)
    ranges = known_ranges(executables["untuned"])
    made = {name: autosched_program(name, ex, settings.threads) for name, ex in executables.items()}
    failed = {}
    for name in PEERS:
        try:
            made[name] = _peer(name, case, path, settings.threads, ranges)
            made[name].run()
        except (AutoschedError, RuntimeError, NotImplementedError, TypeError, ValueError) as error:
            made.pop(name, None)
            failed[name] = str(error).splitlines()[0][:100]
    timings = dict(zip(made, measure(list(made.values()), settings.time_s), strict=True))
    return Result(case, timings, _errors(path, executables), build_s, failed)


def _peer(name: str, case: Case, path: Path, threads: int, ranges: Mapping[str, int]) -> Program:
    """A peer's program; PyTorch runs the module itself where there is one, not what was exported."""
    if name != "torch" or case.make is None:
        return peer_program(name, path, threads, ranges=ranges)
    torch.manual_seed(0)
    inputs = case.example()
    module = calibrated(case.make(), inputs)

    def run() -> object:
        if torch.get_num_threads() != threads:
            torch.set_num_threads(threads)
        with torch.inference_mode():
            return module(*inputs)

    return Program(name, threads, run)


def _build(path: Path, settings: Settings, *, untuned: bool) -> Executable:
    records = records_for(untuned=untuned)
    built: Executable = autosched.build(load_model(path), target="cpu", records=records, threads=settings.threads)
    return built


def _errors(path: Path, executables: Mapping[str, Executable]) -> dict[str, float]:
    """The largest error against float64 by program over all outputs, as a share of the output's largest value."""
    import onnxruntime

    any_executable = next(iter(executables.values()))
    inputs = random_inputs(input_specs(any_executable), seed=7, ranges=known_ranges(any_executable))
    found = evaluate(load_model(path), list(inputs.values()), dtype="float64")
    truth = [np.asarray(x) for x in (found if isinstance(found, tuple | list) else (found,))]
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    names = (value.name for value in session.get_inputs())
    results = {"onnxruntime": session.run(None, dict(zip(names, inputs.values(), strict=True)))}
    for name, executable in executables.items():
        module = GraphModule(executable)
        module.run(**inputs)
        results[name] = [module.get_output(n).numpy() for n in range(len(truth))]
    return {
        name: max(float(np.abs(x - t).max() / max(np.abs(t).max(), 1e-30)) for x, t in zip(values, truth, strict=True))
        for name, values in results.items()
    }


def table(results: Sequence[Result], settings: Settings) -> Table:
    made = Table(
        f"Models in no other table, ms, {settings.threads} thread{'s' if settings.threads > 1 else ''}",
        ("model", "untuned", "shipped", "ORT", "OpenVINO", "torch", "untuned / best", "shipped / best",
         "error untuned, shipped", "error ORT", "build s"),
    )  # fmt: skip
    for r in results:
        times = (
            f"{1e3 * r.timings[n].median_s:.4g}" if n in r.timings else "–" for n in ("untuned", "shipped", *PEERS)
        )
        ratios = ("{:.3f} ± {:.3f}".format(*r.ratio(name)) for name in ("untuned", "shipped"))
        errors = (f"{r.errors['untuned']:.1e}, {r.errors['shipped']:.1e}", f"{r.errors['onnxruntime']:.1e}")
        made.rows.append((r.case.label, *times, *ratios, *errors, f"{r.build_s:.1f}"))
        made.notes += [f"{r.case.label} in {peer}: {why}" for peer, why in r.failed.items()]
    if results:
        ratios_only = [r.ratio("shipped")[0] for r in results]
        mean = math.exp(sum(map(math.log, ratios_only)) / len(ratios_only))
        made.notes.append(f"shipped / best: geometric mean {mean:.3f}, largest {max(ratios_only):.3f}")
    made.notes.append("errors: the largest against float64, as a share of the largest output")
    return made


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.more_models", description=__doc__.splitlines()[0])
    parser.add_argument("--only", default="", help="only models whose labels hold one of these, comma-separated")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--time", type=float, default=1.0, help="seconds for each program")
    parser.add_argument("--budget", type=float, default=3600, help="seconds; models after that are left out")
    parser.add_argument("--save", type=Path, help="only write the ONNX files into this folder")
    args = parser.parse_args(arguments)
    texts = [text for text in args.only.split(",") if text]
    chosen = [c for c in CASES if not texts or any(text in c.label for text in texts)]
    if args.save:
        args.save.mkdir(parents=True, exist_ok=True)
        for case in chosen:
            (args.save / f"{case.label.replace(' ', '_')}.onnx").write_bytes(model_of(case).SerializeToString())
            print(case.label, flush=True)
        return
    print(describe())
    with tempfile.TemporaryDirectory() as folder:
        settings, results, end = Settings(args.threads, args.time, Path(folder)), [], time.monotonic() + args.budget
        for case in chosen:
            if time.monotonic() < end:
                results.append(measure_case(case, settings))
                print(_line(results[-1]), flush=True)
        made = table(results, settings)
    if left := chosen[len(results) :]:
        made.notes.append(f"no time was left for {', '.join(case.label for case in left)}")
    print(made.markdown())
    if not texts:
        write(
            result_file("more-models", args.threads),
            f"python -m benchmarks.more_models --threads {args.threads} --time {args.time:g}",
            [made],
        )


def _line(r: Result) -> str:
    medians = ", ".join(f"{name} {1e3 * t.median_s:.4g}" for name, t in r.timings.items())
    ratios = ", ".join(f"{r.ratio(name)[0]:.3f}" for name in ("untuned", "shipped"))
    return f"{r.case.label:30} {medians} ms; {ratios} of {r.best}; build {r.build_s:.1f} s; errors {r.errors}"


if __name__ == "__main__":
    main()
