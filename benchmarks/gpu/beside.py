"""A function beside PyTorch, and configurations near its default."""

from __future__ import annotations

import itertools
import math
import operator
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

import autosched
from autosched.errors import AutoschedError
from autosched.records import FallbackContext
from autosched.runtime import array, cuda
from autosched.space import Config, ConfigSpace
from autosched.target import Target
from autosched.templates import apply_config, templates_for
from autosched.templates.base import Estimates
from autosched.tir import PrimFunc
from benchmarks.gpu.bench import Bench, Row, normal, prepared
from benchmarks.gpu.timing import difference, in_turn, replayed, torch_replayed

AROUND_S = 8.0  # for the configurations near one default


def against(
    bench: Bench, name: str, func: PrimFunc, peer: Callable[[Any, list[Any]], Callable[[], Any]] | None,
    flops: float = 0, size_bytes: float = 0,
) -> list[Row]:  # fmt: skip
    """A function beside PyTorch's on the same data: `peer` gives, of torch and its inputs, what is called."""
    if bench.only_builds:
        for _ in _measure_around(bench, name, func, []):
            pass
    function, arrays = prepared(bench, func)
    torch, timed, note = bench.torch, None, ""
    if torch is not None and peer is not None:
        call = peer(torch, [torch.from_dlpack(a) for a in arrays[:-1]])
        function(*arrays)
        note = difference(torch, torch.from_dlpack(arrays[-1]), call())
        timed = torch_replayed(torch, call)
    ours, theirs = in_turn(bench, replayed(function, arrays), timed)
    rate = (
        f"{flops / ours / 1e12:.2f} TFLOP/s" if flops else f"{size_bytes / ours / 1e9:.0f} GB/s" if size_bytes else ""
    )
    return [Row(name, ours, theirs, rate, note), *_measure_around(bench, name, func, arrays)]


def _measure_around(bench: Bench, name: str, func: PrimFunc, arrays: list[Any]) -> Iterator[Row]:
    """Configurations near the defaults of the templates that match, on the same data; wrong ones say so."""
    torch, deadline = bench.torch, time.monotonic() + AROUND_S
    expected = torch.from_dlpack(arrays[-1]).clone() if torch is not None and bench.around else None
    for config in near_defaults(func, bench.target, bench.around):
        what, note = f"{name}: {config}", ""
        try:
            scheduled = apply_config(func, config, bench.target).func
            entry = autosched.build(scheduled, target=bench.target, records=FallbackContext()).entry_func
            if bench.only_builds:
                continue
            given = [
                a if a.shape == arg.shape else array(normal(arg.shape, arg.dtype), cuda(0))
                for a, arg in zip(arrays, entry.args, strict=True)
            ]
            if expected is not None and all(map(operator.is_, given, arrays)):
                entry(*arrays)
                note = difference(torch, torch.from_dlpack(arrays[-1]), expected)
            yield Row(what, in_turn(bench, replayed(entry, given), None, rounds=3)[0], note=note)
        except AutoschedError as problem:
            yield Row(what, note=f"{type(problem).__name__}: {problem.line[:150]}")
        if not bench.only_builds and time.monotonic() > deadline:
            return


def near_defaults(func: PrimFunc, target: Target, most: int) -> list[Config]:
    """At most so many configurations that differ from a template's default in one knob or two.

    Templates take turns, but for those whose default is estimated to take more than twice the time of the best. Weights
    that a configuration packs are drawn anew, packed.
    """
    matches = templates_for(func, target) if most else ()
    defaults = [(t, anchor, t.default(anchor, target)) for t, anchor in matches]
    cycles = [t.estimate(a, config, target) if isinstance(t, Estimates) else math.inf for t, a, config in defaults]
    queues = [
        _near(template.space(anchor, target), config)
        for (template, anchor, config), estimate in zip(defaults, cycles, strict=True)
        if estimate <= 2 * min(cycles)
    ]
    taken = itertools.chain.from_iterable(itertools.zip_longest(*queues))
    return list(itertools.islice((config for config in taken if config is not None), most))


def _near(space: ConfigSpace, start: Config) -> Iterator[Config]:
    """The configuration itself, those that differ in one knob, and those that differ in two, in a random order."""
    rng, seen = np.random.default_rng(0), {start}
    yield start
    once = space.neighbours(start)
    once = [once[i] for i in rng.permutation(len(once))]
    twice = [near for config in once for near in space.neighbours(config)]
    for config in [*once, *(twice[i] for i in rng.permutation(len(twice)))]:
        if config not in seen:
            seen.add(config)
            yield config
