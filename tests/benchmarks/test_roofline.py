"""The roofline's table and file of a made-up profile."""

from __future__ import annotations

import csv
from pathlib import Path

from autosched.driver.bench.peaks import Level, Peaks
from autosched.driver.bench.profile import KernelProfile, NodeProfile, Profile
from benchmarks.roofline import table, write_csv

KERNEL = KernelProfile(
    kernel="k", workload="w", template="conv2d", origin="template default", trust="default", config="{}", threads=1,
    calls=2, seconds=2e-3, share=1.0, flops=50_000_000, size_bytes=1_000_000, peak_share=0.5, bound="compute",
)  # fmt: skip
PROFILE = Profile(
    name="net",
    threads=1,
    kernels=(KERNEL,),
    nodes=(NodeProfile("a", "k", 1e-3), NodeProfile("b", "k", 1e-3)),
    end_to_end_s=2.5e-3,
    sum_s=2e-3,
    peaks=Peaks(1, 1e11, (Level("memory", 10**9, 2e10),)),
)


def test_a_line_holds_the_rates_of_all_calls_together() -> None:
    text = table(PROFILE).markdown()
    assert "| k | 2 | 2 | 100.0 % | 50.0 | 1.0 | 50 % | compute | conv2d | template default |" in text
    assert "sum of kernels 2 ms, end to end 2.5 ms (80.0 %)" in text
    assert "peaks on 1 thread: 100 GFLOP/s; reading GB/s: memory 20" in text


def test_csv_has_full_values(tmp_path: Path) -> None:
    write_csv(PROFILE, tmp_path / "k.csv")
    with open(tmp_path / "k.csv", newline="") as file:
        (row,) = csv.DictReader(file)
    assert float(row["gflops"]) == 50
    assert row["config"] == "{}"
