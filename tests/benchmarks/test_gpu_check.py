"""`make gpu-check`: refuses clearly without a GPU, and the code of its sections runs on the emulator."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

pytest.importorskip("numba_cuda", reason="the CUDA packages are an extra")

from autosched.target.cuda_host import has_cuda_driver
from benchmarks import gpu_check
from benchmarks.gpu_sections import SECTIONS, Bench, Row

QUICK = ("overhead", "small-m")


@pytest.mark.skipif(has_cuda_driver(), reason="a CUDA driver is here")
def test_without_a_gpu_it_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    assert gpu_check.main([]) == 2
    assert "cuda:0 does not exist" in capsys.readouterr().err


def test_an_unknown_section(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        gpu_check.main(["--only", "speed"])
    assert "no section speed" in capsys.readouterr().err


def rows_of(out: Path) -> list[Row]:
    return [Row.read(json.loads(line)) for line in out.read_text().splitlines()]


@pytest.mark.parametrize(
    "section", [pytest.param(name, marks=[] if name in QUICK else [pytest.mark.slow]) for name in SECTIONS]
)
def test_a_sections_code_runs(section: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "rows.jsonl"
    assert gpu_check.main(["--emulate", "--only", section, "--out", str(out)]) == 0
    rows = rows_of(out)
    assert rows and not [row for row in rows if "Error" in row.note and "bfloat16" not in row.what], rows
    assert all(row.note in ("right", "not installed") for row in rows if section == "correctness"), rows
    assert SECTIONS[section].title in capsys.readouterr().out


def test_the_limits_fit_into_the_whole() -> None:
    assert all(section.limit_s > gpu_check.STARTING_S for section in SECTIONS.values())
    assert gpu_check.TOTAL_S <= 540


def test_every_section_has_time_though_all_before_it_take_theirs() -> None:
    names, left = list(SECTIONS), gpu_check.TOTAL_S
    for at, name in enumerate(names):
        taken = gpu_check.seconds_of(names, at, left)
        assert 0.6 * SECTIONS[name].limit_s <= taken <= SECTIONS[name].limit_s, name
        left -= taken + gpu_check.STARTING_S
    assert left >= -1e-6
    assert gpu_check.seconds_of(names, 0, gpu_check.TOTAL_S / 2, 0.0) > gpu_check.seconds_of(names, 0, 100.0, 0.0) > 0
    assert gpu_check.seconds_of(names, len(names) - 1, 5.0) < 0  # no time: it is left out


def test_a_section_that_does_not_end_costs_itself_alone(tmp_path: Path) -> None:
    out = tmp_path / "rows.jsonl"
    out.touch()
    gpu_check.run_all(["overhead", "simt"], Bench("cpu"), out, 1.0)  # no time for either
    assert [row.note for row in rows_of(out)] == ["left out: no time"] * 2


def test_configurations_near_a_default_are_measured_beside_it(tmp_path: Path) -> None:
    out = tmp_path / "gpu.jsonl"
    asked = ["--emulate", "--only", "simt", "--rows", "^float32 16³$", "--around", "3", "--out", str(out)]
    assert gpu_check.main(asked) == 0
    names = [json.loads(line)["what"] for line in out.read_text().splitlines()]
    assert names[0] == "float32 16³" and len(set(names)) == 4
    assert all(name.startswith("float32 16³: ") for name in names[1:])
