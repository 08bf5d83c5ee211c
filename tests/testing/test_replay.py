import gzip
import json
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from autosched.errors import InvalidValueError
from autosched.records import Record
from autosched.records.kernel_tuner import to_cache
from autosched.records.t4 import to_t4
from autosched.testing.replay import main, read_recording, replay, summarise
from autosched.testing.tasks import record


def write(path: Path, rows: list[str], header: str = "x,y,mode,time_ms,status") -> Path:
    with gzip.open(path, "wt") as file:
        file.write("\n".join(["# made for a test", header, *rows]) + "\n")
    return path


@pytest.fixture
def recorded(tmp_path: Path) -> Path:
    rows = []
    for x in (1, 2, 4, 8, 16):
        for y in range(1, 9):
            for mode in ("a", "b"):
                if x * y <= 64:
                    failed = x == 16 and mode == "b"
                    time_ms = "" if failed else str(1 + abs(x - 4) + (y - 5) ** 2 + (mode == "a"))
                    rows.append(f"{x},{y},{mode},{time_ms},{'compile' if failed else 'ok'}")
    return write(tmp_path / "demo_device.csv.gz", rows)


def test_reading(recorded: Path) -> None:
    recording = read_recording(recorded)
    assert recording.name == "demo_device" and recording.space.count() == len(recording.outcomes) == 72
    assert recording.optimum_s == pytest.approx(1e-3)
    assert sum(not m.is_ok for m in recording.outcomes.values()) == 4


def test_scores_never_fall_and_reach_one_when_the_space_is_used_up(recorded: Path) -> None:
    recording = read_recording(recorded)
    for strategy in ("random", "xgboost", "gp"):
        result = replay(recording, strategy, budget=80, batch=8, seed=0)
        assert (result.scores[1:] >= result.scores[:-1]).all() and result.scores[-1] == 1.0
        assert result.failed == 4 and len(result.scores) == 80
    summary = summarise(recording, "random", budget=30, batch=8, seeds=range(3))
    assert set(summary.scores) == {25, 30} and "random" in str(summary)


def test_command_line(recorded: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(recorded), str(recorded), "--strategy", "random", "--budget", "20", "--seeds", "2", "--json"]) == 0
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [line["name"] for line in lines] == ["demo_device", "demo_device", "mean"]
    assert main([str(recorded), "--budget", "0"]) == 2
    assert main([str(recorded) + "x"]) == 2
    assert "error:" in capsys.readouterr().err


@pytest.mark.parametrize(
    "rows", [["1,2,a,1.0,ok", "1,2,a,2.0,ok"], [], ["1,2,a,x,ok"], ["1,2,a,,ok"], ["1,2,a,1.0,fine"], ["1,2"]], ids=str
)
def test_bad_recordings(tmp_path: Path, rows: list[str]) -> None:
    with pytest.raises(InvalidValueError):
        read_recording(write(tmp_path / "bad.csv.gz", rows))
    (tmp_path / "plain.csv.gz").write_text("x,time_ms,status\n")
    with pytest.raises(InvalidValueError, match="cannot read"):
        read_recording(tmp_path / "plain.csv.gz")


def test_another_device_helps(recorded: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    options = ["--strategy", "gp", "--budget", "8", "--batch", "1", "--seeds", "4", "--json"]
    assert main([str(recorded), *options]) == 0
    assert main([str(recorded), "--source", str(recorded), *options]) == 0
    alone, hinted = (json.loads(line)["scores"]["8"][0] for line in capsys.readouterr().out.splitlines())
    assert hinted == 1.0 > alone
    assert main([str(recorded), "--source", str(tmp_path / "no.csv.gz")]) == 2


def test_auto_goes_through_a_space_that_the_budget_covers(recorded: Path) -> None:
    recording = read_recording(recorded)
    runs = [replay(recording, name, budget=72, batch=8, seed=0) for name in ("auto", "grid")]
    assert (runs[0].scores == runs[1].scores).all() and runs[0].scores[-1] == 1.0


def test_a_run_ends_at_its_goal_with_the_same_scores(recorded: Path) -> None:
    recording = read_recording(recorded)
    whole, ended = (replay(recording, "random", budget=60, batch=8, seed=1, goal=goal) for goal in (None, 0.9))
    assert len(ended.scores) < len(whole.scores) == 60 and ended.scores[-1] >= 0.9 > ended.scores[-2]
    assert (ended.scores == whole.scores[: len(ended.scores)]).all()


def test_other_seeds_and_ends_by_the_command_line(recorded: Path, capsys: pytest.CaptureFixture[str]) -> None:
    options = ["--strategy", "random", "--budget", "60", "--seeds", "3", "--json", "--first-seed"]
    for more in (["0"], ["1000"], ["1000", "--until-optimum"]):
        assert main([str(recorded), *options, *more]) == 0
    first, other, ended = (json.loads(line)["scores"] for line in capsys.readouterr().out.splitlines())
    assert first != other == ended


@pytest.mark.parametrize("form", [to_cache, to_t4])
def test_files_of_other_tuners(
    form: Callable[[Sequence[Record]], object], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A cache of Kernel Tuner's and a T4 file hold a space as well as our own recordings do."""
    path = tmp_path / "matmul.json"
    path.write_text(json.dumps(form([record(rows) for rows in range(1, 31)])))
    recording = read_recording(path)
    assert recording.space.count() == 30 and recording.optimum_s == pytest.approx(1e-3 / 30)
    assert main([str(path), "--strategy", "random", "--budget", "30", "--seeds", "2", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["scores"]["30"][0] == pytest.approx(1.0)
    path.write_text('{"results": [{"configuration": 3}]}')
    assert main([str(path)]) == 2
    assert "no recorded space: 1 entries are refused" in capsys.readouterr().err
