"""`autosched spaces`: list, show, check, and a user's own folder."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from autosched.cli import main
from autosched.cli.spaces import parse_sizes
from autosched.errors import UsageError
from autosched.space import list_spaces

OWN = """
[space]
template = "matmul"
values = ["M", "registers"]

[knobs.rows]
range = [1, "M"]

[knobs.order]
values = ["nm", "mn"]

[[constraint]]
require = "rows <= registers // 4"
"""


@pytest.fixture
def own(tmp_path: Path) -> Path:
    (tmp_path / "cpu").mkdir()
    (tmp_path / "cpu" / "matmul.toml").write_text(OWN)
    return tmp_path


def answer(capsys: pytest.CaptureFixture[str], *words: str) -> Any:
    assert main([*words, "-f", "json"]) == 0
    return json.loads(capsys.readouterr().out)


def test_list(capsys: pytest.CaptureFixture[str], own: Path) -> None:
    rows = answer(capsys, "spaces", "list")
    assert [row["template"] for row in rows] == list(list_spaces("cpu"))
    with_own = answer(capsys, "spaces", "list", "--spaces", str(own))
    assert len(with_own) == len(rows)
    assert [row["file"] for row in with_own if str(own) in row["file"]] == [str(own / "cpu" / "matmul.toml")]


def test_a_gpu_has_spaces_of_its_own(capsys: pytest.CaptureFixture[str]) -> None:
    gpu = ["--target", "cuda -arch=sm_90a"]
    assert [row["template"] for row in answer(capsys, "spaces", "list", *gpu)] == list(list_spaces("cuda"))
    shown = answer(capsys, "spaces", "show", "matmul", *gpu)
    assert "shared_bytes" in shown["needs"] and "cuda" in shown["file"]
    sizes = ["--workload", "batch=1 M=128 N=256 K=784"]
    assert answer(capsys, "spaces", "show", "matmul", *gpu, *sizes)["valid"] > 0


def test_show_counts_the_valid_ones(capsys: pytest.CaptureFixture[str], own: Path) -> None:
    words = ["spaces", "show", "matmul", "--workload", "M=8 registers=16", "--spaces", str(own)]
    shown = answer(capsys, *words)
    assert (shown["valid"], shown["combinations"], shown["valid_is_exact"]) == (8, 16, True)
    assert shown["rows"][0]["candidates"] == list(range(1, 9))
    assert main(words) == 0
    text = capsys.readouterr().out
    assert "8 of 16 configurations are valid" in text and "requires rows <= registers // 4" in text
    assert main(["spaces", "show", "matmul"]) == 0
    assert "--workload" in capsys.readouterr().out


def test_every_space_of_the_project_passes_its_own_check(capsys: pytest.CaptureFixture[str]) -> None:
    for row in answer(capsys, "spaces", "list"):
        assert main(["spaces", "check", row["file"], "-q"]) == 0


@pytest.mark.parametrize(
    ("old", "new", "line", "reason"),
    [
        ("rows <= registers // 4", "rows <= lanes", 13, "unknown name 'lanes'"),
        ("rows <= registers // 4", "__import__('os')", 13, "__import__"),
        ('range = [1, "M"]', 'range = [1, "N"]', 6, "unknown name 'N'"),
        ('range = [1, "M"]', 'range = [1, "M"]\ncolour = 3', 8, "unknown key 'colour'"),
        ('range = [1, "M"]', "", 6, "exactly one of"),
        ("[knobs.order]", "[knobs.M]", 9, "'M' is a value and a knob"),
    ],
)
def test_check_names_file_line_and_reason(
    capsys: pytest.CaptureFixture[str], own: Path, old: str, new: str, line: int, reason: str
) -> None:
    path = own / "cpu" / "matmul.toml"
    assert main(["spaces", "check", str(path), "--workload", "M=4"]) == 0
    path.write_text(OWN.replace(old, new))
    assert main(["spaces", "check", str(path)]) == 2
    error = capsys.readouterr().err
    assert f"matmul.toml:{line}" in error and reason in error


def test_what_is_not_there(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert main(["spaces", "show", "nothing"]) == 2
    assert "there are" in capsys.readouterr().err
    assert main(["spaces", "check", str(tmp_path / "no.toml")]) == 2
    assert main(["spaces", "list", "--spaces", str(tmp_path / "no")]) == 2
    assert main(["spaces", "show", "matmul", "--workload", "M=4"]) == 2
    assert "no value for" in capsys.readouterr().err


def test_sizes() -> None:
    assert parse_sizes("M=1, N=20") == {"M": 1, "N": 20}
    with pytest.raises(UsageError):
        parse_sizes("M")
