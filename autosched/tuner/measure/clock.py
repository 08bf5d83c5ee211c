"""What the system tells of the processor's clock: evidence that a time was, or was not, measured at full speed."""

from __future__ import annotations

import os
from pathlib import Path

ROOT = Path("/sys/devices/system/cpu")  # virtual machines mostly show no clock there


def clock_khz(root: Path = ROOT) -> int | None:
    """The fastest clock of the CPUs that this process may use, in kHz; None where nobody tells."""
    return max(_numbers(root, "cpufreq/scaling_cur_freq"), default=None)


def throttle_count(root: Path = ROOT) -> int | None:
    """How often these CPUs have been slowed down for heat since the system has started; None where nobody tells."""
    found = _numbers(root, "thermal_throttle/core_throttle_count")
    return sum(found) if found else None


def clock_facts(before: int | None, root: Path = ROOT) -> dict[str, int]:
    """Fields for a measurement's `how`: "clock_mhz" now, and "throttled", how often since `before` was counted."""
    facts: dict[str, int] = {}
    if (khz := clock_khz(root)) is not None:
        facts["clock_mhz"] = round(khz / 1000)
    if before is not None and (now := throttle_count(root)) is not None and now > before:
        facts["throttled"] = now - before
    return facts


def _numbers(root: Path, name: str) -> list[int]:
    found = []
    for cpu in _own_cpus():
        try:
            found.append(int((root / f"cpu{cpu}" / name).read_text()))
        except (OSError, ValueError):
            continue
    return found


def _own_cpus() -> list[int]:
    return sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else []
