"""Ten synthetic spaces of ten million and more configurations, with constraints and a known optimum.

Every function is a time in milliseconds: `1 + penalty`, where the penalty is 0 at one hidden configuration that
satisfies the constraints, so 1 ms is the optimum. Five are separable (knobs act on their own), five are not. Hidden
configurations and weights are drawn from the function's own seed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from autosched.space import Config, ConfigSpace, Knob, boolean, choice
from autosched.task import Measurement, Status, Trial

Penalty = Callable[[np.ndarray], float]  # of positions of the knobs


@dataclass(frozen=True)
class Function:
    """A space and the penalty of its configurations."""

    name: str
    is_separable: bool
    space: ConfigSpace
    best: np.ndarray  # the hidden configuration, as positions
    penalty: Penalty

    def measure(self, config: Config) -> Trial:
        """The trial of a configuration; 1 ms is the optimum."""
        row = self.space.to_rows([config])[0]
        return Trial(config, Measurement(Status.OK, (1e-3 * (1 + self.penalty(row)),)))


def functions() -> tuple[Function, ...]:
    """All ten."""
    made: list[Function] = []
    for seed, (name, (is_separable, make)) in enumerate(MAKERS.items()):
        rng = np.random.default_rng((seed, 2024))
        knobs = _knobs(9 + seed % 4, rng)
        sizes = np.array([len(knob.values) for knob in knobs])
        best = rng.integers(0, sizes)
        space = ConfigSpace(name.replace("-", "_"), knobs, _constraints(knobs, best))
        assert space.valid_rows(best[None, :])[0], "the optimum satisfies the constraints"
        made.append(Function(name, is_separable, space, best, make(sizes, best, rng)))
    return tuple(made)


def _knobs(n: int, rng: np.random.Generator) -> list[Knob]:
    """Powers of two, ranges, texts and a switch, as tuning spaces have them."""
    knobs: list[Knob] = []
    for i in range(n):
        kind = i % 4
        if kind == 0:
            knobs.append(choice(f"tile{i}", [1 << e for e in range(int(rng.integers(9, 12)))]))
        elif kind == 1:
            knobs.append(choice(f"count{i}", range(1, int(rng.integers(10, 17)))))
        elif kind == 2:
            knobs.append(choice(f"step{i}", [1, 2, 3, 4, 6, 8, 12, 16, 24]))
        else:
            knobs.append(choice(f"order{i}", [f"v{v}" for v in range(6)]) if i % 8 == 3 else boolean(f"flag{i}"))
    return knobs


def _constraints(knobs: list[Knob], best: np.ndarray) -> list[str]:
    """Products of two numbers are bounded, so that about half of all combinations are valid and the best is one."""
    numbers = [i for i, knob in enumerate(knobs) if knob.kind == "int"]
    texts = []
    for a, b in zip(numbers[::2], numbers[1::2], strict=False):
        products = np.outer(knobs[a].array, knobs[b].array)
        bound = max(int(np.median(products)), int(products[best[a], best[b]]))
        texts.append(f"{knobs[a].name} * {knobs[b].name} <= {bound}")
    return texts


def _unit(row: np.ndarray, sizes: np.ndarray) -> np.ndarray:
    return np.asarray(row / np.maximum(sizes - 1, 1))


def _weights(sizes: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Few knobs matter much, the others little."""
    return np.asarray(rng.permutation(3.0 * 0.7 ** np.arange(len(sizes))))


def _bowl(sizes: np.ndarray, best: np.ndarray, rng: np.random.Generator) -> Penalty:
    weights = _weights(sizes, rng)
    return lambda row: float(weights @ (_unit(row, sizes) - _unit(best, sizes)) ** 2 * 4)


def _valley(sizes: np.ndarray, best: np.ndarray, rng: np.random.Generator) -> Penalty:
    weights = _weights(sizes, rng)
    return lambda row: float(weights @ np.abs(_unit(row, sizes) - _unit(best, sizes)))


def _saw(sizes: np.ndarray, best: np.ndarray, rng: np.random.Generator) -> Penalty:
    """Odd distances from the best cost more than even ones."""
    weights = _weights(sizes, rng)

    def penalty(row: np.ndarray) -> float:
        apart = np.abs(row - best)
        return float(weights @ (apart / np.maximum(sizes - 1, 1) + 0.3 * (apart % 2)))

    return penalty


def _plateau(sizes: np.ndarray, best: np.ndarray, rng: np.random.Generator) -> Penalty:
    """Flat far from the best."""
    weights = _weights(sizes, rng)
    return lambda row: float(weights @ np.minimum(3 * np.abs(_unit(row, sizes) - _unit(best, sizes)), 1.0))


def _tables(sizes: np.ndarray, best: np.ndarray, rng: np.random.Generator) -> Penalty:
    """A random penalty for each candidate."""
    weights = _weights(sizes, rng)
    tables = [rng.uniform(0.2, 1.0, size) for size in sizes]
    for table, at in zip(tables, best, strict=True):
        table[at] = 0.0
    return lambda row: float(sum(w * table[i] for w, table, i in zip(weights, tables, row, strict=True)))


def _ridge(sizes: np.ndarray, best: np.ndarray, rng: np.random.Generator) -> Penalty:
    """Narrow across the sums of two knobs, wide along them."""
    weights = _weights(sizes, rng)

    def penalty(row: np.ndarray) -> float:
        apart = _unit(row, sizes) - _unit(best, sizes)
        return float(weights @ (4 * (apart + np.roll(apart, 1)) ** 2 + 0.5 * apart**2))

    return penalty


def _roofline(sizes: np.ndarray, best: np.ndarray, rng: np.random.Generator) -> Penalty:
    """The slowest of four resources counts, each used by all knobs in another mixture."""
    mixtures = rng.normal(size=(4, len(sizes)))

    def penalty(row: np.ndarray) -> float:
        apart = _unit(row, sizes) - _unit(best, sizes)
        return float(np.max(np.abs(mixtures @ apart)) + 0.5 * np.abs(apart).mean())

    return penalty


def _cliff(sizes: np.ndarray, best: np.ndarray, rng: np.random.Generator) -> Penalty:
    """Larger is better up to a budget that groups of three knobs share; beyond it everything is slow."""
    groups = [rng.permutation(len(sizes))[:3] for _ in range(4)]
    unit = _unit(best, sizes)

    def penalty(row: np.ndarray) -> float:
        at, total = _unit(row, sizes), 0.0
        for group in groups:
            excess = float(at[group].sum() - unit[group].sum())
            total += 1.5 if excess > 1e-9 else -excess
        return total + 0.5 * float(np.abs(at - unit).mean())

    return penalty


def _triples(sizes: np.ndarray, best: np.ndarray, rng: np.random.Generator) -> Penalty:
    """Smooth random functions of triples of knobs: what one does depends on two others."""
    groups = [(int(i), *rng.permutation(np.delete(np.arange(len(sizes)), i))[:2]) for i in range(len(sizes))]
    waves = [(rng.normal(0, 2.0, 3), rng.uniform(0, 2 * np.pi)) for _ in groups]

    def values(row: np.ndarray) -> np.ndarray:
        at = _unit(row, sizes)
        return np.array([np.cos(f @ at[list(g)] + p) for g, (f, p) in zip(groups, waves, strict=True)])

    goal = values(best)
    return lambda row: float(np.abs(values(row) - goal).sum() * 0.5 + 0.5 * np.mean(row != best))


def _products(sizes: np.ndarray, best: np.ndarray, rng: np.random.Generator) -> Penalty:
    """Bowls of the differences of two knobs, switched by a third one."""
    pairs = [rng.permutation(len(sizes))[:3] for _ in range(len(sizes))]
    weights = 2.0 * 0.8 ** np.arange(len(pairs))

    def penalty(row: np.ndarray) -> float:
        apart = _unit(row, sizes) - _unit(best, sizes)
        terms = [abs(apart[a] - apart[b]) * (1 + 2 * abs(apart[c])) + 0.2 * abs(apart[c]) for a, b, c in pairs]
        return float(weights @ np.array(terms)) + 0.3 * float(np.abs(apart).mean())

    return penalty


Maker = Callable[[np.ndarray, np.ndarray, np.random.Generator], Penalty]
MAKERS: Mapping[str, tuple[bool, Maker]] = {
    "separable-bowl": (True, _bowl),
    "separable-valley": (True, _valley),
    "separable-saw": (True, _saw),
    "separable-plateau": (True, _plateau),
    "separable-tables": (True, _tables),
    "interacting-ridge": (False, _ridge),
    "interacting-roofline": (False, _roofline),
    "interacting-cliff": (False, _cliff),
    "interacting-triples": (False, _triples),
    "interacting-products": (False, _products),
}
