"""What a tuner calls after every batch."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

import numpy as np

from autosched.autotvm import record
from autosched.errors import InvalidTypeError

if TYPE_CHECKING:
    from autosched.autotvm.measure.types import MeasureInput, MeasureResult

_SCALE = {"": 1.0, "k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12}
Callback: TypeAlias = "Callable[[Any, Sequence[MeasureInput], Sequence[MeasureResult]], object]"  # (tuner, …)


def log_to_file(file_out: object, protocol: str = "json") -> Callback:
    """Append every measurement to a log: a path or an open file."""
    if not isinstance(file_out, str | Path) and not hasattr(file_out, "writelines"):
        raise InvalidTypeError(f"log_to_file takes a path or an open file, not {type(file_out).__name__}")

    def callback(tuner: object, inputs: Sequence[MeasureInput], results: Sequence[MeasureResult]) -> None:
        lines = [record.encode(inp, res, protocol) + "\n" for inp, res in zip(inputs, results, strict=True)]
        if isinstance(file_out, str | Path):
            Path(file_out).parent.mkdir(parents=True, exist_ok=True)
            with open(file_out, "a") as file:
                file.writelines(lines)
        else:
            file_out.writelines(lines)

    return callback


class SavesPairs(Protocol):
    """A database of pairs."""

    def save(self, inp: MeasureInput, res: MeasureResult, extend: bool = False) -> object: ...


def log_to_database(db: SavesPairs) -> Callback:
    """Hand every measurement to `db.save(input, result)`."""

    def callback(tuner: object, inputs: Sequence[MeasureInput], results: Sequence[MeasureResult]) -> None:
        for inp, res in zip(inputs, results, strict=True):
            db.save(inp, res, extend=True)

    return callback


def progress_bar(total: int, prefix: str = "", si_prefix: str = "G") -> Callback:
    """Show how far the tuning is, on standard error."""
    begin, best, done = time.time(), 0.0, 0

    def callback(tuner: Any, inputs: Sequence[MeasureInput], results: Sequence[MeasureResult]) -> None:
        nonlocal best, done
        current = 0.0
        for res in results:
            if res.error_no == 0:
                current = tuner.task.flop / float(np.mean(res.costs))
                best = max(best, current)
        done += len(results)
        scale = _SCALE[si_prefix]
        sys.stderr.write(
            f"\r{prefix} Current/Best: {current / scale:7.2f}/{best / scale:7.2f} {si_prefix}FLOPS | "
            f"Progress: ({done}/{total}) | {time.time() - begin:.2f} s"
        )
        if done >= total:
            sys.stderr.write(" Done.\n")

    return callback


class Monitor:
    """Collects the speed of every trial."""

    def __init__(self) -> None:
        self.scores: list[float] = []
        self.timestamps: list[float] = []

    def __call__(self, tuner: object, inputs: Sequence[MeasureInput], results: Sequence[MeasureResult]) -> None:
        """Note a batch."""
        for inp, res in zip(inputs, results, strict=True):
            ok = res.error_no == 0
            self.scores.append(inp.task.flop / float(np.mean(res.costs)) if ok else 0.0)
            self.timestamps.append(res.timestamp)

    def reset(self) -> None:
        """Forget what was noted."""
        self.scores, self.timestamps = [], []

    def trial_scores(self) -> np.ndarray:
        """Operations per second of every trial."""
        return np.array(self.scores)

    def trial_timestamps(self) -> np.ndarray:
        """When every trial was."""
        return np.array(self.timestamps)
