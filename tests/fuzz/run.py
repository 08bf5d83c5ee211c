"""Reads mutants in child processes that may be slow, run out of memory or crash, and counts what becomes of them."""

from __future__ import annotations

import multiprocessing
import os
import resource
import signal
import tempfile
import traceback
from collections import Counter
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from pathlib import Path
from random import Random

from autosched.errors import AutoschedError
from tests.fuzz.kinds import KINDS, Kind

TIME_S = 20  # for one mutant; on a busy machine most take some milliseconds
MEMORY = 3 << 30  # beyond what the process has when it begins
GOOD = ("read", "refused")


@dataclass
class Findings:
    """How many mutants of a kind ended how, and the texts of those that should not have."""

    kind: str
    counts: Counter[str] = field(default_factory=Counter)
    bad: list[tuple[int, str]] = field(default_factory=list)  # the mutant's number, and what happened

    def __str__(self) -> str:
        order = (*GOOD, "traceback", "hang", "crash")
        return f"{self.kind}: " + ", ".join(f"{self.counts[name]} {name}" for name in order)


def mutant(kind: Kind, seeds: list[bytes], seed: int, number: int) -> bytes:
    """The mutant of this number: the same for the same seed, in every process."""
    rng = Random(f"{kind.name} {seed} {number}")
    return kind.mutate(rng.choice(seeds), rng)


def fuzz(name: str, count: int, seed: int = 0, first: int = 0) -> Findings:
    """Read the mutants [first, first + count) of a kind."""
    kind, found = KINDS[name], Findings(name)
    with tempfile.TemporaryDirectory() as folder:
        seeds = kind.seeds(Path(folder))
        for data in seeds:  # what is not mutated is read
            path = Path(folder) / f"good{kind.suffix}"
            path.write_bytes(data)
            try:
                kind.read(path)
            except AutoschedError as error:
                if kind.name != "toml":  # a space is no project file, and the other way round
                    raise AssertionError(f"{name}: a file that was not changed is refused: {error}") from error
        number, end = first, first + count
        while number < end:
            number = _batch(kind, seeds, seed, number, end, Path(folder), found)
    return found


def _batch(kind: Kind, seeds: list[bytes], seed: int, first: int, end: int, folder: Path, found: Findings) -> int:
    """Let a child read mutants until it ends or hangs; the number of the next one."""
    context = multiprocessing.get_context("fork")
    receiving, sending = context.Pipe(duplex=False)
    child = context.Process(target=_read_all, args=(kind, seeds, seed, first, end, folder, sending))
    child.start()
    sending.close()
    number = first
    try:
        while number < end:
            if not receiving.poll(TIME_S + 10):
                _note(found, "hang", number, "no answer")
                return number + 1
            outcome, text = receiving.recv()
            _note(found, outcome, number, text)
            number += 1
    except EOFError:
        child.join()
        _note(found, "crash", number, f"exit code {child.exitcode}")
        number += 1
    finally:
        child.kill()
        child.join()
    return number


def _note(found: Findings, outcome: str, number: int, text: str) -> None:
    found.counts[outcome] += 1
    if outcome not in GOOD:
        found.bad.append((number, text))


class _TooSlow(BaseException):
    """The time of one mutant is over."""


def _stop(*_: object) -> None:
    raise _TooSlow


def _read_all(
    kind: Kind, seeds: list[bytes], seed: int, first: int, end: int, folder: Path, results: Connection
) -> None:
    signal.signal(signal.SIGALRM, _stop)
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + MEMORY, used + MEMORY))
    with open(os.devnull, "w") as silent:
        os.dup2(silent.fileno(), 1)
        os.dup2(silent.fileno(), 2)
    path = folder / f"mutant{kind.suffix}"
    for number in range(first, end):
        path.write_bytes(mutant(kind, seeds, seed, number))
        signal.alarm(TIME_S)
        try:
            kind.read(path)
            outcome, text = "read", ""
        except AutoschedError as error:
            outcome, text = "refused", str(error)
            if kind.name not in ("script", "toml") and "\n" in text:
                outcome, text = "traceback", f"an error of several lines: {text!r}"
        except _TooSlow:
            outcome, text = "hang", traceback.format_exc(limit=-6)
        except BaseException:
            outcome, text = "traceback", traceback.format_exc(limit=-6)
        finally:
            signal.alarm(0)
        results.send((outcome, text))
