"""Estimates from a device's facts: large register tiles before small ones, shared memory before none."""

from __future__ import annotations

import gzip
from pathlib import Path

import numpy as np
import pytest

from benchmarks.search_gpu import gemm, gpu_of, main

KNOBS = {"KWG": 32, "MDIMA": 8, "NDIMB": 8, "KWI": 2, "STRM": 0, "STRN": 0, "PRECISION": 32, "VWM": 2, "VWN": 2}


def estimate(**changed: int) -> float:
    base = {"MWG": 64, "NWG": 64, "MDIMC": 16, "NDIMC": 16, "SA": 1, "SB": 1, **KNOBS}
    knobs = {name: np.array([value]) for name, value in {**base, **changed}.items()}
    return float(gemm(gpu_of("gemm_RTX_3090"), knobs)[0])


def test_larger_register_tiles_and_shared_memory_are_faster() -> None:
    assert estimate() < estimate(MWG=16, NWG=16)
    assert estimate() < estimate(SA=0, SB=0)
    assert estimate() < estimate(VWM=1, VWN=1)


def test_a_recording_is_searched_both_ways(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lines = ["# small", "block_size_x,block_size_y,tile_size_x,tile_size_y,time_ms,status"]
    lines += [f"{x},{y},{t},1,{1 + 1 / (x * t) + y},ok" for x in (8, 16, 32) for y in (1, 2, 4) for t in (1, 2, 3)]
    path = tmp_path / "dedispersion_A4000.csv.gz"
    path.write_bytes(gzip.compress("\n".join(lines).encode()))
    assert main([str(path), "--seeds", "1"]) == 0
    assert "| dedispersion_A4000 | facts |" in capsys.readouterr().out
