"""The runner's side: what was checked while others built is not loaded and checked again when it is timed."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from autosched.task import Measurement, Status
from autosched.tuner.measure import run_role
from autosched.tuner.measure.base import CandidateError, MeasureOptions
from autosched.tuner.measure.run_role import Entry, Interleave, Run, RunRole, interleave

OPTIONS = MeasureOptions(repeat_s=1e-5, round_s=1e-5, budget_s=1e-3)


class Loaded:
    """A candidate that counts its calls."""

    sets = (None,)

    def __init__(self) -> None:
        self.calls = 0

    def run(self, number: int = 1) -> float:
        self.calls += number
        return 1e-6 * number


class Bench:
    """Notes what is done; a kernel "bad" is found wrong."""

    checked_against = "nothing"

    def __init__(self, log: list[str]):
        self.log = log

    def load(self, kernel: Any, packs: Sequence[Any], pool: Any, threads: int, *, cold_bytes: int = 0) -> Loaded:
        self.log.append(f"load {kernel}")
        return Loaded()

    def make_fresh(self, loaded: Loaded) -> None:
        assert loaded.calls == 0

    def check(self, loaded: Loaded, packs: Sequence[Any], options: MeasureOptions) -> None:
        self.log.append("check")
        if self.log[-2] == "load bad":
            raise CandidateError(Status.WRONG_RESULT, "wrong")

    def recheck(self, loaded: Loaded, packs: Sequence[Any], options: MeasureOptions) -> None:
        self.log.append("recheck")


class Role(RunRole):
    """A runner whose tasks are logs."""

    pool = None

    def open_bench(self, reference: Any, backend: str = "cpu") -> Bench:
        return Bench(reference)


@pytest.fixture
def log() -> list[str]:
    return []


@pytest.fixture
def role(log: list[str]) -> Role:
    made = Role()
    made.learn("task", log)
    made.learn("other", log)
    return made


class Pool:
    """Notes when its threads are apart."""

    def __init__(self, log: list[str]):
        self.log = log

    @contextlib.contextmanager
    def threads_apart(self) -> Iterator[None]:
        self.log.append("apart")
        yield
        self.log.append("together")


def message(kernel: str, **options: Any) -> Run:
    return Run(Entry(kernel, (), 1), options.pop("reference", "task"), OPTIONS, **options)


def test_what_was_checked_is_timed_without_loading_it_again(role: Role, log: list[str]) -> None:
    assert role.do(message("a", is_timed=False)) == "nothing"
    found = role.do(message("a", is_checked=True))
    assert isinstance(found, Measurement) and found.is_ok and found.checked_against == "nothing"
    assert log == ["load a", "check", "recheck"]


def test_what_is_timed_has_its_threads_apart(role: Role, log: list[str]) -> None:
    role.pool = Pool(log)  # type: ignore[assignment]
    role.do(message("one"))
    role.do(Interleave((Entry("two", (), 1),), "task", OPTIONS, 6))
    assert log == ["load one", "check", "apart", "together", "recheck", "load two", "apart", "together"]


def test_without_that_it_is_loaded_and_checked(role: Role, log: list[str]) -> None:
    role.do(message("a"))
    role.do(message("a", is_checked=True))  # by a worker that has died since: this one knows nothing of it
    assert log == ["load a", "check", "recheck"] * 2


@pytest.mark.parametrize(
    "between", [message("b", reference="other"), Interleave((Entry("b", (), 1),), "task", OPTIONS, 1)]
)
def test_another_message_between_forgets_it(role: Role, log: list[str], between: Any) -> None:
    role.do(message("a", is_timed=False))
    role.do(between)
    log.clear()
    role.do(message("a", is_checked=True))
    assert log == ["load a", "check", "recheck"]


def test_what_was_found_wrong_is_not_kept(role: Role, log: list[str]) -> None:
    role.do(message("a", is_timed=False))
    with pytest.raises(CandidateError):
        role.do(message("bad", is_timed=False))
    log.clear()
    with pytest.raises(CandidateError):
        role.do(message("bad", is_checked=True))
    assert log == ["load bad", "check"]


class Steady(Loaded):
    """Takes the same time in every call."""

    def __init__(self, call_s: float):
        super().__init__()
        self.call_s = call_s

    def run(self, number: int = 1) -> float:
        return self.call_s * number


@pytest.mark.parametrize(
    ("calls_s", "rounds"),
    [
        ((1e-6,), [12]),
        ((1e-6, 1.05e-6, 1.2e-6, 0.9e-6), [20, 20, 6, 20]),
        ((1e-6, 2e-6, 1.2e-6), [6, 6, 6]),
        ((1e-6, 1.05e-6, 1.2e-6), [12, 12, 6]),
    ],
    ids=["alone", "one is faster", "all are behind", "none is faster"],
)
def test_what_is_surely_behind_is_compared_no_further(calls_s: Sequence[float], rounds: Sequence[int]) -> None:
    found = interleave([Steady(s) for s in calls_s], OPTIONS, 20, random.Random(0))
    assert [len(times) for times in found] == rounds


@pytest.mark.parametrize(("noise", "rounds"), [(0.0, 20), (0.002, 20), (0.05, 40)])
def test_what_is_known_well_is_compared_no_further(noise: float, rounds: int) -> None:
    rng = random.Random(1)

    class Noisy(Steady):
        def run(self, number: int = 1) -> float:
            return self.call_s * number * (1 + noise * rng.uniform(-1, 1))

    found = interleave([Steady(1e-6), Noisy(0.98e-6)], OPTIONS, 40, random.Random(0))
    assert [len(times) for times in found] == [rounds, rounds]


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Two CPUs of ours, and one of somebody else."""
    monkeypatch.setattr(run_role, "_own_cpus", lambda: [0, 3])
    for cpu, khz, count in ((0, 2_100_400, 5), (1, 9_000_000, 900), (3, 3_400_600, 7)):
        for name, value in (("cpufreq/scaling_cur_freq", khz), ("thermal_throttle/core_throttle_count", count)):
            path = tmp_path / f"cpu{cpu}" / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(f"{value}\n")
    return tmp_path


def test_only_our_cpus_count(root: Path) -> None:
    assert run_role.clock_khz(root) == 3_400_600 and run_role.throttle_count(root) == 12
    assert run_role.clock_facts(12, root) == {"clock_mhz": 3401}
    assert run_role.clock_facts(9, root) == {"clock_mhz": 3401, "throttled": 3}


def test_a_system_that_tells_nothing(root: Path) -> None:
    assert run_role.clock_khz(root / "none") is None and run_role.throttle_count(root / "none") is None
    assert run_role.clock_facts(None, root / "none") == {}
    (root / "cpu0/cpufreq/scaling_cur_freq").write_text("<unknown>\n")
    (root / "cpu3/cpufreq/scaling_cur_freq").write_text("")
    assert run_role.clock_facts(None, root) == {}
