from pathlib import Path

import pytest

from autosched.space import Config, ConfigSpace, boolean, choice
from autosched.task import Measurement, Status, Trial
from autosched.testing.replay import read_recording, replay
from benchmarks.spaces import FOLDER
from benchmarks.spaces.__main__ import SPACES, thinned, write

FILES = sorted(FOLDER.glob("*.csv.gz"))


def test_three_operators_are_recorded() -> None:
    assert {path.name.split("-")[0] for path in FILES} >= {"dense", "conv"}
    assert {path.name.removesuffix(".csv.gz") for path in FILES} <= set(SPACES)


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name.split(".")[0])
def test_a_recording_is_complete(path: Path) -> None:
    recording = read_recording(path)
    assert recording.space.count() == len(recording.outcomes) >= 200
    times = sorted(m.median_s for m in recording.outcomes.values() if m.is_ok)
    assert times[0] == recording.optimum_s > 1e-6 and times[-1] > 1.2 * times[0]
    assert replay(recording, "gp", budget=40, batch=8, seed=0).scores[-1] > 0.8


def test_a_thinned_space_keeps_its_default() -> None:
    space = ConfigSpace("t", [choice("a", [1, 2, 3, 4]), choice("b", [1, 2])], ["a * b <= 6"])
    space = space.with_default(Config("t", {"a": 3, "b": 1}))
    assert [dict(c.knobs) for c in thinned(space, {"a": (1, 4)})] == [
        {"a": 3, "b": 1}, {"a": 1, "b": 1}, {"a": 1, "b": 2}, {"a": 4, "b": 1},
    ]  # fmt: skip


def test_what_is_written_can_be_read(tmp_path: Path) -> None:
    space = ConfigSpace("t", [choice("a", [1, 2]), boolean("f"), choice("o", ["x", "y"])])
    statuses = [Status.OK, Status.BUILD_ERROR, Status.CRASH]
    trials = [
        Trial(c, Measurement(s := statuses[i % 3], (1e-3 * (i + 1),) if s is Status.OK else ()))
        for i, c in enumerate(space)
    ]
    path = tmp_path / "t.csv.gz"
    write(path, "# made for a test", trials)
    read = read_recording(path)
    assert read.optimum_s == pytest.approx(1e-3) and read.space.count() == 8
    found = [m.status for m in read.outcomes.values()]
    assert found.count(Status.OK) == 3 and found.count(Status.BUILD_ERROR) == 3 and found.count(Status.RUN_ERROR) == 2
    assert path.read_bytes() == (write(path, "# made for a test", trials), path.read_bytes())[1]
