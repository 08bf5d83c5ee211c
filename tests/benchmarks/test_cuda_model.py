"""The table of predicted times has a row for what it is asked for."""

from __future__ import annotations

import pytest

pytest.importorskip("numba_cuda", reason="the CUDA packages are an extra")

from benchmarks.cuda_model import CASES, COLUMNS, main


def test_a_row(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--only", "transpose"]) == 0
    (row,) = [line for line in capsys.readouterr().out.splitlines() if line.startswith("| transpose")]
    cells = [cell.strip() for cell in row.strip("|").split("|")]
    assert len(cells) == len(COLUMNS) and cells[1] == "transpose"
    assert cells[7:10] == ["1.00", "1.00", "1.00"], "whole lines on both sides, no conflicts of banks"


def test_each_template_is_there() -> None:
    assert len(CASES) >= 15
