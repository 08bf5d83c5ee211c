import numpy as np

from autosched.space import Config, ConfigSpace, boolean, choice, split, union
from autosched.tuner.cost_model.knobs import KnobNumbers


def test_each_kind_of_knob_has_its_columns() -> None:
    seen = [Config("t", {"a": 12, "s": (4, 2), "o": "x", "f": True}), Config("t", {"a": 7, "s": (8, 1), "o": "y"})]
    numbers = KnobNumbers(seen)(seen)
    assert numbers.shape == (2, 2 + 4 + 2 + 1)
    assert np.allclose(numbers[0], [np.log2(13), 2, np.log2(5), 2, np.log2(3), 1, 1, 0, 1])
    assert numbers[1, -3:].tolist() == [0, 1, 0]


def test_templates_are_told_apart_and_unknown_texts_are_zeros() -> None:
    seen = [Config("t", {"o": "x"}), Config("u", {"b": 3})]
    numbers = KnobNumbers(seen)([*seen, Config("t", {"o": "new"})])
    assert numbers[0].tolist() == [1, 0, 1, 1, 0] and numbers[1].tolist() == [0, 1, 0, 2, 0]
    assert numbers[2].tolist() == [1, 0, 0, 1, 0]


def test_sizes_enter_with_what_pieces_waste() -> None:
    encode = KnobNumbers([Config("t", {"a": 6})], ("M", "N"))
    row = encode([Config("t", {"a": 6})], {"M": 16, "N": 12})[0]
    assert np.allclose(row, [4, np.log2(12), np.log2(7), 1, 18 / 16 - 1, 0])
    assert encode([Config("t", {"a": 6})], {"M": 16})[0][1] == 0  # a size that is not there counts as 1


def test_rows_of_positions_have_the_numbers_of_their_configurations() -> None:
    one = ConfigSpace("t", [choice("a", [1, 2, 6]), choice("o", ["x", "y"]), boolean("f")])
    other = ConfigSpace("u", [choice("a", ["all", "auto"]), split("s", 12, 2)])
    space = union([one, other])
    rows = space.all_rows()[np.random.default_rng(0).permutation(space.count())]
    configs = space.to_configs(rows)
    encode, sizes = KnobNumbers([*configs[:5], Config("v", {"z": 3})], ("M",)), {"M": 16}
    assert np.array_equal(encode.of_rows(space, rows, sizes), encode(configs, sizes))
    assert np.array_equal(encode.of_rows(one, one.all_rows()), encode(one.to_configs(one.all_rows())))
