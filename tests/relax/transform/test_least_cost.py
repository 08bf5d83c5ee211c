import itertools

import numpy as np
import pytest

from autosched.relax.transform.least_cost import CostGraph


def _random(seed: int, n: int = 6) -> CostGraph:
    rng, graph = np.random.default_rng(seed), CostGraph()
    for i in range(n):
        graph.variable(i, int(rng.integers(1, 4)))
    for _ in range(2 * n):
        names = tuple(int(i) for i in rng.permutation(n)[: rng.integers(1, 4)])
        table = rng.random([graph.sizes[i] for i in names])
        table[rng.random(table.shape) < 0.1] = np.inf
        graph.cost(names, table)
    return graph


def _total(graph: CostGraph, values: dict) -> float:
    return sum(table[tuple(values[n] for n in names)] for names, table in graph.factors)


@pytest.mark.parametrize("seed", range(20))
def test_the_least_of_all_combinations(seed):
    graph = _random(seed)
    names = list(graph.sizes)
    every = (dict(zip(names, v, strict=True)) for v in itertools.product(*(range(graph.sizes[n]) for n in names)))
    assert _total(graph, graph.solve()) == pytest.approx(min(_total(graph, v) for v in every))


def test_tables_that_would_be_too_large_are_cut():
    graph = _random(3, n=9)
    values = graph.solve(most_entries=2)
    assert set(values) == set(graph.sizes)
    assert all(0 <= v < graph.sizes[n] for n, v in values.items())


def test_equal_costs_take_the_first_value():
    graph = CostGraph()
    graph.variable("a", 3)
    graph.variable("b", 2)
    graph.cost(("a", "b"), np.ones((3, 2)))
    assert graph.solve() == {"a": 0, "b": 0}


def test_many_neighbours_of_one_value() -> None:
    """A value that 100 others read, each of which has one form: more dimensions than NumPy has."""
    graph = CostGraph()
    graph.variable("x", 2)
    for i in range(100):
        graph.variable(i, 1)
        graph.cost(("x", i), [[1.0], [0.5 if i else 60.0]])
    assert graph.solve() == {"x": 0, **dict.fromkeys(range(100), 0)}
