"""Exit codes and last words: one or two lines on stderr, no traceback unless asked for."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
from pathlib import Path

import click
import pytest

from autosched.cli import app, main
from autosched.cli.app import COMMANDS
from autosched.cli.common import Common, make_command
from autosched.cli.process import set_up_logging
from autosched.errors import AutoschedError, UsageError, VerificationFailed

LOGS = ("list", "best", "show", "export", "import")


@pytest.mark.parametrize("words", [(), *((name,) for name in COMMANDS), *(("logs", name) for name in LOGS)])
def test_every_help_has_an_example(words: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*words, "--help"]) == 0
    text = capsys.readouterr().out
    assert f"Usage: autosched {' '.join(words)}".rstrip() in text
    assert f"Example:\n    autosched {' '.join(words)}".rstrip() in text


@pytest.mark.parametrize("words", [[], ["logs"]])
def test_nothing_at_all_shows_the_help(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(words) == 2
    captured = capsys.readouterr()
    assert not captured.out
    assert captured.err.startswith(f"Usage: {' '.join(['autosched', *words])} [OPTIONS] COMMAND")


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--version"]) == 0
    assert capsys.readouterr().out.startswith("autosched, version 0.")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["sing"], "no command 'sing'; there are tune, build"),
        (["tune"], "Missing argument 'MODEL'"),
        (["tune", "m.onnx", "--trials", "0"], "--trials"),
        (["tune", "m.onnx", "--trials", "-3"], "--trials"),
        (["tune", "m.onnx", "--budget", "never"], "no duration"),
        (["tune", "m.onnx", "--threads", "0"], "--threads"),
        (["tune", "nowhere.onnx"], "no file nowhere.onnx"),
        (["run", "nowhere.asx"], "no file nowhere.asx"),
        (["run", "."], "is a folder"),
        (["build", "m.onnx", "--db", "a", "--no-db"], "exclude each other"),
        (["bench", "m.onnx", "--with", "tensorflaw"], "unknown runtime tensorflaw"),
        (["bench", "m.onnx", "--sweep", "cores=1"], "no sweep"),
        (["logs", "list", "--db", "nowhere.db"], "nowhere.db"),
        (["logs", "show", "--status", "odd"], "no status 'odd'"),
    ],
)
def test_wrong_use_ends_with_2(words: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(words) == 2
    captured = capsys.readouterr()
    assert not captured.out
    assert message in captured.err
    assert captured.err.startswith("autosched: error: ")
    assert captured.err.count("\n") <= 2
    assert "Traceback" not in captured.err


@pytest.fixture
def failing(monkeypatch: pytest.MonkeyPatch) -> list[BaseException]:
    """A command `fail` that raises what is put into the list."""
    errors: list[BaseException] = []

    @make_command("fail", example="autosched fail")
    def fail(common: Common) -> None:
        """Fail."""
        raise errors[0]

    def find(self: click.Group, context: click.Context, name: str) -> click.Command:
        return fail

    monkeypatch.setattr(app.LazyGroup, "get_command", find)
    return errors


@pytest.mark.parametrize(
    ("error", "code", "text"),
    [
        (AutoschedError("no", where="here", hint="do that"), 1, "error: no (in here); do that"),
        (UsageError("no"), 2, "error: no"),
        (VerificationFailed("differs"), 4, "error: differs"),
        (KeyboardInterrupt(), 130, "interrupted"),
        (OSError(28, "No space left on device", "m.asx"), 2, "error: No space left on device: m.asx"),
        (MemoryError("Unable to allocate 46 TiB"), 1, "error: not enough memory: Unable to allocate 46 TiB"),
        (MemoryError(), 1, "error: not enough memory"),
        (RuntimeError("what"), 1, "internal error: RuntimeError: what"),
    ],
)
def test_errors_become_exit_codes(
    failing: list[BaseException], capsys: pytest.CaptureFixture[str], error: BaseException, code: int, text: str
) -> None:
    failing.append(error)
    assert main(["fail"]) == code
    err = capsys.readouterr().err
    assert text in err
    assert "Traceback" not in err
    assert main(["fail", "--debug"]) == code
    assert "Traceback" in capsys.readouterr().err


def test_a_closed_pipe_is_no_error() -> None:
    command = f"{sys.executable} -m autosched --help | head -1; exit ${{PIPESTATUS[0]}}"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, cwd=Path(__file__).parents[2])
    assert done.returncode == 0, done.stderr
    assert not done.stderr


def test_log_levels_follow_verbosity_and_the_variable() -> None:
    root = logging.getLogger("autosched")
    try:
        set_up_logging(1, "")
        assert root.level == logging.INFO
        assert len(root.handlers) == 1
        set_up_logging(-1, "autosched.tuner=debug")
        assert root.level == logging.ERROR
        assert logging.getLogger("autosched.tuner").level == logging.DEBUG
        with pytest.raises(AutoschedError, match="no log level 'loud'"):
            set_up_logging(0, "loud")
    finally:
        root.handlers.clear()
        root.setLevel(logging.NOTSET)
        logging.getLogger("autosched.tuner").setLevel(logging.NOTSET)


def test_an_interrupt_within_executed_text_still_ends_by_the_exit_code(tmp_path: Path) -> None:
    """CPython would kill a process of `python -m` by SIGINT at its end, though the interrupt was caught."""
    script = (
        "import sys\n"
        "from autosched.cli import app, process\n"
        "app.app.main = lambda *a, **k: exec('raise KeyboardInterrupt')\n"
        "sys.exit(process.run_process([]))\n"
    )
    (tmp_path / "interrupted.py").write_text(script)
    command = [sys.executable, "-m", "interrupted"]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path), *sys.path])}
    ended = subprocess.run(command, capture_output=True, text=True, timeout=60, env=environment)
    assert ended.returncode == 130 and ended.stderr == "autosched: interrupted\n"


def test_what_errors_and_logs_quote_steers_no_terminal(
    failing: list[BaseException], capsys: pytest.CaptureFixture[str]
) -> None:
    evil = UsageError("node 'a\x1b[2Jb\nc'"), OSError(2, "No such file", "x\x1b]0;title\x07"), ValueError("\x9b")
    for error in evil:
        failing[:] = [error]
        main(["fail"])
        assert not set(capsys.readouterr().err) & set("\x1b\x07\x9b")
    assert str(UsageError("a\nb", where="c\rd", hint="e\x1b")) == "a\\nb (in c\\rd); e\\x1b"
    set_up_logging(0, "")
    logging.getLogger("autosched").warning("file %s", "x\x1b[31m")
    assert "file x\\x1b[31m" in capsys.readouterr().err


def test_a_mistyped_command_gets_a_suggestion(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bild", "m.onnx"]) == 2
    assert capsys.readouterr().err == "autosched: error: no command 'bild'; did you mean 'build'?\n"
