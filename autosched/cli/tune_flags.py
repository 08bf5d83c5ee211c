"""The flags of `autosched tune` that say how to search and measure; they become `TuneOptions`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import click

from autosched.cli import completion
from autosched.cli.values import DURATION, INDICES, SHARE, Count
from autosched.errors import UsageError

if TYPE_CHECKING:
    from autosched.driver import TuneOptions


@dataclass(frozen=True)
class SearchFlags:
    """What the flags say; see `with_search`."""

    budget: float | None
    trials: int | None
    until: float | None
    tasks: tuple[int, ...] | None
    strategy: str
    seed: int
    spaces: Path | None
    cache: Literal["auto", "cold", "warm"]
    cold: bool
    fresh: bool
    verify: Literal["model", "task"]
    run_as: Literal["latency", "throughput"]
    graph: bool
    precision: str | None

    def options(self, threads: int | None) -> TuneOptions:
        """The options of `driver.tune`. Raises UsageError for a strategy that does not exist."""
        from autosched.driver import TuneOptions
        from autosched.tuner.search.registry import strategies

        if self.strategy not in ("auto", *strategies()):
            raise UsageError(f"no strategy '{self.strategy}'", hint=f"there are auto, {', '.join(strategies())}")
        return TuneOptions(
            budget=self.budget,
            trials=self.trials,
            until=0.01 if self.until is None else self.until,
            threads=threads,
            strategy=self.strategy,
            seed=self.seed,
            tasks=self.tasks,
            spaces=self.spaces,
            cache=self.cache,
            hints=not self.cold,
            fresh=self.fresh,
            verify=self.verify,
            run_as=self.run_as,
            graph=self.graph,
            precision=self.precision,
        )


OPTIONS = (
    click.option("--budget", type=DURATION, help="Stop after this time: 90s, 10m, 1h30m; a number alone is seconds."),
    click.option(
        "--trials", type=Count(min=1), metavar="N", help="Stop after so many measurements, all tasks together."
    ),
    click.option("--until", type=SHARE, metavar="SHARE", help="Stop when less than this is expected: 1% (default), 0."),
    click.option("--tasks", type=INDICES, help="Tune only these tasks of --list: 0,3-5."),
    click.option(
        "--strategy",
        default="auto",
        show_default=True,
        metavar="NAME",
        shell_complete=completion.names(completion.strategies),
        help="How to search: random, gp, xgboost, …",
    ),
    click.option("--seed", type=Count(min=0), metavar="S", default=0, show_default=True, help="Of the search."),
    click.option(
        "--spaces", type=click.Path(path_type=Path), metavar="DIR", help="Search spaces before the project's own."
    ),
    click.option(
        "--cache",
        type=click.Choice(("auto", "cold", "warm")),
        default="auto",
        show_default=True,
        help="How kernels find their weights: cold as in a model, or warm as in a loop of calls.",
    ),
    click.option("--cold", is_flag=True, help="Ignore records of other workloads, devices and versions."),
    click.option("--fresh", is_flag=True, help="Start a new budget even if an earlier run was killed before it ended."),
    click.option(
        "--verify",
        type=click.Choice(("model", "task")),
        default="model",
        show_default=True,
        help="Judge winners inside the built model too, or each alone.",
    ),
    click.option(
        "--as",
        "run_as",
        type=click.Choice(("latency", "throughput")),
        default="latency",
        show_default=True,
        help="Measure one instance alone, or one thread while others run on the other cores.",
    ),
    click.option(
        "--graph", is_flag=True, help="Search layouts and fusion of the whole model first, in a quarter of the budget."
    ),
    click.option(
        "--precision",
        type=click.Choice(("float32", "bf16", "tf32")),
        help="Tune what `build --precision` builds: its kernels are other ones.",
    ),
)


def with_search(function: Callable[..., object]) -> Callable[..., object]:
    """Add the flags; the command gets them as one argument `search`, a `SearchFlags`."""

    def run(*args: object, **values: Any) -> object:
        flags = SearchFlags(**{name: values.pop(name) for name in SearchFlags.__dataclass_fields__})
        return function(*args, search=flags, **values)

    run.__doc__ = function.__doc__
    run.__click_params__ = getattr(function, "__click_params__", [])  # type: ignore[attr-defined]
    decorated: Callable[..., object] = run
    for option in reversed(OPTIONS):
        decorated = option(decorated)
    return decorated
