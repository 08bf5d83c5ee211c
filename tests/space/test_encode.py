import numpy as np

from autosched.space import boolean, choice, split
from autosched.space.encode import encode_knob


def test_int_has_log2_and_power_of_two() -> None:
    table, names = encode_knob(choice("x", [1, 6, 8, 12]))
    assert names == ("log2 x", "pow2 x")
    assert np.allclose(table[:, 0], np.log2([1, 6, 8, 12])) and table[:, 1].tolist() == [0, 1, 3, 2]


def test_powers_of_two_need_one_column_and_zero_is_below_one() -> None:
    assert encode_knob(choice("x", [1, 2, 4]))[1] == ("log2 x",)
    table, _ = encode_knob(choice("x", [0, 1, 2, 4]))
    assert np.all(np.diff(table[:, 0]) > 0)


def test_other_kinds() -> None:
    assert encode_knob(boolean("on"))[0].tolist() == [[0.0], [1.0]]
    assert encode_knob(choice("o", ["a", "b", "c"]))[0].tolist() == np.eye(3).tolist()
    assert encode_knob(choice("o", ["a", "b"]))[0].shape == (2, 1)
    assert encode_knob(choice("o", [7]))[0].shape == (1, 0)
    assert encode_knob(split("t", 8))[1] == ("log2 t[0]", "log2 t[1]")
