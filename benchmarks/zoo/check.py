"""One network, exported in one way, imported, built and compared; and, where asked, timed."""

from __future__ import annotations

import contextlib
import io
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import autosched
from autosched.driver.bench.peers import peer_program
from autosched.driver.bench.programs import Program, autosched_program, known_ranges
from autosched.driver.bench.rounds import compare, measure
from autosched.errors import AutoschedError
from autosched.runtime import Executable
from benchmarks.zoo.definitions import make
from benchmarks.zoo.tabular import make_tabular, tabular_names

MOST_ERROR = 1e-3  # of the largest value of an output
AGREES, WRONG, REFUSED, CRASH, NOT_EXPORTED = "agrees", "wrong", "refused", "error", "not exported"
ONNX, PT2 = "onnx", "pt2"


@dataclass(frozen=True)
class Settings:
    """Threads of a run; the seconds that each program is timed (0: not at all)."""

    threads: int = 1
    time_s: float = 0.0


@dataclass(frozen=True)
class Result:
    """What became of a network on one way.

    error       the largest against the package's own result, as a share of the largest value of the output
    peer_error  ONNX Runtime's
    build_s     import and build, seconds; ratio: our time over ONNX Runtime's, with half its interval
    """

    name: str
    way: str
    status: str
    reason: str = ""
    error: float | None = None
    peer_error: float | None = None
    build_s: float | None = None
    ratio: float | None = None
    ratio_half: float | None = None


def ways_of(name: str) -> tuple[str, ...]:
    """How a network can be brought: models of tables come as ONNX files only."""
    return (ONNX,) if name in tabular_names() else (ONNX, PT2)


def check(name: str, way: str, settings: Settings) -> Result:
    """Export a network, build it, run it and compare."""
    with tempfile.TemporaryDirectory() as folder:
        try:
            with contextlib.redirect_stdout(io.StringIO()):  # exporters print
                model, inputs, expected = _exported(name, way, Path(folder))
        except Exception as error:  # packages that are missing or differ, what PyTorch cannot export
            return Result(name, way, NOT_EXPORTED, _line(error))
        try:
            start = time.perf_counter()
            module = autosched.build(model, target="cpu", threads=settings.threads)
            result = module(*inputs)
            build_s = time.perf_counter() - start
        except AutoschedError as error:
            return Result(name, way, REFUSED, error.line)
        except Exception as error:  # what a user would meet as a traceback
            return Result(name, way, CRASH, _line(error))
        if not any(map(_is_telling, expected)):
            return Result(name, way, NOT_EXPORTED, "the package's results are the same number everywhere")
        results = [np.asarray(x) for x in (result if isinstance(result, tuple | list) else [result])]
        peers = _onnxruntime(model, inputs) if way == ONNX else None
        found = Result(name, way, AGREES, build_s=build_s)
        return _judged(found, results, expected, peers, module, model, inputs, settings)


def _judged(
    found: Result, results: list[Any], expected: list[Any], peers: list[Any] | None, module: Any, model: Any,
    inputs: list[Any], settings: Settings,
) -> Result:  # fmt: skip
    values = dict(vars(found))
    values["error"], values["reason"] = largest_error(results, expected)
    if peers is not None:
        values["peer_error"], _ = largest_error(peers, expected)
        of_peers, _ = largest_error(results, peers)
        if not values["error"] < MOST_ERROR and of_peers < MOST_ERROR:  # the exporter's doing
            values["reason"] = f"as ONNX Runtime ({of_peers:.1e}): the file differs from its package"
        elif not values["error"] < MOST_ERROR:
            values["status"] = WRONG
    elif not values["error"] < MOST_ERROR:
        values["status"] = WRONG
    if settings.time_s and values["status"] == AGREES and found.way == ONNX:
        programs = _programs(module, model, inputs, settings.threads)
        comparison = compare(*reversed(measure(programs, settings.time_s)))
        values |= {"ratio": comparison.ratio, "ratio_half": (comparison.high - comparison.low) / 2}
    return Result(**values)


def _programs(module: Any, model: Path, inputs: list[Any], threads: int) -> list[Program]:
    """Ours and ONNX Runtime's; one that is compiled when it is called is timed with the call, on the inputs."""
    if isinstance(module, Executable):
        peer = peer_program("onnxruntime", model, threads, None, known_ranges(module))
        return [autosched_program("autosched", module, threads), peer]
    session, names = _session(model)
    feeds = dict(zip(names, inputs, strict=True))
    return [
        Program("autosched", threads, lambda: module(*inputs)),
        Program("onnxruntime", threads, lambda: session.run(None, feeds)),
    ]


def _session(path: Path) -> tuple[Any, list[str]]:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level, options.intra_op_num_threads = 4, 1
    session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    return session, [i.name for i in session.get_inputs()]


def _exported(name: str, way: str, folder: Path) -> tuple[Any, list[Any], list[Any]]:
    """(what `build` takes, inputs, the package's own results)."""
    if name in tabular_names():
        tabular = make_tabular(name)
        path = folder / "model.onnx"
        path.write_bytes(tabular.onnx)
        return path, list(tabular.inputs), list(tabular.expected)
    import torch

    model, inputs = make(name)
    with torch.no_grad():
        expected = [t.numpy() for t in torch.utils._pytree.tree_leaves(model(*inputs))]
    path = folder / f"model.{way}"
    if way == PT2:
        torch.export.save(torch.export.export(model, inputs), path)
        return path, [x.numpy() for x in inputs], expected
    try:
        torch.onnx.export(model, inputs, dynamo=True, verbose=False).save(str(path))
    except Exception:  # faults of that exporter: the older one takes some such models
        torch.onnx.export(model, inputs, str(path), dynamo=False, opset_version=18)
    return path, [x.numpy() for x in inputs], expected


def _onnxruntime(path: Path, inputs: list[Any]) -> list[Any] | None:
    """ONNX Runtime's results; None where it does not take the file."""
    try:
        session, names = _session(path)
        return [np.asarray(x) for x in session.run(None, dict(zip(names, inputs, strict=True)))]
    except Exception:  # its errors have no common class; the comparison is then with the package alone
        return None


def largest_error(results: list[Any], expected: list[Any]) -> tuple[float, str]:
    """(the largest error of all outputs, what is wrong where it is no matter of numbers)."""
    if len(results) != len(expected):
        return float("inf"), f"{len(results)} results instead of {len(expected)}"
    worst = 0.0
    for n, (a, b) in enumerate(zip(results, expected, strict=True)):
        if a.shape != b.shape and a.size == b.size and 1 in (*a.shape, *b.shape):
            a = a.reshape(b.shape)  # converters of tables give columns
        if a.shape != b.shape:
            return float("inf"), f"output {n} is of shape {list(a.shape)} instead of {list(b.shape)}"
        worst = max(worst, _error(a, b))
    return worst, ""


def _error(a: Any, b: Any) -> float:
    if b.dtype.kind not in "fc":
        return float(np.mean(a != b)) if b.size else 0.0
    a, b = a.astype(np.float64), b.astype(np.float64)
    same = (a == b) | (np.isnan(a) & np.isnan(b))
    if same.all():
        return 0.0
    finite = np.abs(b[np.isfinite(b)])
    error = float(np.abs(np.where(same, 0.0, a - b)).max() / (finite.max() if finite.size else 1.0) if b.size else 0.0)
    return error if error == error else float("inf")


def _is_telling(result: Any) -> bool:
    """Whether a result has different numbers, so that a wrong one would be seen."""
    finite = result[np.isfinite(result)] if result.dtype.kind in "fc" else result
    return finite.size > 1 and bool((finite != finite.flat[0]).any()) or result.size == 1


def _line(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}".strip().splitlines()[0][:200]
