"""Where a model's time goes: each kernel's time, rates, distance from the machine's peaks, and where it comes from."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from autosched.driver.bench.peaks import Peaks, measure_peaks
from autosched.driver.bench.programs import input_specs, known_ranges, random_inputs
from autosched.runtime.graph import NOP
from autosched.runtime.graph_executor import GraphExecutor, Model
from autosched.runtime.kernel import Kernel
from autosched.target import Target
from autosched.target.threads import choose_threads

if TYPE_CHECKING:
    from autosched.json_types import JsonObject

LEAST_RUNS = 9
UNKNOWN = "–"


@dataclass(frozen=True)
class NodeProfile:
    """One call of a kernel in the graph: its median time."""

    name: str
    kernel: str
    seconds: float


@dataclass(frozen=True)
class KernelProfile:
    """One kernel with all its calls in a run.

    calls       how often a run calls it; `seconds` is the time of all of them together
    flops       of one call: the arithmetic that the operator names; Winograd executes less and may pass the peak
    size_bytes  of one call: its arguments, each counted once
    peak_share  the time that the peaks allow for these, as a share of what it takes
    bound       the peak that it is held against: "compute", or the memory that holds its arguments
    """

    kernel: str
    workload: str
    template: str
    origin: str
    trust: str
    config: str
    threads: int
    calls: int
    seconds: float
    share: float
    flops: int
    size_bytes: int
    peak_share: float
    bound: str

    @property
    def gflops(self) -> float:
        return self.calls * self.flops / self.seconds / 1e9

    @property
    def gbytes(self) -> float:
        return self.calls * self.size_bytes / self.seconds / 1e9

    @property
    def row(self) -> JsonObject:
        """Everything under the names that tables use."""
        names = ("kernel", "workload", "template", "origin", "trust", "config", "threads", "calls", "seconds", "share")
        found = {name: getattr(self, name) for name in names}
        found |= {
            "flops": self.flops,
            "size_bytes": self.size_bytes,
            "gflops": self.gflops,
            "gbytes_per_s": self.gbytes,
        }
        return found | {"peak_share": self.peak_share, "bound": self.bound}


@dataclass(frozen=True)
class Profile:
    """A model's kernels, slowest first, and its calls in order.

    end_to_end_s  the median time of a run without the profiler
    sum_s         all calls of a run together, the median of runs with it
    """

    name: str
    threads: int
    kernels: tuple[KernelProfile, ...]
    nodes: tuple[NodeProfile, ...]
    end_to_end_s: float
    sum_s: float
    peaks: Peaks

    @property
    def summary(self) -> str:
        """The sum against the whole, and the share of the time in which the machine is at one of its peaks."""
        allowed = sum(kernel.peak_share * kernel.seconds for kernel in self.kernels)
        ms = 1e3
        return (
            f"sum of kernels {self.sum_s * ms:.4g} ms, end to end {self.end_to_end_s * ms:.4g} ms "
            f"({100 * self.sum_s / self.end_to_end_s:.1f} %); the peaks would allow {allowed * ms:.4g} ms "
            f"({100 * allowed / self.end_to_end_s:.0f} %)"
        )

    def to_json(self) -> JsonObject:
        """Everything as JSON values."""
        return {
            "model": self.name,
            "threads": self.threads,
            "end_to_end_s": self.end_to_end_s,
            "sum_s": self.sum_s,
            "peak_flops_per_s": self.peaks.flops_per_s,
            "peak_bytes_per_s": {level.name: level.bytes_per_s for level in self.peaks.levels},
            "rows": [kernel.row for kernel in self.kernels],
        }

    def trace(self) -> JsonObject:
        """The calls one after the other in Chrome's trace format, for chrome://tracing and Perfetto.

        Source  "Trace Event Format", complete events; times in µs.
        """
        by_name = {kernel.kernel: kernel for kernel in self.kernels}
        events: list[JsonObject] = [
            {"name": "process_name", "ph": "M", "pid": 1, "args": {"name": f"autosched {self.name}"}},
            {"name": "thread_name", "ph": "M", "pid": 1, "tid": 1, "args": {"name": "kernels, median times in order"}},
        ]
        start = 0.0
        for node in self.nodes:
            kernel, length = by_name[node.kernel], node.seconds * 1e6
            details = {
                **{"kernel": node.kernel, "template": kernel.template, "config from": kernel.origin},
                **{"GFLOP/s": kernel.gflops, "GB/s": kernel.gbytes, "share of peak": kernel.peak_share},
            }
            event = {"name": node.name, "cat": kernel.template, "ph": "X", "pid": 1, "tid": 1}
            events.append({**event, "ts": start, "dur": length, "args": details})
            start += length
        return {"traceEvents": events, "displayTimeUnit": "ms"}


def profile(executable: Model, *, name: str = "model", threads: int | None = None, time_s: float = 2.0) -> Profile:
    """Measure a model's kernels inside the model, and the machine's peaks.

    threads  None: as many as there are
    time_s   for running the model with the profiler and without, in turns
    """
    executor = _filled(executable, threads)
    end_to_end_s, runs = _measure(executor, time_s)
    peaks = measure_peaks(Target("cpu"), executor.threads)
    nodes = _nodes(executable, runs)
    kernels = _kernels(executable, nodes, peaks, executor.program.kernel_threads())
    sum_s = float(np.median(runs.sum(axis=1)))
    return Profile(name, executor.threads, kernels, nodes, end_to_end_s, sum_s, peaks)


def kernel_times(executable: Model, *, threads: int | None = None, time_s: float = 0.5) -> dict[str, float]:
    """The seconds that each kernel takes in a run of the model, in all its calls together."""
    _, runs = _measure(_filled(executable, threads), time_s)
    found: dict[str, float] = {}
    for node in _nodes(executable, runs):
        found[node.kernel] = found.get(node.kernel, 0.0) + node.seconds
    return found


def _filled(executable: Model, threads: int | None) -> GraphExecutor:
    """An executor whose inputs are random."""
    executor = GraphExecutor(executable, threads=choose_threads(threads))
    for key, value in random_inputs(input_specs(executable), ranges=known_ranges(executable)).items():
        executor.set_input(key, value)
    return executor


def _nodes(executable: Model, runs: np.ndarray) -> tuple[NodeProfile, ...]:
    """The median of each node's times [run, node]."""
    return tuple(
        NodeProfile(node.name, node.kernel, float(s))
        for node, s in zip(executable.graph.nodes, np.median(runs, axis=0), strict=True)
        if node.kernel != NOP
    )


def _measure(executor: GraphExecutor, time_s: float) -> tuple[float, np.ndarray]:
    """(median of whole runs, seconds [run, node])."""
    whole: list[float] = []
    parts: list[np.ndarray] = []
    for _ in range(3):
        executor.run()
    end = time.perf_counter() + time_s
    while time.perf_counter() < end or len(whole) < LEAST_RUNS:
        start = time.perf_counter()
        executor.run()
        whole.append(time.perf_counter() - start)
        parts.append(executor.program.profile(1))
    return float(np.median(whole)), np.stack(parts)


def _kernels(
    executable: Model, nodes: Sequence[NodeProfile], peaks: Peaks, threads: Mapping[str, int]
) -> tuple[KernelProfile, ...]:
    report = {str(row["kernel"]): row for row in executable.manifest.get("report", ())}
    total = math.fsum(node.seconds for node in nodes)
    found = []
    for name in dict.fromkeys(node.kernel for node in nodes):
        calls = [node.seconds for node in nodes if node.kernel == name]
        row = report.get(name, {})
        seconds = math.fsum(calls)
        kernel = executable.kernels[name]
        size_bytes = argument_bytes(kernel)
        flops = int(row.get("flops") or kernel.flops)
        least_s = peaks.least_s(flops, size_bytes)
        computes = flops / peaks.flops_per_s >= least_s
        found.append(
            KernelProfile(
                kernel=name,
                workload=str(row.get("workload", UNKNOWN)),
                template=str(row.get("template", "packing" if not row else UNKNOWN)),
                origin=str(row.get("origin", UNKNOWN)),
                trust=str(row.get("trust", UNKNOWN)),
                config=str(row.get("config", "")),
                threads=threads.get(name, 1),
                calls=len(calls),
                seconds=seconds,
                share=seconds / total,
                flops=flops,
                size_bytes=size_bytes,
                peak_share=len(calls) * least_s / seconds,
                bound="compute" if computes else peaks.level(size_bytes).name,
            )
        )
    return tuple(sorted(found, key=lambda kernel: -kernel.seconds))


def argument_bytes(kernel: Kernel) -> int:
    """What a call reads and writes at least, where it uses all elements of its arguments."""
    return sum(arg.size_bytes for arg in kernel.args)
