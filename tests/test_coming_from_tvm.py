"""The page for TVM's users says what there is."""

from __future__ import annotations

import re

from tests.tvm_names import PAGE, generated, page_with


def test_its_tables_are_what_the_code_has() -> None:
    assert PAGE.read_text(encoding="utf-8") == page_with(generated()), "run python -m tests.tvm_names"


def test_its_first_example_runs() -> None:
    example = re.search(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    assert example is not None
    exec(compile(example[1], str(PAGE), "exec"), {})
