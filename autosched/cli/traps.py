"""Known traps of a machine or an environment: what makes kernels slow, unmeasurable or impossible, and the way out."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable
from pathlib import Path

from autosched.env import AUTOSCHED_TUNE, NUMBA_DISABLE_JIT
from autosched.errors import AutoschedError


def find_traps(target: str = "cpu") -> list[str]:
    """Say in one sentence each what is wrong here; empty where nothing is."""
    checks: tuple[Callable[[], str], ...] = (
        lambda: _narrow_vectors(target),
        lambda: _nothing_shipped(target),
        _another_host,
        _few_threads,
        _fractional_quota,
        _busy_machine,
        _power_saving,
        _no_jit,
        _no_cache,
        _no_temporary_folder,
        _tuning_off,
    )
    found = []
    for check in checks:
        try:
            found.append(check())
        except AutoschedError as error:
            found.append(str(error))
    return list(dict.fromkeys(text for text in found if text))


def _narrow_vectors(text: str) -> str:
    from autosched.target import Target

    target = Target(text)
    if not target.is_cpu:
        return ""
    if target.vector_bits < 256 or not target.has_fma:
        return f"{target.mcpu} has no AVX2 with FMA: kernels are right but slow"
    return ""


def _nothing_shipped(text: str) -> str:
    from autosched.records import shipped_families
    from autosched.target import Target

    family, there = Target(text).family, shipped_families()
    if not there or family in there:  # none at all: they were turned off
        return ""
    return (
        f"tuned configurations come with the package for {', '.join(there)} alone, not for {family}: kernels have "
        "their defaults until `autosched tune` has found better ones"
    )


def _another_host() -> str:
    from autosched.target import detect_cpu, host_cpu

    taken, real = host_cpu(), detect_cpu()
    if taken == real:
        return ""
    said = f"this machine ({real.model_name}, {real.mcpu}, {real.cores} cores) is taken for another by AUTOSCHED_HOST_*"
    missing = sorted(taken.features - real.features)
    return f"{said}; code that needs {', '.join(missing)} does not run on it" if missing else said


def _few_threads() -> str:
    from autosched.target import thread_limits

    limits = thread_limits()
    if limits.omp_num_threads and limits.omp_num_threads < limits.affinity:
        return f"OMP_NUM_THREADS={limits.omp_num_threads} leaves {limits.affinity} CPUs partly unused"
    if limits.omp_num_threads and limits.omp_num_threads > limits.affinity:
        return f"OMP_NUM_THREADS={limits.omp_num_threads} asks for more than the {limits.affinity} CPUs of this process"
    return ""


def _fractional_quota() -> str:
    from autosched.target import thread_limits

    quota = thread_limits().quota
    if quota is not None and quota != int(quota):
        return f"the container may use {quota:g} CPUs: the part of a CPU stays unused, and times may jump"
    return ""


def _busy_machine(load: float | None = None) -> str:
    load = os.getloadavg()[0] if load is None else load
    cores = os.cpu_count() or 1
    return f"load {load:.1f} on {cores} CPUs: measurements will be noisy" if load > 0.5 * cores else ""


def _power_saving(path: Path = Path("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor")) -> str:
    try:
        governor = path.read_text().strip()
    except OSError:
        return ""
    return "the CPU governor is 'powersave': clocks ramp slowly" if governor == "powersave" else ""


def _no_jit() -> str:
    return "NUMBA_DISABLE_JIT is set: Numba compiles no functions of your own" if NUMBA_DISABLE_JIT.get() else ""


def _no_cache() -> str:
    from autosched.runtime.cache import kernel_cache

    cache = kernel_cache()
    if cache.limit_bytes and (cache.folder is None or not cache.writable):
        return "no folder for the kernel cache can be written to by you alone: set AUTOSCHED_CACHE_DIR to one that can"
    return ""


def _no_temporary_folder() -> str:
    try:
        with tempfile.TemporaryFile():
            return ""
    except OSError as error:
        return f"no temporary file can be made ({error.strerror}): set TMPDIR"


def _tuning_off() -> str:
    if AUTOSCHED_TUNE.get() == "off":
        return "AUTOSCHED_TUNE=off: databases are not read, every kernel uses its default"
    return ""
