"""How the values of options are written: durations, shapes, sweeps, lists of tasks."""

from __future__ import annotations

import re
from collections.abc import Callable

import click

from autosched.durations import parse_duration as parse_duration

SWEPT = ("threads", "batch")
SIZE = r"\d+(?:\.\.\d+)?"


def parse_shapes(text: str) -> dict[str, tuple[int, ...]]:
    """Read "x:1x3x224x224,y:1x10" or "x[1,3,224,224],y[1,10]"; "x:" is a scalar. Raises ValueError.

    Names may hold colons and slashes: the shape follows the last colon.
    """
    shapes = parse_ranges(text)
    if any(isinstance(size, range) for shape in shapes.values() for size in shape):
        raise ValueError("a range of sizes stands for many shapes; `autosched tune` and `build` take one")
    return {name: tuple(size for size in shape if isinstance(size, int)) for name, shape in shapes.items()}


def parse_ranges(text: str) -> dict[str, tuple[int | range, ...]]:
    """Read shapes as `parse_shapes` does, where sizes may be ranges: "x:1..512x784". Raises ValueError."""
    shapes: dict[str, tuple[int | range, ...]] = {}
    rest = text.strip()
    while rest:
        bracket = re.match(r"([^\[\],]+)\[([\d.,\s]*)\]\s*(?:,|$)", rest)
        colon = re.match(rf"([^,]+):({SIZE}(?:x{SIZE})*|)\s*(?:,|$)", rest)
        found = bracket or colon
        if not found:
            raise ValueError(f"cannot read the shape at '{rest}'; write x:1x3x224x224 or x[1,3,224,224]")
        name, dims = found[1].strip(), re.split(r"[x,\s]+", found[2].strip()) if found[2].strip() else []
        if name in shapes:
            raise ValueError(f"two shapes for '{name}'")
        shapes[name] = tuple(_size(dim) for dim in dims if dim)
        if not all(size.start if isinstance(size, range) else size for size in shapes[name]):
            raise ValueError(f"a dimension of '{name}' is zero")
        rest = rest[found.end() :].strip()
    if not shapes:
        raise ValueError("no shape given; write x:1x3x224x224")
    return shapes


def _size(text: str) -> int | range:
    """Read "8", or "1..512" as a range that holds both ends."""
    if not re.fullmatch(SIZE, text):
        raise ValueError(f"'{text}' is no size; write 8, or 1..512")
    low, dots, high = text.partition("..")
    if not dots:
        return int(low)
    if int(high) <= int(low):
        raise ValueError(f"'{text}' counts backwards")
    return range(int(low), int(high) + 1)


def parse_sweep(text: str) -> tuple[str, tuple[int, ...]]:
    """Read "threads=1,2,4" or "batch=1,8": what is swept, and over which numbers. Raises ValueError."""
    name, _, values = text.partition("=")
    numbers = [number.strip() for number in values.split(",")]
    if name.strip() not in SWEPT or not all(n.isascii() and n.isdigit() and int(n) for n in numbers):
        raise ValueError(f"'{text}' is no sweep; write threads=1,2 or batch=1,8")
    return name.strip(), tuple(int(number) for number in numbers)


def parse_percentiles(text: str) -> tuple[float, ...]:
    """Read "50,90,99.9". Raises ValueError."""
    try:
        found = tuple(dict.fromkeys(float(part) for part in text.split(",")))
    except ValueError:
        found = (-1.0,)
    if not all(0 <= p <= 100 for p in found):
        raise ValueError(f"'{text}' are no percentiles; write 50,90,99.9")
    return found


def parse_share(text: str) -> float:
    """Read "+5%", "5%" or "0.05" as 0.05. Raises ValueError."""
    found = re.fullmatch(r"\+?(\d+(?:\.\d+)?)\s*(%?)", text.strip())
    if not found:
        raise ValueError(f"'{text}' is no share; write +5%")
    return float(found[1]) / (100 if found[2] else 1)


def parse_indices(text: str) -> tuple[int, ...]:
    """Read "0,3-5" as (0, 3, 4, 5). Raises ValueError."""
    found: list[int] = []
    for part in text.split(","):
        span = re.fullmatch(r"\s*(\d+)(?:\s*-\s*(\d+))?\s*", part)
        if not span:
            raise ValueError(f"'{text}' is no list of tasks; write 0,3-5")
        first = int(span[1])
        last = int(span[2]) if span[2] else first
        if last < first:
            raise ValueError(f"'{part.strip()}' counts backwards")
        found += range(first, last + 1)
    return tuple(dict.fromkeys(found))


def parse_cpus(text: str) -> tuple[str, ...]:
    """Read "x86-64-v3,x86-64-v4". Raises ValueError for a name that is no CPU, or stands there twice."""
    from autosched.errors import TargetError
    from autosched.target.cpus import features_of

    names = tuple(name.strip() for name in text.split(","))
    try:
        for name in names:
            features_of(name)
    except TargetError as error:
        raise ValueError(error.line) from None
    if len({*names}) < len(names):
        raise ValueError(f"'{text}' names a CPU twice")
    return names


class Count(click.IntRange):
    """A whole number; click's own range calls itself "integer range" in messages."""

    name = "whole number"


class Parsed(click.ParamType):  # type: ignore[type-arg]  # generic only since click 8.2
    """An option's type from one of the functions above; its ValueError becomes a usage error."""

    def __init__(self, name: str, parse: Callable[[str], object]):
        self.name = name
        self.parse = parse

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> object:
        if not isinstance(value, str):
            return value
        try:
            return self.parse(value)
        except ValueError as error:
            self.fail(str(error), param, ctx)


DURATION = Parsed("duration", parse_duration)
SHAPES = Parsed("shapes", parse_shapes)
RANGES = Parsed("shapes", parse_ranges)
SWEEP = Parsed("threads=N,…", parse_sweep)
PERCENTILES = Parsed("percentiles", parse_percentiles)
SHARE = Parsed("share", parse_share)
CPUS = Parsed("CPUs", parse_cpus)
INDICES = Parsed("indices", parse_indices)
