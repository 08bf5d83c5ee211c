"""What compiled kernels tell of their times across shapes and operators: `python -m benchmarks.search_built`.

For the recorded spaces whose instructions were counted (`benchmarks.spaces.counts`): the rank correlation of predicted
with measured times where a model has learned from other shapes, and from the other operator alone, by loop nests, by
instructions, and by both. Then, for a model that tuning has after so many trials of a space with others of the other
spaces: which share of the kernels that take more than twice the best time it is sure of, and how many of those that
it calls hopeless are within 1.3 times the best.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence

import numpy as np

from autosched.codegen.cpu.instructions import COUNTS
from autosched.driver.tune.foresight import SLOW, SURE
from autosched.testing.replay import read_recording
from autosched.tuner.cost_model import BuiltModel, Forest, built_features
from autosched.tuner.cost_model.built import per_step
from benchmarks.spaces import FOLDER
from benchmarks.spaces.counts import COUNTED, key_of, read_counts
from benchmarks.spaces.nests import Nests

ELSEWHERE = 60  # trials of each other space
GOOD = 1.3  # times the best time: calling such a kernel hopeless is an error
TRIALS = (8, 24, 48)
OWN = len(per_step(np.zeros(len(COUNTS))))  # columns by instructions; those by loops come before


class Space:
    """The counted configurations of a recorded space: columns [n, columns] and logarithmic times, the default first."""

    def __init__(self, name: str):
        counts, recording, nests = read_counts(name), read_recording(FOLDER / f"{name}.csv.gz"), Nests(name)
        known = [(c, m) for c, m in recording.outcomes.items() if m.is_ok and key_of(c) in counts]
        loops = nests([config for config, _ in known])
        found = [
            built_features({"loops": row.tolist(), "instructions": counts[key_of(config)]})
            for row, (config, _) in zip(loops, known, strict=True)
        ]
        self.columns = np.array(found)
        self.log_s = np.log([measured.median_s for _, measured in known])

    @property
    def beside_default(self) -> np.ndarray:
        """The columns as tuning sees them: by themselves and beside the default's."""
        return np.concatenate([self.columns, self.columns - self.columns[0]], axis=1)


def correlation(space: Space, others: Sequence[Space], columns: slice) -> float:
    """Between the ranks of predicted and measured times; forests learn from others how far from the best one is."""
    forest = Forest()
    known_s = np.concatenate([other.log_s - other.log_s.min() for other in others])
    forest.fit_values(np.concatenate([other.columns[:, columns] for other in others]), known_s)
    guess = forest.mean(space.columns[:, columns])
    ranks = [np.argsort(np.argsort(values)) for values in (guess, space.log_s)]
    return float(np.corrcoef(*ranks)[0, 1])


def foreseen(space: Space, others: Sequence[Space], n: int, rng: np.random.Generator) -> tuple[float, float, int]:
    """After `n` trials drawn at random: the share of slow kernels that are called hopeless, and of those that are good
    ones, and how many are called so."""
    own = np.array([0, *(1 + rng.permutation(len(space.log_s) - 1)[: n - 1])])
    parts = [(space, own), *((other, rng.permutation(len(other.log_s))[:ELSEWHERE]) for other in others)]
    model = BuiltModel()
    model.fit(
        np.concatenate([one.beside_default[chosen] for one, chosen in parts]),
        np.concatenate([one.log_s[chosen] - one.log_s[0] for one, chosen in parts]),
    )
    rest = np.setdiff1d(np.arange(len(space.log_s)), own)
    mean, deviation = model.predict(space.beside_default[rest])
    above, best = space.log_s[rest] - space.log_s[0], float(space.log_s[own].min() - space.log_s[0])
    is_hopeless, is_slow = mean - SURE * deviation > best + np.log(SLOW), above > best + np.log(SLOW)
    n_hopeless, n_slow = int(is_hopeless.sum()), max(int(is_slow.sum()), 1)
    return (is_hopeless & is_slow).sum() / n_slow, (is_hopeless & (above < best + np.log(GOOD))).sum(), n_hopeless


def report(spaces: Mapping[str, Space], seeds: int) -> None:
    """Print both tables."""
    ways = {"loops": slice(0, -OWN), "instructions": slice(-OWN, None), "both": slice(None)}
    print(f"{'rank correlation':28}" + "".join(f"{way:>14}" for way in ways))
    for name, space in spaces.items():
        sources = {
            "all others": [other for key, other in spaces.items() if key != name],
            "other operator": [other for key, other in spaces.items() if key[:4] != name[:4]],
        }
        for text, others in sources.items():
            if others:
                found = "".join(f"{correlation(space, others, ways[way]):14.3f}" for way in ways)
                print(f"{f'{name}, from {text}':28}{found}", flush=True)
    print("trials: share of the slow ones that are called hopeless, good ones among those so called")
    for n in TRIALS:
        rng = np.random.default_rng(0)
        runs = [
            foreseen(space, [other for key, other in spaces.items() if key != name], n, rng)
            for name, space in spaces.items()
            for _ in range(seeds)
        ]
        found, wrong, said = np.array(runs).T
        print(f"{n:6}: {found.mean():.2f}, {wrong.sum():.0f} of {said.sum():.0f}", flush=True)


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.search_built", description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--only", default="", help="beginnings of names, separated by commas; all without")
    options = parser.parse_args(arguments)
    names = [path.name.removesuffix(".csv.gz") for path in sorted(COUNTED.glob("*.csv.gz"))]
    report({name: Space(name) for name in names if name.startswith(tuple(options.only.split(",")))}, options.seeds)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
