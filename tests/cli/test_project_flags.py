"""Flags that stand in autosched.toml: a table for each command; the command line wins; what is wrong is named."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click
import pytest

from autosched.cli import main
from autosched.cli.app import app
from autosched.cli.project_flags import read_flags

Capture = pytest.CaptureFixture[str]


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The project's file, seen from a folder inside the project."""
    (tmp_path / "inside").mkdir()
    monkeypatch.chdir(tmp_path / "inside")
    return tmp_path / "autosched.toml"


def seen_by(monkeypatch: pytest.MonkeyPatch, words: list[str]) -> dict[str, Any]:
    """What a command's function would get, by the names of its parameters."""
    context = app.make_context("autosched", list(words))
    name, command, rest = app.resolve_command(context, list(words))
    assert command is not None
    values = dict(command.make_context(name, rest, parent=context).params)
    return values


def test_a_flag_of_the_file_counts_and_the_command_line_wins(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file.write_text('[tune]\nbudget = "10m"\nuntil = 0.02\nkeep-going = true\nmodels = ["m.onnx"]\nverbose = 2\n')
    values = seen_by(monkeypatch, ["tune", "--all"])
    assert (values["budget"], values["until"], values["keep_going"], values["verbose"]) == (600.0, 0.02, True, 2)
    values = seen_by(monkeypatch, ["tune", "--all", "--budget", "5s", "--no-keep-going"])
    assert (values["budget"], values["until"], values["keep_going"]) == (5.0, 0.02, False)


def test_lists_pairs_and_paths(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file.write_text(
        '[build]\ndb = ["a.db", "postgresql+psycopg://h/x"]\npin = [["matmul", "rows=6"]]\noutput = "out/m.asx"\n'
        'shapes = "x:1x3"\n'
    )
    values = seen_by(monkeypatch, ["build", "m.onnx"])
    assert values["db"] == (str(file.parent / "a.db"), "postgresql+psycopg://h/x")
    assert values["pins"] == (("matmul", "rows=6"),) and values["shapes"] == {"x": (1, 3)}
    assert values["output"] == file.parent / "out" / "m.asx"  # as seen from the file
    file.write_text('[build]\ndb = "a.db"\n')
    assert seen_by(monkeypatch, ["build", "m.onnx"])["db"] == (str(file.parent / "a.db"),)


def test_commands_of_groups_have_tables_of_their_own(file: Path, capsys: Capture) -> None:
    file.write_text('[logs.list]\nformat = "json"\ndb = "r.db"\n')
    for name in ("list", "ls"):
        assert main(["logs", name]) == 2
        assert str(file.parent / "r.db") in capsys.readouterr().err
    from autosched.records import open_store

    open_store(file.parent / "r.db").close()
    assert main(["logs", "list"]) == 0
    assert json.loads(capsys.readouterr().out) == []


@pytest.mark.parametrize(
    ("text", "words", "message"),
    [
        ('[tune]\nbuget = "1m"\n', ["tune", "m.onnx"], "[tune] has no key 'buget' (in {file}); did you mean 'budget'?"),
        ("[tunes]\n", ["build", "m.onnx"], "no table [tunes] (in {file}); did you mean 'tune'?"),
        ("[logs.lst]\n", ["build", "m.onnx"], "[logs] has no key 'lst' (in {file}); did you mean 'list'?"),
        ("[logs]\nlist = 3\n", ["build", "m.onnx"], "'logs.list' is a table (in {file}); write [logs.list]"),
        ("build = 3\n", ["run", "m.onnx"], "'build' is a table (in {file}); write [build]"),
        ("[records]\ndbs = 3\n", ["run", "m.onnx"], "[records] has no key 'dbs' (in {file}); did you mean 'db'?"),
        ("[build]\nstrict = 1\n", ["build", "m.onnx"], "build.strict is true or false, not 1 (in {file})"),
        ("[build]\nverbose = true\n", ["build", "m.onnx"], "build.verbose is a whole number, not True (in {file})"),
        (
            "[build]\npin = [['a']]\n",
            ["build", "m.onnx"],
            "build.pin is a list of 2 texts each, not [['a']] (in {file})",
        ),
        ("[bench]\nsweep = [1]\n", ["bench", "m.onnx"], "bench.sweep is text or a number, not [1] (in {file})"),
        ('[tune]\nbudget = "soon"\n', ["tune", "m.onnx"], "write 90s, 10m or 1h30m (it stands in {file})"),
        ("[tune", ["tune", "m.onnx"], "cannot read the project file: "),
    ],
)
def test_what_is_wrong_is_named_with_its_file(
    file: Path, text: str, words: list[str], message: str, capsys: Capture
) -> None:
    file.write_text(text)
    assert main(words) == 2
    error = capsys.readouterr().err
    assert message.format(file=file) in error and str(file) in error
    assert main([*words[:1], "--help"]) == 0


def test_every_flag_of_every_command_can_stand_in_the_file(file: Path) -> None:
    """A flag's name in the file is its long name on the command line, and no two of a command share one."""
    context = click.Context(app)

    def commands(group: click.Group, path: tuple[str, ...]) -> list[tuple[tuple[str, ...], click.Command]]:
        found = []
        for name in group.list_commands(context):
            command = group.get_command(context, name)
            assert command is not None
            inside = (*path, name)
            found += commands(command, inside) if isinstance(command, click.Group) else [(inside, command)]
        return found

    every = commands(app, ())
    assert len(every) > 20
    for path, command in every:
        options = [option for option in command.params if isinstance(option, click.Option)]
        lines = [f"{max(option.opts, key=len).lstrip('-')} = {_sample(option)}" for option in options]
        file.write_text(f"[{'.'.join(path)}]\n" + "\n".join(lines) + "\n")
        assert set(read_flags(command, path, file)) == {option.name for option in options}


def _sample(option: click.Option) -> str:
    if option.is_flag:
        return "true"
    if option.count:
        return "1"
    one = '"1"' if option.nargs == 1 else '["1", "2"]'
    return f"[{one}]" if option.multiple else one


def test_a_project_without_flags_changes_nothing(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file.write_text('[records]\ndb = "x.db"\n')
    values = seen_by(monkeypatch, ["tune", "m.onnx"])
    assert values["budget"] is None and values["db"] == () and values["keep_going"] is False
