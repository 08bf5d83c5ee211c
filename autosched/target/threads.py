"""How many threads may compute: the least of what the machine, the container and the user allow."""

from __future__ import annotations

import math
import os
from dataclasses import dataclass
from pathlib import Path

from autosched.env import AUTOSCHED_HOST_CORES, AUTOSCHED_NUM_THREADS, OMP_NUM_THREADS
from autosched.errors import InvalidValueError

_CGROUP_ROOT = Path("/sys/fs/cgroup")
_SELF_CGROUP = Path("/proc/self/cgroup")


@dataclass(frozen=True, slots=True)
class ThreadLimits:
    """Each limit on the number of threads; None where it does not apply."""

    affinity: int
    quota: float | None  # CPUs that the container may use, such as 1.5
    omp_num_threads: int | None
    autosched_num_threads: int | None

    def threads(self, requested: int | None = None) -> int:
        """Give the least of the limits and of `requested`, which replaces AUTOSCHED_NUM_THREADS; at least 1."""
        wanted = self.autosched_num_threads if requested is None else requested
        quota = None if self.quota is None else math.floor(self.quota)
        limits = [limit for limit in (self.affinity, quota, self.omp_num_threads, wanted) if limit is not None]
        return max(1, min(limits))


def thread_limits() -> ThreadLimits:
    """Read all limits as they are now."""
    return ThreadLimits(
        affinity=count_affinity(),
        quota=cpu_quota(),
        omp_num_threads=OMP_NUM_THREADS.get() or None,
        autosched_num_threads=AUTOSCHED_NUM_THREADS.get() or None,
    )


def choose_threads(requested: int | None = None) -> int:
    """Give the number of threads to run on.

    requested  a flag or argument; None: AUTOSCHED_NUM_THREADS, else as many as are allowed
    Raises     InvalidValueError if `requested` is below 1.
    """
    if requested is not None and requested < 1:
        raise InvalidValueError(f"{requested} threads", hint="give a number of threads that is 1 or more")
    return thread_limits().threads(requested)


def count_affinity() -> int:
    """Count the CPUs that this process may run on; AUTOSCHED_HOST_CORES replaces them."""
    if cores := AUTOSCHED_HOST_CORES.get():
        return cores
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def cpu_quota(root: Path = _CGROUP_ROOT, self_cgroup: Path = _SELF_CGROUP) -> float | None:
    """Read the least CPU quota of this process's control groups and their parents, versions 1 and 2; None: no limit."""
    found: list[float] = []
    try:
        lines = self_cgroup.read_text().splitlines()
    except OSError:
        lines = []
    for line in lines or ["0::/"]:
        _, controllers, path = line.split(":", 2)
        if controllers == "":
            found += _quotas_v2(root, path) + _quotas_v2(root / "unified", path)
        elif "cpu" in controllers.split(","):
            for mount in {controllers, "cpu", "cpu,cpuacct"}:
                found += _quotas_v1(root / mount, path)
    return min(found, default=None)


def _folders(mount: Path, path: str) -> list[Path]:
    """List a group's folder and its parents up to the mount; inside a container only the mount may exist."""
    group = mount / path.strip("/")
    return [folder for folder in (group, *group.parents) if folder == mount or mount in folder.parents]


def _quotas_v2(mount: Path, path: str) -> list[float]:
    quotas = []
    for folder in _folders(mount, path):
        fields = _read(folder / "cpu.max").split()
        if len(fields) == 2 and fields[0] != "max":
            quotas.append(int(fields[0]) / int(fields[1]))
    return quotas


def _quotas_v1(mount: Path, path: str) -> list[float]:
    quotas = []
    for folder in _folders(mount, path):
        quota, period = _read(folder / "cpu.cfs_quota_us").strip(), _read(folder / "cpu.cfs_period_us").strip()
        if quota and period and int(quota) > 0:
            quotas.append(int(quota) / int(period))
    return quotas


def _read(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:
        return ""
