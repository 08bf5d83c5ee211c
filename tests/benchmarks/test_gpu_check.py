"""`make gpu-check`: refuses clearly without a GPU, and the code of its sections runs on the emulator."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

pytest.importorskip("numba_cuda", reason="the CUDA packages are an extra")

from autosched.errors import DeviceError
from autosched.target.cuda_host import has_cuda_driver
from benchmarks import gpu_check
from benchmarks.gpu.bench import Bench, Case, Row, Section
from benchmarks.gpu.sections import SECTIONS

QUICK = ("overhead", "small-m")


@pytest.mark.parametrize("is_tiny", [False, True])
@pytest.mark.parametrize("section", list(SECTIONS))
def test_every_case_can_be_stated(section: str, is_tiny: bool) -> None:
    assert list(SECTIONS[section].cases(Bench("nvidia/nvidia-h200", is_tiny)))


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


def test_a_case_that_fails_costs_itself_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever fails: one of the peer's too, and one after which the process can use the device no more."""

    def case(name: str, error: Exception | None = None) -> Case:
        def run(bench: Bench) -> list[Row]:
            if error is not None:
                raise error
            return [Row(name, note="right")]

        return Case(name, run)

    cases = [case("a"), case("b", RuntimeError("out of\nmemory")), case("c"), case("d", DeviceError("lost")), case("e")]
    monkeypatch.setitem(SECTIONS, "overhead", Section("", "", 60, lambda bench: cases))
    monkeypatch.setattr(gpu_check, "_is_lost", lambda: len(rows_of(out)) == 4)
    calls: list[int] = []

    def in_a_process(command: list[str], **_: object) -> subprocess.CompletedProcess[bytes]:
        first = int(command[command.index("--first") + 1])
        calls.append(first)
        if first == 4:  # the last one ends its process
            out.with_suffix(".begun").write_text('[4, "e"]')
            return subprocess.CompletedProcess(command, -11)
        return subprocess.CompletedProcess(command, gpu_check.main(command[3:]))

    out = tmp_path / "rows.jsonl"
    out.touch()
    monkeypatch.setattr(gpu_check.subprocess, "run", in_a_process)
    gpu_check.run_all(["overhead"], Bench("cpu"), out, 100.0)
    notes = ["right", "RuntimeError: out of memory", "right", "DeviceError: lost", "its process ended with -11"]
    assert [(row.what, row.note) for row in rows_of(out)] == list(zip("abcde", notes, strict=True))
    assert calls == [0, 4, 5] and not out.with_suffix(".begun").exists()


def test_configurations_near_a_default_are_measured_beside_it(tmp_path: Path) -> None:
    out = tmp_path / "gpu.jsonl"
    asked = ["--emulate", "--only", "simt", "--rows", "^float32 16³$", "--around", "3", "--out", str(out)]
    assert gpu_check.main(asked) == 0
    names = [json.loads(line)["what"] for line in out.read_text().splitlines()]
    assert names[0] == "float32 16³" and len(set(names)) == 4
    assert all(name.startswith("float32 16³: ") for name in names[1:])
