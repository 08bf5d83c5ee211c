"""Where a task lies below what its device can do: arithmetic and data of one call against the device's peaks."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from autosched.records.statistics import TaskStatistics
from autosched.target import Fingerprint
from autosched.task import Workload

if TYPE_CHECKING:
    from autosched.json_types import JsonObject

ITEM_BYTES = {"64": 8, "32": 4, "16": 2, "8": 1}


@dataclass(frozen=True, slots=True)
class Peak:
    """What a device can do at most with a number of threads.

    levels  (name, size in bytes, bytes per second), the smallest first: data of at most that size are read so fast
    """

    device: str
    threads: int
    flops_per_s: float
    levels: Sequence[tuple[str, int, float]]

    @property
    def document(self) -> JsonObject:
        """As plain data: GFLOP/s, and GB/s by memory."""
        levels = [[name, float(f"{rate / 1e9:.4g}")] for name, _, rate in self.levels]
        gflops = float(f"{self.flops_per_s / 1e9:.4g}")
        return {"device": self.device, "threads": self.threads, "gflops": gflops, "levels": levels}


Machines = Mapping[tuple[Fingerprint, int], Peak]


def roofline(task: TaskStatistics, machines: Machines, flops: int | None = None) -> JsonObject | None:
    """The best time's rates and their share of what the peaks allow; None where work, data or peaks are not known."""
    peak = machines.get((task.key.device, task.key.threads))
    best_s = task.best_s
    workload = Workload.from_json(json.loads(task.key.workload))
    flops = flops or workload_flops(workload)
    size_bytes = workload_bytes(workload)
    if peak is None or not best_s or not flops or not size_bytes:
        return None
    wide = max((ITEM_BYTES.get(dtype[5:], 0) for dtype in workload.dtypes if dtype.startswith("float")), default=4)
    share, bound = nearest_peak(peak, best_s, flops, size_bytes, wide)
    return {
        "flops": flops,
        "bytes": size_bytes,
        "gflops": float(f"{flops / best_s / 1e9:.4g}"),
        "intensity": float(f"{flops / size_bytes:.4g}"),
        "share": float(f"{share:.4g}"),
        "bound": bound,
    }


def nearest_peak(peak: Peak, time_s: float, flops: int, size_bytes: int, item_bytes: int = 4) -> tuple[float, str]:
    """(the share of what the peaks allow, which of them is the nearer one: "arithmetic", or the name of a memory).

    item_bytes  of the widest floats: the peak is measured with float32, and a vector holds half as many of float64
    """
    name, _, rate = next((level for level in peak.levels if size_bytes <= level[1]), peak.levels[-1])
    compute_s, read_s = flops / peak.flops_per_s * max(1, item_bytes / 4), size_bytes / rate
    return max(compute_s, read_s) / time_s, "arithmetic" if compute_s >= read_s else name


def workload_flops(workload: Workload) -> int | None:
    """Two operations for each step of a contraction's loops; None for other operators."""
    sizes = workload.attrs.get("sizes")
    if not isinstance(sizes, tuple) or not sizes or not all(type(size) is int and size > 0 for size in sizes):
        return None
    return 2 * math.prod(int(size) for size in sizes if isinstance(size, int))


def workload_bytes(workload: Workload) -> int | None:
    """All arguments, each once; None where a dtype is not known."""
    total = 0
    for dtype, shape in zip(workload.dtypes, workload.shapes):
        item = 1 if dtype == "bool" else next((n for end, n in ITEM_BYTES.items() if dtype.endswith(end)), None)
        if item is None:
            return None
        total += item * math.prod(shape)
    return total
