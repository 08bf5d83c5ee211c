"""The order in which options of a graph are tried."""

from __future__ import annotations

import pytest

from autosched.driver.build.graph_options import GraphOptions, graph_space
from autosched.driver.tune.graph_search import changes
from autosched.driver.tune.graph_walk import GraphWalk
from autosched.space import Config, ConfigSpace
from autosched.target import Target

RATIOS = {"blocks=vector": 0.9, "fuse_sums=False": 0.8, "branches=True": 1.1, "change_percent=25": 1.0}


@pytest.fixture(scope="module")
def space() -> ConfigSpace:
    found = graph_space(Target("cpu"))
    assert found is not None
    return found


def walked(walk: GraphWalk, together: dict[str, float]) -> list[str]:
    """What is asked for, where options take RATIOS of the time alone and `together` in several."""
    asked = []
    while config := walk.ask():
        asked.append(changes(config).removeprefix("graph: "))
        walk.tell(config, {**RATIOS, **together}.get(asked[-1]))
    return asked


def test_only_what_helps_alone_is_tried_together(space: ConfigSpace) -> None:
    both = "fuse_sums=False blocks=vector"
    asked = walked(GraphWalk(space, {}), {both: 0.7})
    assert asked[:-1] == [changes(c).removeprefix("graph: ") for c in space.neighbours(space.default)]
    assert asked[-1] == both


def test_what_helps_is_added_to_the_best(space: ConfigSpace) -> None:
    known = {GraphOptions(join_convolutions="none").config: 0.95}
    first, second = "fuse_sums=False blocks=vector", "fuse_sums=False join_convolutions=none blocks=vector"
    assert walked(GraphWalk(space, known), {first: 0.7})[-2:] == [first, second]
    second = "fuse_sums=False join_convolutions=none"
    assert walked(GraphWalk(space, known), {first: 0.85})[-2:] == [first, second]


def test_what_is_postponed_comes_back_the_cheap_ones_first(space: ConfigSpace) -> None:
    walk, later = GraphWalk(space, {}), list[Config]()
    for cost in (3.0, 1.0, 2.0):
        config = walk.ask()
        assert config is not None
        walk.postpone(config, cost)
        later.append(config)
    rest = [walk.ask() for _ in space.neighbours(space.default)]
    assert rest[-3:] == [later[1], later[2], later[0]] and walk.ask() is None


def test_what_is_known_is_not_asked_for(space: ConfigSpace) -> None:
    known: dict[Config, float | None] = dict.fromkeys(space.neighbours(space.default))
    assert GraphWalk(space, known).ask() is None
