import pickle

import numpy as np
import pytest

from autosched.errors import SpaceError
from autosched.space import Config


def test_equality_is_by_value_and_order_does_not_count() -> None:
    a = Config("t", {"x": 1, "tile": [2, 8]})
    b = Config("t", {"tile": (2, 8), "x": np.int64(1)})
    assert a == b and hash(a) == hash(b) and len({a, b}) == 1
    assert a != Config("t", {"x": True, "tile": (2, 8)})
    assert a != Config("u", dict(a.knobs))


def test_json_and_pickle_round_trip() -> None:
    config = Config("t", {"x": 1, "on": True, "order": "mn", "tile": (2, 8)})
    assert Config.from_json(config.to_json()) == config == pickle.loads(pickle.dumps(config))
    assert Config.from_json(config.to_json())["tile"] == (2, 8)
    assert config["template"] == "t" and str(config) == "t: x=1 on=True order=mn tile=2x8"


def test_knobs_cannot_be_changed() -> None:
    with pytest.raises(TypeError):
        Config("t", {"x": 1}).knobs["x"] = 2  # type: ignore[index]


NO_CONFIGS = ["", "[]", "{}", '{"template": 1, "knobs": {}}', '{"template": "t", "knobs": {"x": 1.5}}']


@pytest.mark.parametrize("text", NO_CONFIGS)
def test_refuses_what_is_no_config(text: str) -> None:
    with pytest.raises(SpaceError):
        Config.from_json(text)


def test_unknown_knob_names_the_known_ones() -> None:
    with pytest.raises(SpaceError, match="there are x"):
        Config("t", {"x": 1})["y"]
