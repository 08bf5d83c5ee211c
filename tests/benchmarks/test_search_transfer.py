import numpy as np
import pytest

from autosched.testing.replay import Recording, read_recording
from autosched.tuner.cost_model import WorkloadsHint
from benchmarks.search_transfer import SIZES, evaluations, main, source_of
from benchmarks.spaces import FOLDER

NAMES = ("dense-a", "dense-b", "dense-d")
SEEDS = range(40, 43)


@pytest.fixture(scope="module")
def recordings() -> dict[str, Recording]:
    return {name: read_recording(FOLDER / f"{name}.csv.gz") for name in NAMES}


def test_records_of_other_shapes_save_two_of_three_evaluations(recordings: dict[str, Recording]) -> None:
    others = [source_of(recordings[name], "dense-a") for name in NAMES[1:]]
    alone, told = (
        evaluations(recordings["dense-a"], "auto", hints, SEEDS)
        for hints in ((), (WorkloadsHint(others, SIZES["dense-a"]),))
    )
    assert told <= alone / 3


def test_shuffled_records_cost_nothing(recordings: dict[str, Recording]) -> None:
    rng = np.random.default_rng(7)
    others = [source_of(recordings[name], "dense-a", rng) for name in NAMES[1:]]
    hints = (WorkloadsHint(others, SIZES["dense-a"]),)
    assert not hints[0].is_telling
    assert evaluations(recordings["dense-a"], "auto", hints, SEEDS) == evaluations(
        recordings["dense-a"], "auto", (), SEEDS
    )


@pytest.mark.slow
def test_the_command_prints_a_line_for_each_space(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--strategy", "random", "--seeds", "1"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[-1].startswith("mean") and all(len(line.split()) == 5 for line in lines[2:])
