"""The picture of one task: PNG or SVG, the same bytes for the same records, names only as text."""

from __future__ import annotations

from pathlib import Path

import pytest

from autosched.cli import main
from autosched.errors import RecordError
from autosched.records import open_store
from autosched.records.report.figure import save_figure
from autosched.testing.tasks import record

pytest.importorskip("matplotlib", reason="matplotlib is not installed")
EVIL = "<script>alert(1)</script> $\\frac{1}{0$ & more"


@pytest.mark.slow
def test_forms(tmp_path: Path) -> None:
    records = [record(1, default=True), *(record(i) for i in range(2, 9))]
    for name, head in (("a.png", b"\x89PNG"), ("a.svg", b"<?xml")):
        first, second = tmp_path / name, tmp_path / f"again-{name}"
        save_figure(first, EVIL, records)
        save_figure(second, EVIL, records)
        assert first.read_bytes().startswith(head) and first.read_bytes() == second.read_bytes()
    text = (tmp_path / "a.svg").read_text()
    assert "&lt;script&gt;" in text and "<script>" not in text
    assert "Knob importance" in text and "default: 1 ms" in text and "best: 0.125 ms" in text
    save_figure(tmp_path / "none.svg", "nothing", [])
    assert "nothing has worked" in (tmp_path / "none.svg").read_text()
    with pytest.raises(RecordError, match="neither a PNG nor an SVG"):
        save_figure(tmp_path / "a.pdf", "x", records)


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path, out = tmp_path / "r.db", tmp_path / "p.png"
    with open_store(path) as store:
        store.add([record(1, default=True), record(2)])
    assert main(["logs", "plot", "-o", str(out), "--db", str(path)]) == 0
    said = capsys.readouterr()
    assert said.out == "" and "2 trials of matmul 128x784" in said.err and out.read_bytes().startswith(b"\x89PNG")
    assert [p.name for p in tmp_path.iterdir() if p.name.startswith(".p")] == []
    for bad in ("p.jpg", "no/p.png", "r.db"):
        assert main(["logs", "plot", "-o", str(tmp_path / bad), "--db", str(path)]) == 2
