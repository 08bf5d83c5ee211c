"""How durations are written: "90s", "10m", "1h30m"."""

from __future__ import annotations

import re

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
