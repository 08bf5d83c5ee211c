"""Recorded spaces of GPU kernels, searched with and without what the device's facts let expect.

    python -m benchmarks.search_gpu FILE… [--seeds 10] [--batch 8]

A configuration's threads, shared memory, occupancy and memory accesses follow from its knobs. Here what they let expect
of its time goes to the search as a hint, which the trials confirm or correct. The tables say that it does not pay.
"""

from __future__ import annotations

import argparse
import dataclasses
import functools
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from autosched.space import ConfigSpace
from autosched.target.gpus import GpuFacts, gpu_facts
from autosched.testing.replay import Recording, Summary, read_recording, summarise
from autosched.tuner.cost_model.hint import REACH
from benchmarks.machine import Table

BARS = {8: (0.875, 0.935, 0.988, 0.997), 1: (0.885, 0.972, 0.992, 0.998)}
JUDGED = ("convolution_A4000", "gemm_RTX_3090", "dedispersion_A4000")  # the bars are for their mean
POINTS = (25, 50, 100, 200)
SM_COUNTS = {"A4000": 48, "A6000": 84, "3090": 82, "Titan": 72}


def gpu_of(name: str) -> GpuFacts:
    """The device of a recording."""
    count = next(n for device, n in SM_COUNTS.items() if device in name)
    return dataclasses.replace(gpu_facts("sm_75" if "Titan" in name else "sm_86"), sm_count=count)


Knobs = Mapping[str, Any]  # of each knob an array with a value for each configuration


def _resident(gpu: GpuFacts, threads: Any, shared: Any, registers: Any) -> Any:
    """Threads that an SM holds at once [n], by threads, shared memory and registers."""
    blocks = np.minimum(gpu.max_blocks_per_sm, gpu.max_threads_per_sm // threads)
    by_shared = gpu.shared_per_sm // (shared + gpu.reserved_shared)
    by_registers = gpu.registers_per_sm // (threads * np.minimum(gpu.max_registers_per_thread, registers))
    return threads * np.minimum(blocks, np.minimum(by_shared, by_registers))


def _hidden(resident: Any, work: Any) -> Any:
    """The share of time in which there is something to issue; `work`: multiply-adds of a thread without dependences."""
    return np.minimum(1.0, resident * np.minimum(work, 8) / NEEDED + 1e-3)


def gemm(gpu: GpuFacts, k: Knobs) -> Any:
    """CLBlast's matrix product, 4096 square."""
    rows, columns, threads = k["MWG"] // k["MDIMC"], k["NWG"] // k["NDIMC"], k["MDIMC"] * k["NDIMC"]
    shared = 4 * k["KWG"] * (k["SA"] * k["MWG"] + k["SB"] * k["NWG"])
    loads = (2 - k["SA"]) * rows / np.minimum(k["VWM"], rows) + (2 - k["SB"]) * columns / np.minimum(k["VWN"], columns)
    cached = 4 * gpu.rates["float32"] / L2_BYTES_PER_CYCLE * (1 / k["MWG"] + 1 / k["NWG"])
    resident = _resident(gpu, threads, shared, 32 + rows * columns + rows + columns)
    blocks, at_once = 4096**2 // (k["MWG"] * k["NWG"]), np.maximum(1, gpu.sm_count * (resident // threads))
    waste = -(-blocks // at_once) * at_once / blocks
    return np.maximum(1 + loads / (rows * columns), cached) / _hidden(resident, rows * columns) * waste


def convolution(gpu: GpuFacts, k: Knobs) -> Any:
    """Kernel Tuner's convolution of an image."""
    threads, outputs = k["block_size_x"] * k["block_size_y"], k["tile_size_x"] * k["tile_size_y"]
    wide = k["block_size_x"] * k["tile_size_x"] + k["filter_width"] - 1
    window = wide * (k["block_size_y"] * k["tile_size_y"] + k["filter_height"] - 1)
    use_shared = k.get("use_shmem", 1)  # the older kernel always does
    read = window / (threads * outputs * k["filter_width"] * k["filter_height"])
    steps = 2 + 0.5 * (1 - use_shared) + 3 / outputs + 4 * read
    hidden = _hidden(_resident(gpu, threads, 4 * use_shared * window, 24 + 2 * outputs), outputs)
    return steps * np.maximum(1, 32 / k["block_size_x"]) / hidden


def dedispersion(gpu: GpuFacts, k: Knobs) -> Any:
    """Sums along curves of a spectrogram: bound by loads, which neighbours of a warp share."""
    threads, outputs = k["block_size_x"] * k["block_size_y"], k["tile_size_x"] * k["tile_size_y"]
    hidden = _hidden(_resident(gpu, threads, 0, 24 + 2 * outputs), outputs)
    return (1 + 1 / outputs) * np.maximum(1, 16 / k["block_size_x"]) / hidden


L2_BYTES_PER_CYCLE = 36.0  # of an SM
NEEDED = 2048.0  # threads times independent multiply-adds of each that keep an SM busy
KERNELS = {"gemm": gemm, "conv": convolution, "dedispersion": dedispersion}


class EstimateHint:
    """A formula that gives times, in whatever unit; the search finds out how far it is to be believed.

    estimate  times [n] of values of the space and, of each knob, arrays [n]
    Scores are clipped as those of trials are: of slow configurations the formula says only that they are slow.
    """

    is_telling = True

    def __init__(self, estimate: Callable[[Mapping[str, Any]], Any]):
        self._estimate = estimate

    def scores(self, space: ConfigSpace, rows: np.ndarray) -> np.ndarray:
        """See `Hint`: relative to the best of the rows that the space's sample has."""
        reference = self._logs(space, space.sample_rows(np.random.default_rng(0), 2000))
        low = float(reference.min(initial=np.inf))
        limit = max(float(np.median(reference)) - low, REACH) if len(reference) else REACH
        return np.asarray(np.clip(self._logs(space, rows) - low, 0.0, limit))

    def closer(self, space: ConfigSpace, rows: np.ndarray) -> np.ndarray:
        """As `scores`."""
        return self.scores(space, rows)

    def known(self, space: ConfigSpace, n: int) -> tuple[np.ndarray, np.ndarray]:
        """Nothing was measured."""
        return np.zeros((0, len(space.knobs)), np.int32), np.zeros(0)

    def _logs(self, space: ConfigSpace, rows: np.ndarray) -> np.ndarray:
        bound = {**space.values, **{k.name: k.array[rows[:, i]] for i, k in enumerate(space.knobs)}}
        with np.errstate(divide="ignore"):
            found = np.log(np.broadcast_to(np.asarray(self._estimate(bound), np.float64), len(rows)))
        return np.asarray(np.where(np.isfinite(found), found, 50.0))


def hint_for(recording: Recording) -> EstimateHint:
    """What the device's facts expect of a recorded kernel."""
    estimate = next(e for name, e in KERNELS.items() if recording.name.startswith(name))
    return EstimateHint(functools.partial(estimate, gpu_of(recording.name)))


def mean(summaries: Sequence[Summary]) -> list[tuple[float, float]]:
    """(score, standard error) at each of POINTS, over the spaces."""
    n = len(summaries)
    return [
        (sum(s.scores[k][0] for s in summaries) / n, float(np.sqrt(sum(s.scores[k][1] ** 2 for s in summaries))) / n)
        for k in POINTS
    ]


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.search_gpu", description=__doc__.splitlines()[0])
    parser.add_argument("files", nargs="+", type=Path)
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--ahead", type=int, default=0, help="batches asked for before the outcome of one is told")
    parser.add_argument("--ways", default="knobs,facts")
    options = parser.parse_args(arguments)
    seeds = range(options.first_seed, options.first_seed + options.seeds)
    rows: list[tuple[str, ...]] = []
    for way in options.ways.split(","):
        summaries = []
        for path in options.files:
            recording = read_recording(path)
            hints = (hint_for(recording),) if way == "facts" else ()
            summary = summarise(
                recording, "auto", budget=POINTS[-1], batch=options.batch, seeds=seeds, until_optimum=True, hints=hints,
                ahead=options.ahead,
            )  # fmt: skip
            summaries.append(summary)
            rows.append(
                (recording.name, way, *(f"{summary.scores[k][0]:.3f} ± {summary.scores[k][1]:.3f}" for k in POINTS))
            )
            print(" ".join(rows[-1]), flush=True)
        judged = [s for s in summaries if s.name in JUDGED]
        if len(judged) == len(JUDGED):
            rows.append(("mean", way, *(f"{score:.3f} ± {error:.3f}" for score, error in mean(judged))))
            print(" ".join(rows[-1]), flush=True)
    if options.batch in BARS:
        rows.append(("bar", "", *(f"{bar:.3f}" for bar in BARS[options.batch])))
    title = f"Search on recorded spaces of GPU kernels: batches of {options.batch}, {options.seeds} seeds"
    text = Table(title, ("space", "search by", *map(str, POINTS)), rows).markdown()
    print(text)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
