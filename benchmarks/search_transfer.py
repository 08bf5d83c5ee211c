"""What records of other shapes are worth: `python -m benchmarks.search_transfer --seeds 10`.

For each recorded space of a family, the evaluations until 95 % of its best is reached: from nothing, with the records
of the family's other shapes, and with the same records after their times were shuffled.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from autosched.task import Trial
from autosched.testing.replay import Recording, read_recording, replay
from autosched.tuner.cost_model import Hint, Source, WorkloadsHint
from benchmarks.spaces import FOLDER

GOAL = 0.95
BUDGET = 100

# What the templates' spaces know of each shape: extents of the loops that knobs cut.
SIZES: Mapping[str, Mapping[str, int]] = {
    "dense-a": {"M": 128, "K": 784, "N": 256},
    "dense-b": {"M": 64, "K": 256, "N": 512},
    "dense-c": {"M": 196, "K": 512, "N": 128},
    "dense-d": {"M": 96, "K": 384, "N": 384},
    "conv-a": {"C": 64, "O": 64, "H": 28, "stride": 1},
    "conv-b": {"C": 128, "O": 128, "H": 14, "stride": 1},
    "conv-c": {"C": 64, "O": 128, "H": 14, "stride": 2},
}


def evaluations(recording: Recording, strategy: str, hints: Sequence[Hint], seeds: Sequence[int]) -> float:
    """The mean number of evaluations until the goal is reached, `BUDGET` where it is not before."""
    runs = [replay(recording, strategy, budget=BUDGET, batch=1, seed=seed, hints=hints, goal=GOAL) for seed in seeds]
    return float(np.mean([len(run.scores) for run in runs]))


def source_of(recording: Recording, template: str, shuffle: np.random.Generator | None = None) -> Source:
    """A recording as another shape's records, its outcomes shuffled on request."""
    trials = recording.trials_for(template)
    if shuffle is not None:
        outcomes = [trials[i].measurement for i in shuffle.permutation(len(trials))]
        trials = [Trial(trial.config, outcome) for trial, outcome in zip(trials, outcomes, strict=True)]
    return Source(trials, SIZES[recording.name])


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.search_transfer", description=__doc__.splitlines()[0])
    parser.add_argument("--strategy", default="auto")
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--folder", type=Path, default=FOLDER)
    options = parser.parse_args(arguments)
    found = {name: options.folder / f"{name}.csv.gz" for name in SIZES}
    recordings = {name: read_recording(path) for name, path in found.items() if path.is_file()}
    print(f"evaluations to {GOAL:.0%} of the best: from nothing, with the other shapes' records, with shuffled ones")
    table = []
    for name, recording in recordings.items():
        others = [r for other, r in recordings.items() if other != name and other[:4] == name[:4]]
        if not others:
            continue
        good = WorkloadsHint([source_of(other, name) for other in others], SIZES[name])
        rng = np.random.default_rng(0)
        bad = WorkloadsHint([source_of(other, name, rng) for other in others], SIZES[name])
        ways: tuple[Sequence[Hint], ...] = ((), (good,), (bad,))
        seeds = range(options.first_seed, options.first_seed + options.seeds)
        table.append([evaluations(recording, options.strategy, hints, seeds) for hints in ways])
        print(f"{name:10}" + "".join(f"{count:8.1f}" for count in table[-1]), flush=True)
    print(f"{'mean':10}" + "".join(f"{count:8.1f}" for count in np.mean(table, axis=0)))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
