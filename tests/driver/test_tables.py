"""Reports as frames and as HTML."""

from __future__ import annotations

import sys

import pytest

from autosched.driver import BenchReport, TuneReport
from autosched.driver.tune.report import TaskReport
from autosched.errors import UsageError

TUNED = TuneReport([TaskReport("conv<2>", 2, default_s=3e-3, best_s=2e-3, n_trials=8)], n_trials=8, reason="done")
MEASURED = BenchReport(({"program": "a.asx", "p50": 1e-3}, {"program": "b.asx", "p50": 2e-3}), ("a < b",), "")


def test_frames() -> None:
    pytest.importorskip("pandas")
    frame = TUNED.to_frame()
    assert list(frame["name"]) == ["conv<2>"] and frame["gain"][0] == 1.5 and frame["best_s"][0] == 2e-3
    assert list(MEASURED.to_frame()["p50"]) == [1e-3, 2e-3]


def test_without_pandas_the_error_says_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(UsageError, match="pip install pandas"):
        TUNED.to_frame()


def test_notebooks_show_tables_whose_texts_are_no_html() -> None:
    assert "<td>conv&lt;2&gt;</td>" in TUNED._repr_html_() and "8 trials, 0 failed; done" in TUNED._repr_html_()
    assert "<caption>a &lt; b</caption>" in MEASURED._repr_html_()
