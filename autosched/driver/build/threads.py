"""Decides at build over how many threads each call of a graph may be split."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

from autosched.runtime.graph import NOP, Graph
from autosched.runtime.kernel import Kernel
from autosched.runtime.team import most_threads
from autosched.target import Target


def limit_threads(
    graph: Graph,
    kernels: Mapping[str, Kernel],
    work: Mapping[str, int],
    target: Target,
    tuned: Mapping[str, int] | None = None,
) -> Graph:
    """Write into each node how many threads it is worth; see `runtime.team`.

    work   the arithmetic that a kernel's function asks for, by name; of others the kernel's own count is taken
    tuned  what tuning has found for a kernel, by name: it goes before the estimate
    """
    lanes = target.lanes("float32")
    most = {
        name: most_threads(work.get(name, kernel.flops), sum(arg.size_bytes for arg in kernel.args), lanes)
        for name, kernel in kernels.items()
    }
    most |= {name: n for name, n in (tuned or {}).items() if name in most}
    nodes = tuple(n if n.kernel == NOP else dataclasses.replace(n, threads=most[n.kernel]) for n in graph.nodes)
    return dataclasses.replace(graph, nodes=nodes)
