"""`autosched doctor`: what autosched sees of this machine, in a form to paste into a bug report."""

from __future__ import annotations

import importlib.metadata
import platform
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from autosched.cli.common import Common, make_command
from autosched.cli.output import Column, Table, print_json, show, size
from autosched.cli.traps import find_traps
from autosched.env import SWITCHES
from autosched.errors import AutoschedError
from autosched.version import __version__

if TYPE_CHECKING:
    from autosched.json_types import JsonObject
    from autosched.target.target import Target

PACKAGES = (
    "numba", "llvmlite", "numpy", "sqlalchemy", "xgboost-cpu", "optuna", "plotly", "click", "safetensors",
    "platformdirs", "onnx", "onnxruntime", "torch", "openvino",
)  # fmt: skip
CUDA_PACKAGES = (
    "numba-cuda", "cuda-core", "cuda-bindings", "nvidia-nvvm", "nvidia-cuda-nvrtc", "nvidia-nvjitlink",
    "nvidia-cuda-runtime",
)  # fmt: skip


@make_command("doctor", example="autosched doctor\nautosched doctor -f json > report.json")
def command(common: Common) -> None:
    """Show target, threads, caches, databases, versions and known traps of this machine."""
    report = examine(common)
    if common.format == "json":
        print_json(report)
        return
    rows = [
        {"section": section, "name": name, "value": value}
        for section, content in report.items()
        if section != "traps"
        for name, value in content.items()
    ]
    rows += [{"section": "trap", "name": str(i), "value": text} for i, text in enumerate(report["traps"], start=1)]
    if not report["traps"] and common.format == "table":
        rows.append({"section": "traps", "name": "", "value": "none found"})
    columns = (Column("section", "section"), Column("name", "name"), Column("value", "value", _text))
    show(Table(columns, rows), common.format)


def examine(common: Common) -> JsonObject:
    """Gather everything as plain data; a part that cannot be found out says why."""
    sections: dict[str, Callable[[], JsonObject]] = {
        "autosched": _program,
        "target": lambda: _target(common.target),
        "cuda": _cuda,
        "threads": lambda: _threads(common.threads),
        "folders": _folders,
        "databases": lambda: _databases(common.db),
        "environment": _environment,
        "versions": _versions,
    }
    report: JsonObject = {}
    for name, section in sections.items():
        try:
            report[name] = section()
        except AutoschedError as error:
            report[name] = {"error": str(error)}
    report["traps"] = find_traps("cpu" if "error" in report["target"] else common.target)
    return report


def _program() -> JsonObject:
    return {
        "version": __version__,
        "python": f"{platform.python_version()} {platform.python_implementation()}",
        "system": platform.platform(),
        "executable": sys.executable,
        "installed in": str(Path(__file__).parents[1]),
    }


def _target(text: str) -> JsonObject:
    from autosched.target import Target, detect_cpu

    target = Target(text)
    if not target.is_cpu:
        return _gpu_target(target)
    machine = detect_cpu()
    wide = ("avx512f", "avx512bw", "avx512vl", "avx512vbmi", "avx512vnni", "avx512bf16")
    tiles = ("amx-tile", "amx-int8", "amx-bf16")
    features = ("sse4.2", "avx", "avx2", "fma", "f16c", "avxvnni", *wide, *tiles, "neon", "dotprod", "i8mm")
    return {
        "target": str(target),
        "cpu": target.fingerprint().name,
        "mcpu": target.mcpu,
        "vector bits": target.vector_bits,
        "vector registers": target.num_registers,
        "fused multiply-add": target.has_fma,
        "features": " ".join(name for name in features if name in target.features),
        "cores": target.num_cores,
        "cache l1": size(target.cache.l1_bytes),
        "cache l2": size(target.cache.l2_bytes),
        "cache l3": size(target.cache.l3_bytes),
        "detected": f"{machine.model_name}, {machine.mcpu}, {machine.cores} cores",
        "fingerprint": target.fingerprint().key,
    }


def _gpu_target(target: Target) -> JsonObject:
    gpu = target.gpu
    return {
        "target": str(target),
        "device": gpu.device,
        "architecture": gpu.arch,
        "SMs": gpu.sm_count,
        "shared memory of a block": size(gpu.max_shared_memory_per_block),
        "cache l2": size(gpu.l2_bytes),
        "peak float32": f"{gpu.peak_flops('float32') / 1e12:.1f} TFLOP/s",
        "memory": f"{gpu.memory_bandwidth / 1e9:.0f} GB/s",
        "fingerprint": target.fingerprint().key,
    }


def _cuda() -> JsonObject:
    """NVIDIA's driver, its devices, and the packages that kernels for them are made and run with."""
    from importlib.metadata import PackageNotFoundError, version

    from autosched.target.cuda_host import cuda_device_count, cuda_name, cuda_version, has_cuda_driver

    found: JsonObject = {}
    for name in CUDA_PACKAGES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            found[name] = "missing: pip install 'autosched[cuda]'"
    if not has_cuda_driver():
        return {"driver": "none: kernels are built here and run elsewhere", **found}
    number = cuda_version() or 0
    devices = {f"cuda:{index}": cuda_name(index) for index in range(cuda_device_count())}
    return {"driver": f"CUDA {number // 1000}.{number % 1000 // 10}", **devices, **found}


def _threads(requested: int | None) -> JsonObject:
    from autosched.target import thread_limits

    limits = thread_limits()
    named = {
        "affinity": limits.affinity,
        "container quota": limits.quota,
        "OMP_NUM_THREADS": limits.omp_num_threads,
        "--threads" if requested else "AUTOSCHED_NUM_THREADS": requested or limits.autosched_num_threads,
    }
    used = limits.threads(requested)
    decides = min((value, name) for name, value in named.items() if value is not None)[1]
    return {"used": used, "decided by": decides, "layer": "autosched's own pool", **named}


def _folders() -> JsonObject:
    from autosched.runtime.cache import kernel_cache
    from autosched.space.location import search_spaces_folder, tuning_logs_folder

    cache = kernel_cache()
    place = "memory" if cache.folder is None else f"{cache.folder}{'' if cache.writable else ' (read-only)'}"
    from autosched.records import shipped_families

    logs = tuning_logs_folder()
    return {
        "kernel cache": place,
        "kernel cache size": f"{size(cache.size_bytes())} of {size(cache.limit_bytes)}",
        "search spaces": str(search_spaces_folder()),
        "shipped logs": str(logs) if logs else None,
        "shipped for": ", ".join(shipped_families()) or None,
    }


def _databases(given: tuple[str, ...]) -> JsonObject:
    from autosched.records import Place, default_places, open_store

    places = [Place(where, "--db") for where in given] or list(default_places())
    found: JsonObject = {}
    for place in places:
        path = Path(place.where)
        if "://" not in place.where and not path.exists():
            found[place.title] = f"{place.where} (not there yet)"
            continue
        try:
            with open_store(place, write=False, busy_s=1.0) as store:
                found[place.title] = f"{place.where} ({store.count()} records)"
        except AutoschedError as error:
            found[place.title] = f"{place.where} ({error})"
    return found


def _environment() -> JsonObject:
    values: JsonObject = {}
    for entry in SWITCHES.values():
        if entry.is_set():
            try:
                values[entry.name] = "(set)" if entry.name.endswith("_SECRET") else entry.get()
            except AutoschedError as error:
                values[entry.name] = str(error)
    return values


def _versions() -> JsonObject:
    found: JsonObject = {}
    for package in PACKAGES:
        try:
            found[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            found[package] = None
    return found


def _text(value: object) -> str:
    return {True: "yes", False: "no"}[value] if isinstance(value, bool) else str(value)
