"""Knobs whose best value is the last of their candidates are named, where a longer list would offer more."""

from __future__ import annotations

from pathlib import Path

from autosched.driver.build.choose import make_task
from autosched.driver.task_space import space_of
from autosched.driver.tune.border import border_knobs
from autosched.space import Config, ConfigSpace, use_spaces
from autosched.space.knob import Knob
from autosched.target import Target
from tests.driver.programs import matmul

CPU = Target("cpu")
SPACE = """
[space]
template = "matmul"
values = ["batch", "M", "N", "K", "lanes", "registers"]
[knobs.rows]
range = [2, 4]
[knobs.vectors]
range = [1, 3]
[knobs.order]
values = ["nm", "mn"]
[knobs.chunk]
values = [1, 2, 4, 8]
at_most = "M"
[knobs.unroll_k]
values = [1, 2, 4]
[[constraint]]
require = "rows * vectors + vectors + 1 <= registers"
[[constraint]]
require = "K % unroll_k == 0"
"""


def test_only_borders_that_a_longer_list_would_move_are_named(tmp_path: Path) -> None:
    (tmp_path / "cpu").mkdir()
    (tmp_path / "cpu" / "matmul.toml").write_text(SPACE)
    known = {"batch": 1, "M": 64, "N": 64, "K": 12, "lanes": 8, "registers": 16}
    knobs = [Knob(n, v) for n, v in (("rows", (2, 3, 4)), ("vectors", (1, 2, 3)), ("chunk", (1, 2, 4, 8)))]
    knobs += [Knob("order", ("nm", "mn")), Knob("unroll_k", (1, 2, 4))]
    rules = ["rows * vectors + vectors + 1 <= registers", "K % unroll_k == 0"]
    space = ConfigSpace("matmul", knobs, rules, values=known)

    def named(**changed: int) -> tuple[str, ...]:
        config = Config("matmul", {"rows": 3, "vectors": 2, "order": "nm", "chunk": 2, "unroll_k": 2, **changed})
        with use_spaces(tmp_path):
            return border_knobs(space, config)

    assert named() == ()
    assert named(chunk=8) == ("matmul: chunk=8 is the largest candidate",)
    assert named(rows=2) == ("matmul: rows=2 is the smallest candidate",)
    assert named(vectors=1) == ()  # nothing is smaller than one
    assert named(rows=4, vectors=3) == ()  # a larger tile does not fit the registers
    assert named(unroll_k=4) == ()  # 8 does not divide K


def test_thread_counts_are_no_border() -> None:
    task = make_task(matmul(128, 256, 784), CPU, threads=2)
    space = space_of(task)
    assert not any("threads" in text for text in border_knobs(space, space.default))
    assert border_knobs(ConfigSpace("no_file", [Knob("n", (1, 2, 3))]), Config("no_file", {"n": 3})) == ()
