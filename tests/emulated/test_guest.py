"""What runs on the emulated machine, run on this one: errors are found, and a case that ends its process is a line."""

from __future__ import annotations

import importlib.util
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from autosched.target import Target
from tests.emulated import guest
from tests.emulated.__main__ import Report
from tests.emulated.cases import GROUPS, is_refused, save_cases
from tests.emulated.guest_files import copy_runtime

NAN, INF = float("nan"), float("inf")


def error(result: list[float], expected: list[float], each: bool = False) -> float:
    return guest.find_error(np.asarray(result, "f"), np.asarray(expected, "f"), each)


def test_errors_are_by_the_largest_value_or_by_each() -> None:
    assert error([1, NAN, INF, 8], [1, NAN, INF, 8]) == 0
    assert error([1, 9], [2, 8]) == 1 / 8 and error([1, 9], [2, 8], each=True) == 1 / 2
    assert error([0.5], [0.25]) == 0.25


@pytest.mark.parametrize("result", [[NAN, 1], [INF, 1], [1]])
def test_what_is_not_finite_or_of_another_shape_is_wrong(result: list[float]) -> None:
    assert error(result, [1, 1]) == INF


def test_whole_numbers_are_of_their_type() -> None:
    assert guest.find_error(np.ones(3, "i4"), np.ones(3, "i8"), False) == INF


def reported(folder: Path, rows: list[dict[str, Any]], capfd: pytest.CaptureFixture[str]) -> Report:
    """What is made of the lines that the cases of a folder write."""
    guest.main(folder)
    report = Report(rows)
    for line in capfd.readouterr().out.splitlines():
        report.take(line)
    return report


def test_a_case_that_is_right_and_one_that_is_wrong(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "cases"
    rows = save_cases(folder, iter([GROUPS["functions"](Target("cpu"))["floor"]("functions", "floor")]))
    assert not reported(folder, rows, capfd).failed
    np.save(folder / "0000.1.npy", np.load(folder / "0000.1.npy") + np.float32(1))
    (failure,) = reported(folder, rows, capfd).failed
    assert failure.startswith("functions: floor: error 1.0e+37")


def test_a_case_that_ends_its_process(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def run(folder: Path, case: dict[str, Any]) -> tuple[float, str]:
        if case["number"] == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        if case["number"] == 2:
            raise ValueError("no\nartifact")
        return 0.0, ""

    monkeypatch.setattr(guest, "run", run)
    rows = [{"number": n, "group": "g", "name": f"n{n}", "limit": 1e-5, "left_out": n > 4} for n in range(6)]
    (tmp_path / "cases.json").write_text(json.dumps(rows[:4]))
    report = reported(tmp_path, rows, capfd)
    assert [line.split(";")[-1] for line in report.failed] == [
        " SIGKILL",
        " ValueError: no artifact",
        " it was not run",
    ]
    text = report.text("model", "x86-64-v4", 60.0)
    assert "| g | 5 | 3 | inf | n4 | 1e-05 |" in text and "1 left out" in text


@pytest.mark.parametrize(
    ("line", "refused"),
    [
        ("vgatherqps (,%zmm18), %ymm1 {%k5}", True),
        ("vpscatterqd %ymm19, 8(%rax,%zmm31,4) {%k1}", True),
        ("vgatherqps (,%zmm8), %ymm19 {%k5}", False),
        ("vmovups (%rax), %zmm18", False),
    ],
)
def test_what_the_emulator_refuses(line: str, refused: bool) -> None:
    kernel = SimpleNamespace(llvm="llvm.masked.gather", asm=f"\t{line}\n")
    assert is_refused(SimpleNamespace(kernels={"k": kernel})) is refused


def test_what_is_copied_is_all_that_the_cases_need(tmp_path: Path) -> None:
    copy_runtime(tmp_path / "site")
    words = (
        f"import sys; sys.path[:0] = {[str(tmp_path / 'site'), *map(_packages, ('numpy', 'ml_dtypes'))]}; import guest"
    )
    subprocess.run([sys.executable, "-I", "-S", "-c", words], check=True)


def _packages(name: str) -> str:
    """The folder that a package lies in."""
    found = importlib.util.find_spec(name)
    assert found is not None and found.origin is not None, name
    return str(Path(found.origin).parents[1])
