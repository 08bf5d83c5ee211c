"""What records of other shapes are worth: `python -m benchmarks.search_transfer --seeds 10`.

For each recorded space of a family, the evaluations until 95 % of its best is reached: from nothing, with the records
of the family's other shapes, with the features of their loop nests beside, as tuning has them, and with such records
after their times were shuffled.
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
from benchmarks.spaces.nests import Nests

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


def source_of(
    recording: Recording, template: str, shuffle: np.random.Generator | None = None, nests: Nests | None = None
) -> Source:
    """A recording as another shape's records, its outcomes shuffled on request; `nests` adds its loop nests."""
    trials = recording.trials_for(template)
    if shuffle is not None:
        outcomes = [trials[i].measurement for i in shuffle.permutation(len(trials))]
        trials = [Trial(trial.config, outcome) for trial, outcome in zip(trials, outcomes, strict=True)]
    return Source(nests.noted(trials) if nests is not None else trials, SIZES[recording.name])


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.search_transfer", description=__doc__.splitlines()[0])
    parser.add_argument("--strategy", default="auto")
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--only", default="", help="beginnings of names, separated by commas; all without")
    parser.add_argument("--folder", type=Path, default=FOLDER)
    options = parser.parse_args(arguments)
    found = {
        name: options.folder / f"{name}.csv.gz" for name in SIZES if name.startswith(tuple(options.only.split(",")))
    }
    recordings = {name: read_recording(path) for name, path in found.items() if path.is_file()}
    nests = {name: Nests(name) for name in recordings}
    print(
        f"evaluations to {GOAL:.0%} of the best: from nothing, with the other shapes' records, and their loop nests, "
    )
    print("and with such records shuffled")
    table = []
    for name, recording in recordings.items():
        others = [r for other, r in recordings.items() if other != name and other[:4] == name[:4]]
        if not others:
            continue
        plain = [source_of(other, name) for other in others]
        noted = [source_of(other, name, nests=nests[other.name]) for other in others]
        rng = np.random.default_rng(0)
        bad = [source_of(other, name, rng, nests[other.name]) for other in others]
        sizes, here = SIZES[name], nests[name]
        hints: list[Sequence[Hint]] = [(), (WorkloadsHint(plain, sizes),)]
        hints += [(WorkloadsHint(sources, sizes, describe=here),) for sources in (noted, bad)]
        seeds = range(options.first_seed, options.first_seed + options.seeds)
        table.append([evaluations(recording, options.strategy, way, seeds) for way in hints])
        print(f"{name:10}" + "".join(f"{count:8.1f}" for count in table[-1]), flush=True)
    print(f"{'mean':10}" + "".join(f"{count:8.1f}" for count in np.mean(table, axis=0)))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
