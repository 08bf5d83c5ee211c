"""The clock and what heat did to it go with a measurement where the system tells them."""

from __future__ import annotations

from pathlib import Path

import pytest

from autosched.tuner.measure import clock


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Two CPUs of ours, and one of somebody else."""
    monkeypatch.setattr(clock, "_own_cpus", lambda: [0, 3])
    for cpu, khz, count in ((0, 2_100_400, 5), (1, 9_000_000, 900), (3, 3_400_600, 7)):
        for name, value in (("cpufreq/scaling_cur_freq", khz), ("thermal_throttle/core_throttle_count", count)):
            path = tmp_path / f"cpu{cpu}" / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(f"{value}\n")
    return tmp_path


def test_only_our_cpus_count(root: Path) -> None:
    assert clock.clock_khz(root) == 3_400_600 and clock.throttle_count(root) == 12
    assert clock.clock_facts(12, root) == {"clock_mhz": 3401}
    assert clock.clock_facts(9, root) == {"clock_mhz": 3401, "throttled": 3}


def test_a_system_that_tells_nothing(root: Path) -> None:
    assert clock.clock_khz(root / "none") is None and clock.throttle_count(root / "none") is None
    assert clock.clock_facts(None, root / "none") == {}
    (root / "cpu0/cpufreq/scaling_cur_freq").write_text("<unknown>\n")
    (root / "cpu3/cpufreq/scaling_cur_freq").write_text("")
    assert clock.clock_facts(None, root) == {}
