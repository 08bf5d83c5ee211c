import random

import pytest

from autosched.runtime.size_expr import Size, compiled, shape_at

NAMES = ("n", "past", "__import__")


def random_size(rng: random.Random, depth: int) -> Size:
    if depth == 0 or rng.random() < 0.2:
        return rng.choice([*NAMES, rng.randint(-3, 9)])
    op = rng.choice(["+", "-", "*", "min", "max", "//", "%"])
    return (op, random_size(rng, depth - 1), rng.randint(1, 7) if op in "//%" else random_size(rng, depth - 1))


def test_compiled_shapes_are_those_of_shape_at() -> None:
    rng = random.Random(1)
    shapes = [tuple(random_size(rng, 4) for _ in range(rng.randint(0, 3))) for _ in range(200)]
    evaluate = compiled(shapes, NAMES)
    for _ in range(20):
        values = [rng.randint(0, 50) for _ in NAMES]
        assert list(evaluate(values)) == [shape_at(s, dict(zip(NAMES, values, strict=True))) for s in shapes]


def test_deep_sizes_are_compiled() -> None:
    size: Size = "n"
    for _ in range(64):
        size = ("+", size, 1)
    assert compiled([(size,)], ["n"])([3]) == ((67,),)


def test_symbols_without_a_value_and_divisions_by_0() -> None:
    with pytest.raises(KeyError):
        compiled([("m",)], ["n"])
    with pytest.raises(ZeroDivisionError):
        compiled([(("//", 3, "n"),)], ["n"])([0])
