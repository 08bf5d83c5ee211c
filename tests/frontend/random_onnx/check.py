"""What is wrong with the builds of random models: their results against ONNX Runtime's."""

from __future__ import annotations

import random
import re
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

import autosched
from autosched.errors import AutoschedError
from autosched.records import Found, Trust
from autosched.records.found import Validator, miss
from autosched.task import Task
from autosched.templates import space_for
from tests.frontend.random_onnx.models import CALL_SIZES, RandomModel, random_model
from tests.frontend.random_onnx.noise import Reference, Undefined, spread_of
from tests.frontend.random_onnx.opsets import lowered

CALLS = 3  # of a model with open sizes
RUNS, MORE_RUNS = 3, 40  # with noise: at first, and before something is said to be wrong
MOST_RESULTS = 400_000
TOLERANCE = {"float16": 2e-2, "float32": 3e-4, "float64": 1e-6}  # float64: functions in Numba's accuracy
NEVER_EMPTY = {"conv_transpose", "recurrent"}  # ONNX Runtime crashes on no pixels of one, no batches of the other
REFUSED = ("string", "STRING", "to object")  # texts may be refused although all sizes are known
# and on GPUs what a library computes, and sizes that follow from data
REFUSED_ON_GPUS = ("NonZero", "Unique", "follows from data", "has no elements", "to float8", "GridSample")


@dataclass(frozen=True)
class Options:
    """How models are made and built.

    share_open     the share of models with open sizes
    share_drawn    the share whose configurations are drawn from the search spaces
    share_strict   the share built with accuracy="strict"
    share_old      the share in older versions of ONNX
    share_edges    the share of inputs that have infinities, NaN and integers of many bits among their numbers
    only           of these kinds alone
    """

    target: str = "cpu"
    share_open: float = 0.3
    share_drawn: float = 0.3
    share_strict: float = 0.1
    share_old: float = 0.3
    share_edges: float = 0.0
    most_steps: int = 6
    only: tuple[str, ...] = ()

    @property
    def is_emulated(self) -> bool:
        """Whether kernels are launched on the emulator of GPUs."""
        return self.target.startswith("cuda")


@dataclass(frozen=True)
class DrawnConfigs:
    """Records that have a random configuration of every kernel."""

    seed: int

    def best(self, task: Task, valid: Validator | None = None) -> Found:
        """The first of some that can be used; the same for the same task."""
        rng = np.random.default_rng([self.seed, *task.key.encode()])
        for config in space_for(task.func, task.target).sample(rng, 4):
            if valid is None or not valid(config):
                return Found(config, "drawn", Trust.PINNED)
        return miss("drawn", "none of those drawn can be used")


@dataclass(frozen=True)
class Plan:
    """How the model of a seed is made and built."""

    seed: int
    is_open: bool
    build: dict[str, Any]

    def __str__(self) -> str:
        how = ["open sizes"] if self.is_open else []
        how += ["drawn configurations"] if isinstance(self.build["records"], DrawnConfigs) else []
        return ", ".join([*how, *(f"{k} {v}" for k, v in self.build.items() if k != "records")])


def plan_of(seed: int, options: Options) -> Plan:
    """The same for the same seed and options."""
    r = random.Random(f"plan {seed}")
    is_open = r.random() < options.share_open
    records: Any = DrawnConfigs(seed) if r.random() < options.share_drawn else []
    build = {"records": records, "threads": r.choice([1, 2]), "target": options.target}
    if r.random() < options.share_strict:
        build["accuracy"] = "strict"
    return Plan(seed, is_open, build)


def model_of(plan: Plan, options: Options) -> RandomModel:
    """The model of a plan."""
    made = random_model(
        plan.seed, is_open=plan.is_open, is_small=options.is_emulated, most_steps=options.most_steps, only=options.only
    )
    r = random.Random(f"form {plan.seed}")
    model = lowered(made.model, plan.seed) if r.random() < options.share_old else made.model
    return replace(made, model=model, has_edges=r.random() < options.share_edges)


@contextmanager
def _device(options: Options) -> Iterator[None]:
    context: Any = nullcontext()
    if options.is_emulated:
        from autosched.codegen.cuda.emulate.driver import EmulatorDriver
        from autosched.runtime.cuda.devices import use_driver

        context = use_driver(EmulatorDriver)
    with context:
        yield


def check(made: RandomModel, plan: Plan) -> tuple[str, str]:
    """(what became of a model, what is wrong with it; an empty text where all is well)."""
    try:
        reference = Reference(made.model)
        if not made.names:
            reference.run(made.feeds(0, {}))
    except Undefined as error:
        return f"undefined: {error}", ""
    except Exception as error:
        return f"not taken by ONNX Runtime: {_short(str(error))}", ""
    try:
        built = autosched.build(made.model, **plan.build)
    except AutoschedError as error:
        refused = REFUSED + (REFUSED_ON_GPUS if plan.build["target"].startswith("cuda") else ())
        may_be = plan.is_open or any(text in str(error) for text in refused)
        return f"refused: {_short(error.line)}", "" if may_be else f"refused: {error.line}"
    compared, kind = 0, "no calls"
    for number, sizes in enumerate(_calls(made)):
        feeds = made.feeds(number, sizes)
        at = f"at {sizes}: " if sizes else ""
        try:
            expected = reference.run(feeds)
        except Undefined as error:
            return f"undefined: {error}", ""
        except Exception as error:
            kind = f"not run by ONNX Runtime: {_short(str(error))}"
            continue
        if max(e.size for e in expected) > MOST_RESULTS:
            kind = "too large"
            continue
        try:
            results = built(**feeds)
        except AutoschedError as error:
            kind = f"call refused: {_short(error.line)}"
            if not plan.is_open:
                return kind, f"the call is refused: {error.line}"
            continue
        found = [r.numpy() for r in (results if isinstance(results, list | tuple) else [results])]
        try:
            problem = difference(found, expected, reference, feeds)
        except Undefined as error:
            return f"undefined: {error}", ""
        if problem:
            return "wrong", at + problem
        compared += 1
    return ("open sizes" if plan.is_open else "known sizes") if compared else kind, ""


def _calls(made: RandomModel) -> Iterator[dict[str, int]]:
    """Sizes of the calls: one without open ones; a size of zero is seldom."""
    r = random.Random(f"calls {made.seed}")
    if not made.names:
        yield {}
        return
    share_empty = 0 if NEVER_EMPTY & {*made.kinds} else 0.03
    for _ in range(CALLS):
        yield {name: 0 if r.random() < share_empty else r.choice(CALL_SIZES) for name in made.names}


def difference(
    found: list[np.ndarray], expected: list[np.ndarray], reference: Reference, feeds: dict[str, np.ndarray]
) -> str:
    """What is wrong with results; an empty text where they are those of ONNX Runtime up to rounding."""
    problem = _difference(found, expected, [reference.run(feeds, 1.0, salt) for salt in range(RUNS)])
    if problem and not problem.startswith("shape"):
        problem = _difference(found, expected, [reference.run(feeds, 2.0, salt) for salt in range(MORE_RUNS)])
    return problem


def _difference(found: list[np.ndarray], expected: list[np.ndarray], disturbed: list[list[np.ndarray]]) -> str:
    for n, (ours, theirs) in enumerate(zip(found, expected, strict=True)):
        others = [run[n] for run in disturbed]
        if ours.dtype != theirs.dtype:
            return f"shape: result {n} is {ours.dtype} instead of {theirs.dtype}"
        if any(o.shape != theirs.shape for o in others):
            continue  # sizes that follow from data
        if ours.shape != theirs.shape:
            return f"shape: result {n} is {ours.shape} instead of {theirs.shape}"
        if not ours.size:
            continue
        spread, a, b = spread_of(theirs, others), ours.astype("float64"), theirs.astype("float64")
        usual = float(np.median(np.abs(b[np.isfinite(b)]))) if np.isfinite(b).any() else 0.0
        with np.errstate(invalid="ignore", over="ignore"):
            allowed = TOLERANCE.get(str(theirs.dtype), 0.0) * (np.abs(b) + usual) + 10 * spread
            allowed = np.where(np.isfinite(allowed), allowed, np.where(np.isfinite(spread), 0.0, np.inf))
            bad = ~((np.abs(a - b) <= allowed) | (a == b) | (np.isnan(a) & np.isnan(b)) | (spread == np.inf))
        if bad.any():
            where = np.flatnonzero(bad.ravel())[:4]
            pairs = ", ".join(f"{ours.ravel()[k]} instead of {theirs.ravel()[k]} (at {k})" for k in where)
            return f"result {n}, {ours.dtype}{list(ours.shape)}: {bad.sum()} of {bad.size} elements differ: {pairs}"
    return ""


def _short(text: str) -> str:
    """A message without what differs from model to model."""
    lines = [line for line in text.splitlines() if line.strip()] or [""]
    return re.sub(r"\d+", "N", re.sub(r"'[^']*'|\b[a-z]+\d+\w*", "…", lines[0]))[:110]


def outcome(seed: int, options: Options) -> tuple[int, str, str]:
    """The seed, what became of its model, and what is wrong; an exception is wrong."""
    plan = plan_of(seed, options)
    try:
        made = model_of(plan, options)
        with _device(options):
            kind, problem = check(made, plan)
    except Exception as error:
        return seed, "error", f"{type(error).__name__}: {error} ({plan})"
    return seed, kind, problem and f"{problem} ({plan}; {', '.join(made.kinds)})"
