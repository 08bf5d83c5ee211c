"""What loop-nest features would add to the model across shapes: `python -m benchmarks.search_features`.

For each recorded dense shape, forests learn from the other shapes: from knobs and sizes, from knobs alone, from the
features of the scheduled loop nest alone, and from knobs and what loop nests do by operation (what transfer uses).
Printed are the correlation of predicted with measured logarithmic times, the score of the best of the first 1, 2, 3
and 5 choices, and the milliseconds that features cost.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from autosched.space import Config
from autosched.testing.replay import Recording, read_recording
from autosched.tuner.cost_model import Forest, Source
from autosched.tuner.cost_model.knobs import KnobNumbers
from autosched.tuner.cost_model.loop_features import per_operation
from benchmarks.search_transfer import SIZES
from benchmarks.spaces import FOLDER
from benchmarks.spaces.nests import Nests

FORESTS = 3  # with different seeds, whose answers are averaged
FASTEST = 20  # configurations of each shape that are always among those judged


@dataclass(frozen=True)
class Shape:
    """Some configurations of a recording: their scores as transfer sees them, and their loop features."""

    configs: Sequence[Config]
    scores: np.ndarray
    loops: np.ndarray
    feature_ms: float


def look(recording: Recording, n: int, rng: np.random.Generator) -> Shape:
    """The fastest configurations and others drawn at random, `n` together."""
    nests = Nests(recording.name)
    scored = sorted(Source(recording.trials_for(recording.name)).scored().values(), key=lambda pair: pair[1])
    chosen = sorted({*range(FASTEST), *map(int, rng.permutation(len(scored))[: n - FASTEST])})
    configs = [scored[i][0] for i in chosen]
    loops = nests(configs)
    cost_ms = 1e3 * nests.spent_s / len(configs)
    return Shape(configs, np.array([scored[i][1] for i in chosen]), loops, cost_ms)


def judge(name: str, shapes: Mapping[str, Shape]) -> None:
    """Print a line for each form of the model, for the shape of this name."""
    others, own = [other for other in shapes if other != name], shapes[name]
    configs = [config for other in others for config in shapes[other].configs]
    numbers, bare = KnobNumbers(configs, tuple(SIZES[name])), KnobNumbers(configs)
    knobs = np.concatenate([numbers(shapes[other].configs, SIZES[other]) for other in others])
    loops = np.concatenate([shapes[other].loops for other in others])
    known_scores = np.concatenate([shapes[other].scores for other in others])
    here = numbers(own.configs, SIZES[name])
    forms = {"sizes": (knobs, here), "knobs": (bare(configs), bare(own.configs)), "loops": (loops, own.loops)}
    both = [np.hstack([knob, per_operation(loop)]) for knob, loop in zip(forms["knobs"], forms["loops"], strict=True)]
    forms["both"] = both[0], both[1]
    for form, (known, asked) in forms.items():
        guesses = []
        for seed in range(FORESTS):
            forest = Forest(seed)
            forest.fit_values(known, known_scores)
            guesses.append(forest.mean(asked))
        alike = np.mean([np.corrcoef(guess, own.scores)[0, 1] for guess in guesses])
        orders = [np.argsort(guess, kind="stable") for guess in guesses]
        scores = [np.mean([np.exp(-own.scores[order[:k]].min()) for order in orders]) for k in (1, 2, 3, 5)]
        found = " ".join(f"{score:.3f}" for score in scores)
        print(f"{name:10}{form:8}{alike:.3f}  {found}  {own.feature_ms:.0f} ms", flush=True)


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.search_features", description=__doc__.splitlines()[0])
    parser.add_argument("--configs", type=int, default=50, help="of each shape")
    parser.add_argument("--folder", type=Path, default=FOLDER)
    options = parser.parse_args(arguments)
    files = sorted(options.folder.glob("dense-*.csv.gz"))
    rng = np.random.default_rng(0)
    recordings = [read_recording(path) for path in files]
    shapes = {recording.name: look(recording, options.configs, rng) for recording in recordings}
    print("shape, model: correlation, score of the best of the first 1 2 3 5 choices, cost of features a configuration")
    for name in shapes:
        judge(name, shapes)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
