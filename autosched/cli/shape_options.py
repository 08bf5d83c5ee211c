"""The options of `tune` that say for which shapes: one, or a range of them as trtexec writes it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from autosched.cli.common import Common
from autosched.cli.measuring import Elsewhere
from autosched.cli.model import Shapes, load_module
from autosched.cli.output import say
from autosched.cli.values import RANGES, SHAPES
from autosched.cli.waiting import Waiting
from autosched.errors import UsageError

if TYPE_CHECKING:
    from autosched.driver import TuneOptions
    from autosched.driver.tune.shapes import Ranges
    from autosched.ir import IRModule

NAMES = ("shapes", "min_shapes", "opt_shapes", "max_shapes")


def with_shapes(function: Callable[..., object]) -> Callable[..., object]:
    """Add --shapes and trtexec's three; the command gets the shapes to tune for, some or none, as `points`."""

    def run(*args: object, **values: Any) -> object:
        return function(*args, points=points_of(*(values.pop(name) for name in NAMES)), **values)

    run.__doc__ = function.__doc__
    run.__click_params__ = getattr(function, "__click_params__", [])  # type: ignore[attr-defined]
    decorated: Callable[..., object] = run
    for option in (
        click.option("--max-shapes", type=SHAPES, help="The largest shapes of a range."),
        click.option(
            "--opt-shapes", type=SHAPES, help="The most important shapes between --min-shapes and --max-shapes."
        ),
        click.option("--min-shapes", type=SHAPES, help="The smallest shapes of a range."),
        click.option(
            "--shapes", type=RANGES, help='Shapes of dynamic inputs: "x:1x3x224x224"; ranges: "x:1..512x784".'
        ),
    ):
        decorated = option(decorated)
    return decorated


def points_of(
    shapes: Ranges | None, least: Shapes | None, best: Shapes | None, most: Shapes | None
) -> tuple[Shapes, ...]:
    """The shapes to tune for: none where nothing was said, several for a range.

    Raises  UsageError for options that do not belong together.
    """
    if (least is None) != (most is None) or (best is not None and least is None):
        raise UsageError("--min-shapes and --max-shapes belong together, and --opt-shapes to them")
    if least is not None and most is not None:
        if shapes is not None:
            raise UsageError("--shapes and --min-shapes exclude each other")
        from autosched.driver.tune.shapes import between

        shapes = between(least, most)
    if shapes is None:
        return ()
    from autosched.driver.tune.shapes import lies_in, representatives

    if best is not None and not lies_in(best, shapes):
        raise UsageError("--opt-shapes is not between --min-shapes and --max-shapes")
    return representatives(shapes, best)


def check_ends(model: Path, points: Sequence[Shapes]) -> None:
    """Refuse a range of shapes that does not fit the model. Raises ShapeError, UsageError."""
    from autosched.driver.tune.shapes import check_ends

    check_ends(lambda shapes: load_module(model, shapes, quiet=True), points)


def settle_shapes(
    common: Common,
    model: Path,
    points: Sequence[Shapes],
    options: TuneOptions,
    elsewhere: Elsewhere,
) -> None:
    """Measure every winner at every shape, store which one is used where, and say so."""
    from autosched.driver.tune.shapes import settle

    def load(shapes: Shapes) -> IRModule:
        return load_module(model, shapes, quiet=True)

    with elsewhere.measuring(common, options) as place:
        with Waiting(f"measuring every winner at {len(points)} shapes", quiet=common.is_quiet):
            rules = settle(load, points, records=common.db[0] if common.db else None, **place)
    for rule in rules:
        say(rule.text, quiet=common.is_quiet)
