"""Over how many threads kernels are split, and that what the build decided is kept."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from autosched.runtime import Graph
from autosched.runtime.program import Program
from autosched.runtime.team import MOST_THREADS, most_threads
from tests.runtime.kernels import chain


@pytest.mark.parametrize(
    ("flops", "size_bytes", "expected"),
    [
        (50_000_000, 1 << 20, range(2, 1000)),  # computes
        (100_000, 40_000, range(1, 2)),  # short
        (1_000_000, 400_000, range(2, 3)),  # a small depthwise convolution: bound by memory, and worth two threads
        (0, 300_000, range(2, 3)),
        (0, 200_000, range(1, 2)),  # moves little
        (0, 64 << 20, range(2, 1000)),  # moves much
        (0, 0, range(1, 2)),
        (10**13, 64 << 20, range(2, MOST_THREADS + 1)),  # a file may say no more
        (0, 10**12, range(2, MOST_THREADS + 1)),
    ],
)
def test_short_kernels_and_small_ones_bound_by_memory_stay_on_one_thread(
    flops: int, size_bytes: int, expected: range
) -> None:
    assert most_threads(flops, size_bytes) in expected


def test_wider_vectors_finish_sooner_and_are_split_less() -> None:
    assert most_threads(10_000_000, 1000, lanes=16) < most_threads(10_000_000, 1000, lanes=8)


def test_the_decision_of_the_build_is_stored_in_the_node_and_followed() -> None:
    executable = chain(16, 3, flops=10**9)
    nodes = tuple(dataclasses.replace(node, threads=1) for node in executable.graph.nodes)
    graph = Graph.from_manifest(dataclasses.replace(executable.graph, nodes=nodes).to_manifest())
    assert [node.threads for node in graph.nodes] == [1, 1, 1]
    for used, expected in ((executable.graph, 2), (graph, 1)):
        program = Program(used, executable.kernels, executable.constants, executable.native, 2)
        program.place(0, np.ones((16, 64), np.float32))
        program.place(used.outputs[0], np.zeros((16, 64), np.float32))
        assert program.run() == expected
        assert set(program.kernel_threads().values()) == {expected}


def test_graphs_without_a_decision_can_be_read() -> None:
    entry = chain(2, 1).graph.to_manifest()
    entry["nodes"] = [node[:4] for node in entry["nodes"]]
    assert [node.threads for node in Graph.from_manifest(entry).nodes] == [0]
