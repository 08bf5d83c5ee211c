from pathlib import Path

import pytest

from autosched.driver.build.choose import make_task
from autosched.space import Config, ConfigSpace, boolean, choice
from autosched.target import Target
from autosched.task import Measurement, Status, Trial
from autosched.templates import template_named
from autosched.testing.replay import read_recording, replay
from benchmarks.spaces import FOLDER
from benchmarks.spaces.__main__ import SPACES, fastest, thinned, write

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


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name.split(".")[0])
def test_a_recording_has_the_knobs_of_its_template(path: Path) -> None:
    recording = read_recording(path)
    one, target = SPACES[recording.name], Target("llvm -mcpu=x86-64-v3")
    template = template_named(one.template, target)
    anchor = template.match(make_task(one.make(), target).func, target)
    assert anchor is not None
    space = template.space(anchor, target)
    later = {knob.name for knob in space.knobs if knob.absent is not None}  # of some there was nothing to record yet
    recorded = {knob.name for knob in recording.space.knobs}
    assert {knob.name for knob in space.knobs} - later <= recorded <= {knob.name for knob in space.knobs}
    switches = {knob.name for knob in space.knobs if knob.kind == "bool"}
    for config in list(recording.outcomes)[:: max(1, len(recording.outcomes) // 40)]:
        knobs = {name: bool(v) if name in switches else v for name, v in config.knobs.items()}
        assert Config(space.name, knobs) in space, space.why_not(Config(space.name, knobs))


def test_rounds_give_the_fastest_run_or_the_failure() -> None:
    good = [Measurement(Status.OK, (3e-3, 2e-3)), Measurement(Status.OK, (1e-3, 9e-3))]
    assert fastest(good).times_s == (1e-3,)
    assert fastest([*good, Measurement(Status.CRASH, error="died")]).status is Status.CRASH


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


def test_knobs_in_another_order_keep_their_columns(tmp_path: Path) -> None:
    knobs = ({"a": 1, "b": 2}, {"b": 1, "a": 2})
    write(tmp_path / "t.csv.gz", "#", [Trial(Config("t", one), Measurement(Status.OK, (1e-3,))) for one in knobs])
    assert [dict(c.knobs) for c in read_recording(tmp_path / "t.csv.gz").outcomes] == [dict(one) for one in knobs]
