"""Two tuners at once on one database: nothing is measured twice, and each learns what the other found."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from autosched.records import Record, open_store
from tests.driver.programs import ROOT

pytestmark = pytest.mark.early

# argv: database, trials, seconds of a measurement. Measures nothing: a configuration's time comes from its text.
TUNER = """
import sys, time, zlib
import autosched
from autosched.driver import TuneOptions
from autosched.task import Measurement, Status, Trial
from autosched.tuner.measure import MeasureOptions
from autosched.tuner.measure.sampling import judge
from tests.driver.programs import matmul

class Quick:
    def __init__(self, target, options): pass
    def __enter__(self): return self
    def __exit__(self, *_): pass
    def seconds(self, config): return 1e-3 * (1 + zlib.crc32(config.key.encode()) % 100)
    def measure(self, task, configs, best_s=None):
        for config in configs:
            time.sleep(float(sys.argv[3]))
            yield Trial(config, Measurement(Status.OK, (self.seconds(config),), how={"cache": "warm"}))
    def compare(self, task, configs):
        times = [[self.seconds(config)] * 6 for config in configs]
        return judge(configs, times, times[0], [{"cache": "warm"}] * len(configs))

if __name__ == "__main__":
    options = TuneOptions(trials=int(sys.argv[2]), threads=1, strategy="random", seed=3, until=0)
    print("ready", flush=True)
    sys.stdin.readline()
    report = autosched.tune(matmul(), "cpu", records=sys.argv[1], options=options, measurer=Quick)
    print(report.n_trials, report.tasks[0].best_s, flush=True)
"""


def start(database: str, trials: int, seconds: float = 0.01) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", TUNER, database, str(trials), str(seconds)]
    pipe = subprocess.PIPE
    return subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, text=True, cwd=ROOT)


def begin(tuners: list[subprocess.Popen[str]]) -> None:
    """Let all of them start at the same moment."""
    for tuner in tuners:
        assert tuner.stdout is not None and tuner.stdout.readline() == "ready\n", tuner.communicate()[1]
    for tuner in tuners:
        assert tuner.stdin is not None
        tuner.stdin.write("\n")
        tuner.stdin.flush()


def end(tuner: subprocess.Popen[str]) -> tuple[int, float]:
    out, errors = tuner.communicate(timeout=120)
    assert tuner.returncode == 0, errors
    n, best_s = out.split()
    return int(n), float(best_s)


def searched(database: str) -> list[Record]:
    with open_store(database, write=False) as store:
        return [r for r in store.records() if "interleaved" not in r.measurement.how]


def check_two_at_once(database: str) -> None:
    open_store(database).close()
    tuners = [start(database, 32) for _ in range(2)]
    begin(tuners)
    ends = [end(tuner) for tuner in tuners]
    records = searched(database)
    configs = [r.config for r in records]
    assert [n for n, _ in ends] == [32, 32] and len(configs) == 64 and len(set(configs)) == 64
    assert len({r.session for r in records}) == 2
    assert sum(r.is_default for r in records) == 1, "the default, too, is measured by one of them"
    least = min(r.measurement.median_s for r in records)
    assert min(best_s for _, best_s in ends) == least
    later = start(database, 1)
    begin([later])
    n, best_s = end(later)
    least = min(r.measurement.median_s for r in searched(database))
    assert n == 1 and best_s == least, "the winner of all trials, whoever measured it"
    with open_store(database) as store:
        assert store.claim(_task(), configs[:1], 1.0) == []  # it has been measured: nobody needs a lease


def _task():  # type: ignore[no-untyped-def]
    from autosched.driver.build.choose import make_task
    from autosched.target import Target
    from tests.driver.programs import matmul

    return make_task(matmul(), Target("cpu"), name="main", threads=1)


def test_two_at_once_in_a_file(tmp_path: Path) -> None:
    check_two_at_once(str(tmp_path / "r.db"))


def test_two_at_once_on_a_server(postgres_url: str) -> None:
    check_two_at_once(postgres_url)


@pytest.mark.parametrize("how", ["kill", pytest.param("terminate", marks=pytest.mark.slow)])
def test_the_leases_of_one_that_died_are_free(tmp_path: Path, how: str) -> None:
    database = str(tmp_path / "r.db")
    open_store(database).close()
    tuner = start(database, 48, 0.05)
    begin([tuner])
    wait_for(lambda: len(searched(database)) > 9)
    getattr(tuner, how)()
    tuner.communicate()
    before = {r.config for r in searched(database)}
    again = start(database, 48)
    begin([again])
    end(again)
    configs = [r.config for r in searched(database)]
    assert len(configs) == len(set(configs)) >= 48 and before <= set(configs)


def wait_for(is_there: Callable[[], bool]) -> None:
    import time

    end = time.monotonic() + 120
    while not is_there():
        assert time.monotonic() < end
        time.sleep(0.05)
