import dataclasses
import json

import numpy as np
import pytest

from autosched.errors import ArtifactError
from autosched.runtime import NOP, Graph, Node, Storage, Value, check_graph, graph_of_kernel
from autosched.runtime.graph import sections_of
from tests.runtime.kernels import add_kernel, chain


def test_manifest_round_trip():
    graph = chain(2, 3, constant=True).graph
    assert Graph.from_manifest(json.loads(json.dumps(graph.to_manifest()))) == graph


def test_branches_follow_each_other_in_the_order_of_their_numbers():
    nodes = tuple(Node(f"n{i}", NOP, (0,), (0,), branch=b) for i, b in enumerate((0, 1, 1, 2, 0, 1, 2, 1, 2)))
    assert sections_of(nodes) == [range(1, 4), range(5, 7), range(7, 9)]
    graph = dataclasses.replace(chain(2, 3).graph, nodes=nodes)
    assert Graph.from_manifest(json.loads(json.dumps(graph.to_manifest()))) == graph


def test_graph_of_a_kernel():
    graph = graph_of_kernel(add_kernel(), "sum")
    check_graph(graph, {"sum": add_kernel()}, ())
    assert (graph.inputs, graph.outputs, graph.nodes[0].kernel) == ((0, 1), (2,), "sum")


def _value(graph, number, **changes):
    values = list(graph.values)
    values[number] = dataclasses.replace(values[number], **changes)
    return dataclasses.replace(graph, values=tuple(values))


def _node(graph, number, **changes):
    nodes = list(graph.nodes)
    nodes[number] = dataclasses.replace(nodes[number], **changes)
    return dataclasses.replace(graph, nodes=tuple(nodes))


# chain(2, 2, constant=True): values x, v0, v1, bias, y; nodes double0, double1, add
@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (lambda g: _value(g, 1, storage=Storage("arena", 8)), "not aligned"),
        (lambda g: _value(g, 1, storage=Storage("arena", 1024)), "outside the arena"),
        (lambda g: _value(g, 1, storage=Storage("arena", -64)), "outside the arena"),
        (lambda g: _value(g, 1, storage=Storage("nowhere", 0)), "storage 'nowhere'"),
        (lambda g: _value(g, 1, shape=(-2, 64)), "shape"),
        (lambda g: _value(g, 3, storage=Storage("const", 1)), "constant 1"),
        (lambda g: _value(g, 3, shape=(3, 64)), "constant 0"),
        (lambda g: _value(g, 0, storage=Storage("input", 1)), "not input 1"),
        (lambda g: _value(g, 4, storage=Storage("output", 2)), "not output 2"),
        (lambda g: _value(g, 1, storage=Storage("alias", 1)), "alias of itself"),
        (lambda g: _value(g, 1, storage=Storage("alias", 99)), "value 99"),
        (lambda g: _node(g, 0, kernel="missing"), "'missing', which is missing"),
        (lambda g: _node(g, 0, inputs=(0, 1)), "2 inputs"),
        (lambda g: _node(g, 0, inputs=(77,)), "value 77"),
        (lambda g: _value(g, 1, dtype="int32"), "int32"),
        (lambda g: _node(g, 0, kernel=NOP), "does not share"),
        (lambda g: dataclasses.replace(g, outputs=(55,)), "value 55"),
        (lambda g: _node(_node(g, 0, branch=1), 1, branch=2), "'double0' writes memory of node 'double1'"),
    ],
)
def test_every_rule_refuses_what_breaks_it(damage, words):
    executable = chain(2, 2, constant=True)
    check_graph(executable.graph, executable.kernels, executable.constants)
    with pytest.raises(ArtifactError, match=words):
        check_graph(damage(executable.graph), executable.kernels, executable.constants)


def test_an_alias_must_fit_into_its_storage():
    values = (
        Value("x", (4,), "float32", Storage("input", 0)),
        Value("flat", (8,), "float32", Storage("alias", 0)),
    )
    graph = Graph(values, (Node("reshape", NOP, (0,), (1,)),), (0,), (1,), 0)
    with pytest.raises(ArtifactError, match="larger than 'x'"):
        check_graph(graph, {}, ())
    smaller = _value(graph, 1, shape=(2, 2))
    check_graph(smaller, {}, ())
    assert smaller.root(1) == 0
    assert np.prod(smaller.values[1].shape) == 4
