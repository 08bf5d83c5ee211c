"""Random graphs against NumPy with every access checked; `python -m benchmarks.fuzz` runs thousands."""

import pytest

from autosched.testing.random_graphs import random_graph
from benchmarks.fuzz import check, main


@pytest.mark.parametrize("seed", range(4))
def test_graphs_agree_with_numpy(seed):
    assert check(random_graph(seed, most_steps=4), checks=True) == ""


def test_a_position_out_of_range_is_reported():
    seed = next(s for s in range(400) if random_graph(s, most_steps=3).bad_index is not None)
    assert check(random_graph(seed, most_steps=3), checks=False) == ""


def test_a_wrong_expectation_is_seen():
    """The check can fail."""
    graph = random_graph(1, most_steps=2)
    wrong = type(graph)(graph.seed, graph.module, graph.inputs, graph.expected + 1.0, None)
    assert "differs by" in check(wrong, checks=False)
    unseen = type(graph)(graph.seed, graph.module, graph.inputs, graph.expected, 99)
    assert check(unseen, checks=False) == "position 99 is not reported"


def test_the_command_counts(capsys):
    assert main(["--graphs", "1", "--first", "3", "--unchecked"]) == 0
    assert capsys.readouterr().out.startswith("1 graphs, ")
