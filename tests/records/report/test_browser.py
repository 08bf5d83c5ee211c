"""The report in a real headless Chromium: its script runs to its end, and what a log says is not executed."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from autosched.records import open_store
from autosched.records.report import make_document, make_page
from autosched.testing.tasks import record
from tests.records.report.test_page import evil_record

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")

pytestmark = [pytest.mark.slow, pytest.mark.skipif(CHROMIUM is None, reason="no Chromium is installed")]


def open_page(page: str, folder: Path) -> str:
    """The page's elements after its scripts have run."""
    path = folder / "report.html"
    path.write_text(page, encoding="utf-8")
    options = ["--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={folder}/profile"]
    command = [str(CHROMIUM), *options, "--virtual-time-budget=8000", "--dump-dom", path.as_uri()]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=True).stdout


def test_tables_and_charts_are_there(tmp_path: Path) -> None:
    with open_store(tmp_path / "r.db") as store:
        store.add([record(1, default=True), *(record(i) for i in range(2, 20)), record(20, winner=True), evil_record()])
        found = open_page(make_page(make_document(store)), tmp_path)
    assert 'data-ready="yes"' in found
    assert "matmul 128x784 784x256 128x256" in found
    charts = ("shares", "convergence", "importance", "parallel", "pairs", "failures")
    assert all(re.search(rf'id="{name}"[^>]*js-plotly-plot', found) for name in charts)
    body = found[found.index("<main>") : found.index('<script id="data"')]
    assert "<script>alert" not in body and "<img" not in body and "&lt;img src=x" in body
