"""What every test shares: nothing that a test does reaches the user's own caches or database."""

from __future__ import annotations

import gc
import logging
import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from tests.moments import MOMENTS_S
from tests.postgres import new_database as new_database
from tests.postgres import postgres as postgres
from tests.postgres import postgres_url as postgres_url

gc.disable()  # until all tests are collected


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Where only tests marked `alone` are asked for, files that have none are not imported, which takes longer."""
    if config.option.markexpr.split()[:1] == ["alone"] and collection_path.suffix == ".py":
        return "mark.alone" not in collection_path.read_text(encoding="utf-8") or None
    return None


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begin with the files that take longest; skip what a CPU that this one is only taken for would have to run."""
    if (providers := sys.modules.get("hypothesis.internal.conjecture.providers")) is not None:
        # It would parse our 1,500 files for numbers to draw, four seconds in each process.
        providers.is_local_module_file = lambda path: False  # type: ignore[attr-defined]
    items.sort(key=lambda item: item.get_closest_marker("early") is None)
    if not os.environ.get("AUTOSCHED_HOST_CPU"):
        return
    from autosched.target import host_cpu

    if not (missing := host_cpu().features - host_cpu().detected):
        return
    for item in items:
        mark = item.get_closest_marker("host")
        if mark is not None and mark.kwargs.get("runs"):
            item.add_marker(pytest.mark.skip(reason=f"this CPU lacks {', '.join(sorted(missing))}"))


def pytest_collection_finish() -> None:
    """Spare the garbage collector what stays to the end, test modules and what they import: a tenth of the time.

    It looks for nothing to free in that, which takes a second. Then let it wait, at 40 to 120 MB more for each process:
    a fifth of what it still takes.
    """
    gc.enable()
    gc.freeze()
    gc.set_threshold(1_000_000, 20, 100)


@pytest.fixture(scope="session", autouse=True)
def interruptible() -> None:
    """Give the programs that tests start a Ctrl-C that works: one who starts us in the background ignores it."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="session", autouse=True)
def private_folders(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Point the kernel cache and the databases of the whole run at a folder of its own.

    One cache for all tests and all of pytest-xdist's workers: a kernel that several need is compiled once.
    """
    folder = tmp_path_factory.mktemp("autosched")
    is_worker = "PYTEST_XDIST_WORKER" in os.environ
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("AUTOSCHED_CACHE_DIR", str((folder.parents[1] if is_worker else folder) / "cache"))
        patch.setenv("AUTOSCHED_DB", str(folder / "records.db"))
        patch.setenv("XDG_DATA_HOME", str(folder / "data"))  # the user's own database, which is asked after that one
        patch.setenv("TOPHUB_LOCATION", "NONE")  # what is shipped today is nothing that tests should hang on
        for name in (
            "AUTOSCHED_TUNE",
            "AUTOSCHED_STRICT",
            "AUTOSCHED_NUM_THREADS",
            "AUTOSCHED_TARGET_AS",
        ):
            patch.delenv(name, raising=False)
        yield folder


@pytest.fixture(scope="session", autouse=True)
def small_tunings() -> Iterator[None]:
    """Let tunings of this process have one builder, and run whole models for moments: no test asks which is faster.

    Builds have no helper: tests run on all cores anyway, and each helper would import the package (see `helper`).
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("autosched.tuner.measure.builder.choose_threads", lambda: 1)
        patch.setattr("autosched.codegen.compile.choose_threads", lambda: 1)
        for name, time_s in MOMENTS_S.items():
            patch.setattr(f"autosched.driver.{name}", time_s)
        yield


@pytest.fixture(scope="session", autouse=True)
def shared_nurseries() -> Iterator[None]:
    """Let tunings of this process fork their workers from one nursery: each of its own takes half a second or more."""
    from tests.nurseries import SharedNursery

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("autosched.tuner.measure.local.Nursery", SharedNursery.borrow)
        yield
    SharedNursery.end_all()


@pytest.fixture(scope="module")
def helper() -> Iterator[None]:
    """Let builds of many kernels have a second process, as they have wherever there are two cores."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("autosched.codegen.compile.choose_threads", lambda: 2)
        yield


@pytest.fixture(autouse=True)
def plain_loggers() -> None:
    """A command that is run in this process says what is logged (-q, -v); each test begins as if there was none.

    Not restored behind a test: a fixture of a whole file may have run the command before this one.
    """
    ours = [name for name in logging.root.manager.loggerDict if name.partition(".")[0] == "autosched"]
    levels = {logging.getLogger(): logging.WARNING} | {logging.getLogger(name): logging.NOTSET for name in ours}
    for logger, level in levels.items():
        if logger.level != level:  # setting one makes all loggers forget what they know
            logger.setLevel(level)


@pytest.fixture
def rng() -> np.random.Generator:
    """Random numbers that are the same in every run."""
    return np.random.default_rng(0)
