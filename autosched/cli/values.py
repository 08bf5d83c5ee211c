"""How the values of options are written: durations, shapes, sweeps, lists of tasks."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import click

SWEPT = ("threads", "batch")
UNITS_S = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
PART = re.compile(r"(\d+(?:\.\d+)?)(ms|[smhd])")


def parse_duration(text: str) -> float:
    """Read "90", "90s", "10m" or "1h30m" as seconds. Raises ValueError."""
    compact = text.strip().lower().replace(" ", "")
    if re.fullmatch(r"\d+(\.\d+)?", compact):
        seconds = float(compact)
    elif re.fullmatch(rf"(?:{PART.pattern})+", compact):
        seconds = sum(float(number) * UNITS_S[unit] for number, unit in PART.findall(compact))
    else:
        raise ValueError(f"'{text}' is no duration; write 90s, 10m or 1h30m")
    if seconds <= 0:
        raise ValueError(f"'{text}' is no time at all")
    return seconds


def parse_shapes(text: str) -> dict[str, tuple[int, ...]]:
    """Read "x:1x3x224x224,y:1x10" or "x[1,3,224,224],y[1,10]"; "x:" is a scalar. Raises ValueError.

    Names may hold colons and slashes: the shape follows the last colon.
    """
    shapes: dict[str, tuple[int, ...]] = {}
    rest = text.strip()
    while rest:
        bracket = re.match(r"([^\[\],]+)\[([\d,\s]*)\]\s*(?:,|$)", rest)
        colon = re.match(r"([^,]+):(\d+(?:x\d+)*|)\s*(?:,|$)", rest)
        found = bracket or colon
        if not found:
            raise ValueError(f"cannot read the shape at '{rest}'; write x:1x3x224x224 or x[1,3,224,224]")
        name, dims = found[1].strip(), re.split(r"[x,\s]+", found[2].strip()) if found[2].strip() else []
        if name in shapes:
            raise ValueError(f"two shapes for '{name}'")
        shapes[name] = tuple(int(dim) for dim in dims if dim)
        if not all(shapes[name]):
            raise ValueError(f"a dimension of '{name}' is zero")
        rest = rest[found.end() :].strip()
    if not shapes:
        raise ValueError("no shape given; write x:1x3x224x224")
    return shapes


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


class Count(click.IntRange):
    """A whole number; click's own range calls itself "integer range" in messages."""

    name = "whole number"


class Parsed(click.ParamType):  # type: ignore[type-arg]  # generic only since click 8.2
    """An option's type from one of the functions above; its ValueError becomes a usage error."""

    def __init__(self, name: str, parse: Any):
        self.name = name
        self.parse = parse

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if not isinstance(value, str):
            return value
        try:
            return self.parse(value)
        except ValueError as error:
            self.fail(str(error), param, ctx)


DURATION = Parsed("duration", parse_duration)
SHAPES = Parsed("shapes", parse_shapes)
SWEEP = Parsed("threads=N,…", parse_sweep)
PERCENTILES = Parsed("percentiles", parse_percentiles)
SHARE = Parsed("share", parse_share)
INDICES = Parsed("indices", parse_indices)


def format_shapes(shapes: Mapping[str, tuple[int, ...]]) -> str:
    """Write shapes the way --shapes reads them."""
    return ",".join(f"{name}:{'x'.join(map(str, shape))}" for name, shape in shapes.items())
