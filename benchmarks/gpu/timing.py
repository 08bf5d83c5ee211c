"""Times of ours and of the peer, in turn, on the device."""

from __future__ import annotations

import functools
import statistics
from collections.abc import Callable, Sequence
from typing import Any

from autosched.runtime.cuda.devices import driver_of
from benchmarks.gpu.bench import Bench

ROUNDS, ROUND_S, MOST_CALLS = 7, 0.01, 200
PEER_ERROR = 2e-2  # of the largest number: sums of float16 in another order are within it


def torch_seconds(torch: Any, call: Callable[[], Any], number: int) -> float:
    """The device's time of so many calls."""
    first, last = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    first.record()
    for _ in range(number):
        call()
    last.record()
    last.synchronize()
    return float(first.elapsed_time(last)) * 1e-3


def replayed(function: Any, arrays: Sequence[Any]) -> Callable[[int], float]:
    """The device's time of so many calls of ours in one CUDA graph, so that no launch waits for the host."""
    function(*arrays)
    program, driver = function.program, driver_of(0)
    nodes = range(len(program.graph.nodes))

    @functools.cache
    def graph(number: int) -> Callable[[], None]:
        made = driver.capture(lambda: program.run_nodes(nodes, number))
        assert made is not None, "every device has graphs"
        made()
        return made

    def seconds(number: int) -> float:
        replay, first = graph(number), driver.record()
        replay()
        return driver.seconds_between(first, driver.record())

    return seconds


def torch_replayed(torch: Any, call: Callable[[], Any]) -> Callable[[int], float]:
    """The same for PyTorch's."""
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        for _ in range(3):
            call()
    torch.cuda.synchronize()

    @functools.cache
    def graph(number: int) -> Any:
        made = torch.cuda.CUDAGraph()
        with torch.cuda.graph(made):
            for _ in range(number):
                call()
        made.replay()
        return made

    return lambda number: torch_seconds(torch, graph(number).replay, 1)


def in_turn(
    bench: Bench, ours: Callable[[int], float], peer: Callable[[int], float] | None, rounds: int = ROUNDS
) -> tuple[float, Any]:
    """Median seconds of a call of both, measured in turn."""
    ours(1)
    number = 1 if bench.is_tiny else max(1, min(MOST_CALLS, int(ROUND_S / max(ours(3) / 3, 1e-7))))
    ours(number)
    if peer is not None:
        peer(number)
    times: tuple[list[float], list[float]] = [], []
    for _ in range(2 if bench.is_tiny else rounds):
        times[0].append(ours(number) / number)
        if peer is not None:
            times[1].append(peer(number) / number)
    return statistics.median(times[0]), statistics.median(times[1]) if peer is not None else None


def difference(torch: Any, ours: Any, theirs: Any) -> str:
    """How far two results are apart, over the largest number of the second: what is more than rounding says so."""
    ours, theirs = (x.detach().to("cuda", torch.float64) for x in (ours, theirs))
    most = float(theirs.abs().max())
    error = float((ours - theirs).abs().max()) / max(most, 1e-30)
    return f"{error:.1e} from the peer's" + ("" if error <= PEER_ERROR else ": WRONG")
