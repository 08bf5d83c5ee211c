import pytest

from autosched.runtime.names import identifier, known_name


@pytest.mark.parametrize(
    ("name", "expected"), [("x", "x"), ("gpu_0/data_0", "gpu_0_data_0"), ("input.1", "input_1"), ("1", "input_1")]
)
def test_identifier(name, expected):
    assert identifier(name) == expected
    assert identifier(expected) == expected


def test_the_exact_name_wins():
    assert known_name("a/b", {"a/b", "a_b"}) == "a/b"
    assert known_name("a/b", {"a_b"}) == "a_b"
    assert known_name("c/d", {"a_b"}) == "c/d"
