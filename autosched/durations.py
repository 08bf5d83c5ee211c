"""How durations are written: "90s", "10m", "1h30m"; and the steps of long work with theirs."""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Iterator
from contextlib import contextmanager

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


def with_unit(seconds: float) -> str:
    """Write seconds as people say them: "10 s", "90 s", "10 min", "1 h 30 min"."""
    if seconds < 120:
        return f"{seconds:g} s"
    minutes = round(seconds / 60)
    hours, rest = divmod(minutes, 60)
    return " ".join(([f"{hours} h"] if hours else []) + ([f"{rest} min"] if rest or not hours else []))


@contextmanager
def step(where: str, what: str) -> Iterator[None]:
    """Log what a step of a build did and how long it took; `autosched build -vv` shows it.

    where  the file that does it, "codegen/compile.py": docs/architecture.md follows a model through the same files
    """
    start = time.perf_counter()
    yield
    log_step(where, what, time.perf_counter() - start)


def log_step(where: str, what: str, seconds: float) -> None:
    """Log a step that is over."""
    logging.getLogger("autosched.steps").debug("%9.1f ms  %-34s %s", 1e3 * seconds, where, what)
