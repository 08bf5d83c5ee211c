"""What a kernel is launched with where its author has not said: the block with the highest occupancy."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence

from autosched.codegen.cuda.user_kernel import UserKernel
from autosched.errors import AutoschedError
from autosched.own.gpu.kernel import SentKernel
from autosched.space import Config, ConfigSpace
from autosched.target import Target
from autosched.target.gpus import GpuFacts

NEAR = 256  # of equal ones the block nearest to it: smaller ones wait for launches, larger ones for their slowest warp
MOST_COMPILED = 12


def occupancy_choice(
    sent: SentKernel, space: ConfigSpace, knobs: Sequence[str], types: Sequence[object], values: Sequence[object]
) -> Config:
    """The space's default with other values of some knobs: those of the highest occupancy.

    knobs  those that `threads=` reads and nobody has set
    What does not compile or fit is passed over; where nothing does, the default stays.
    """
    named, default, gpu = sent.named(values), space.default, Target(sent.target).gpu
    candidates = [next(k.values for k in space.knobs if k.name == name) for name in knobs]
    compiled: dict[tuple[object, ...], UserKernel | None] = {}
    best, best_rank = default, (0.0, 0, 0)
    for combination in itertools.product(*candidates):
        config = default.with_knobs(**dict(zip(knobs, combination, strict=True)))
        if config not in space:
            continue
        key = tuple(config[name] for name in sent.knobs)  # what the code is made of
        if key not in compiled:
            compiled[key] = _compile(sent, config, types) if len(compiled) < MOST_COMPILED else None
        kernel = compiled[key]
        if kernel is None:
            continue
        rank = _rank(sent, kernel, {**named, **config.knobs}, gpu)
        if rank is not None and rank > best_rank:
            best, best_rank = config, rank
    return best


def _compile(sent: SentKernel, config: Config, types: Sequence[object]) -> UserKernel | None:
    try:
        return sent.compiled(config, types)
    except AutoschedError:
        return None


def _rank(
    sent: SentKernel, kernel: UserKernel, values: Mapping[str, object], gpu: GpuFacts
) -> tuple[float, int, int] | None:
    """(occupancy, multiprocessors in use, nearness to the usual block); None for a launch that is refused."""
    try:
        grid, block, shared = sent.rule.of(values)
    except AutoschedError:
        return None
    threads = block[0] * block[1] * block[2]
    used = min(grid[0] * grid[1] * grid[2], gpu.sm_count)
    return round(kernel.occupancy(gpu, threads, shared), 3), used, -abs(threads - NEAR)
