"""Spaces: what policies allow, numbering, JSON, and fallbacks."""

from __future__ import annotations

import json
from typing import Any

import pytest

from autosched.autotvm.task.space import ConfigEntity, ConfigSpace, FallbackConfigEntity


@pytest.mark.parametrize(
    ("policy", "outputs", "count"), [("factors", 2, 6), ("factors", 3, 18), ("power2", 2, 4), ("verbose", 2, 7)]
)
def test_splits_of_twelve(policy: str, outputs: int, count: int) -> None:
    space = ConfigSpace()
    axes = space.define_split("s", 12, policy=policy, num_outputs=outputs)
    assert len(space) == count and len(axes) == outputs
    assert all(e.size[0] == -1 and len(e.size) == outputs for e in space.space_map["s"].entities)


def test_limits_of_splits() -> None:
    space = ConfigSpace()
    space.define_split("few", 12, num_outputs=2, max_factor=4)
    space.define_split("given", 12, policy="candidate", candidate=[[3, 4], [-1, 2]])
    space.define_split("kept", 12, num_outputs=2, filter=lambda e: e.size[1] in (2, 3))
    assert space.dims == [4, 2, 2]
    for policy in ("mystery", "none_vec"):
        with pytest.raises(RuntimeError, match="Invalid policy"):
            space.define_split("wrong", 12, policy=policy)


@pytest.mark.parametrize(
    ("policy", "options", "count"),
    [("identity", {}, 1), ("all", {}, 6), ("interval_all", {"interval": (1, 3)}, 2)],
)
def test_orders(policy: str, options: dict[str, Any], count: int) -> None:
    space = ConfigSpace()
    space.define_reorder("r", [2, 3, 4], policy, **options)
    assert len(space) == count and space["r"].perm == [0, 1, 2]


@pytest.mark.parametrize(
    ("policy", "axes", "first", "count"),
    [
        ("try_unroll", 2, ["none", "none"], 4),
        ("try_unroll_vec", 2, ["none", "none"], 8),
        ("bind_gpu", 2, ["blockIdx.x", "threadIdx.x"], 1),
        ("bind_gpu", 5, ["fuse", "blockIdx.y", "blockIdx.x", "threadIdx.y", "threadIdx.x"], 1),
        ("bind_gpu_virtual", 3, ["blockIdx.x", "vthread", "threadIdx.x"], 1),
    ],
)
def test_annotations(policy: str, axes: int, first: list[str], count: int) -> None:
    space = ConfigSpace()
    space.define_annotate("a", [4] * axes, policy=policy)
    assert space["a"].anns == first and len(space) == count


def test_configurations_are_numbered_and_stored() -> None:
    space = ConfigSpace()
    space.define_knob("k", [1, "two", None])
    space.define_split("s", 4, num_outputs=2)
    config = space.get(5)
    assert config["k"].val is None and config["s"].size == [-1, 2] and space.point2knob(5) == [2, 1]
    assert space.knob2point([2, 1]) == 5
    again = ConfigEntity.from_json_dict(json.loads(json.dumps(config.to_json_dict())))
    assert again == config and again.get_other_option() == {"k": None}
    assert config.get_flatten_feature().dtype == "float32"
    config.define_knob("k", [7])  # ignored: the configuration is made
    assert config["k"].val is None and not config.errors and config.valid()
    with pytest.raises(RuntimeError, match="Invalid config knob"):
        ConfigEntity.from_json_dict({"index": 0, "entity": [["k", "xx", 1]]})


def test_fallbacks() -> None:
    config = FallbackConfigEntity()
    config.define_split("t", 56, num_outputs=3)
    config.fallback_split("t", [-1, 8, 4])
    assert config["t"].size == [2, 7, 4] and config.is_fallback
    reference = ConfigSpace()
    reference.define_split("t", 56, policy="candidate", candidate=[[-1, 7, 8]])
    reference.define_knob("k", ["chosen"])
    config.define_knob("k", ["first", "chosen"])

    class Input:
        config = reference.get(0)

    config.fallback_with_reference_log([(Input, None)])
    assert config["t"].size == [1, 7, 8] and config["k"].val == "chosen"
    with pytest.raises(RuntimeError, match="no split into"):
        config.fallback_split("t", [1])
