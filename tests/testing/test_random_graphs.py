"""Random graphs against NumPy with every access checked; `python -m benchmarks.fuzz` runs thousands."""

from functools import partial

import pytest

from autosched.testing.random_graphs import random_graph
from benchmarks.fuzz import _Worker, check, main, outcome


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
    assert main(["--graphs", "1", "--first", "3", "--unchecked", "--workers", "0"]) == 0
    assert capsys.readouterr().out.startswith("1 graphs, ")


def test_all_operators_are_drawn():
    """Of each kind of step, within some hundred graphs, one is taken."""
    taken = set()
    for seed in range(300):
        graph = random_graph(seed, most_steps=3)
        taken |= {getattr(b.value, "op_name", "").removeprefix("relax.") for b in graph.module["main"].bindings()}
    assert {
        "nn.layer_norm",
        "tile",
        "nn.pad",
        "cumsum",
        "where",
        "gather_nd",
        "scatter_nd",
        "topk",
        "nn.conv1d",
    } <= taken
    assert {"nn.attention", "nn.conv2d_transpose", "image.resize2d", "nn.gelu", "nn.log_softmax", "flip"} <= taken


def test_a_graph_that_ends_its_process_is_named_and_the_others_go_on():
    worker = _Worker(partial(outcome, checks=False), [1, 2])
    worker.process.kill()
    assert worker.take() == (1, "", "the process ended with code -9")
    assert worker.take() == (2, "", "")
    assert worker.take() is None
