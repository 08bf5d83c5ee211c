"""A function for all sizes whose artifact does not say how it is called."""

from __future__ import annotations

from typing import Any

import pytest

import autosched
from autosched import te
from autosched.errors import ArtifactError
from autosched.runtime.sized_module import FUNCTION, SizedFunction, SizedModule


@pytest.mark.parametrize(
    "about", [{}, 5, {"name": "f"}, {"name": "f", "args": 3}, {"name": "f", "args": [[]]},
              {"name": "f", "args": [["x", 1]]}, {"name": "f", "args": [[0, "A"]]},
              {"name": "f", "args": ["m", [0, "A"], [1, "B"]]}],
)  # fmt: skip
def test_a_manifest_that_lies_is_refused(about: Any) -> None:
    a = te.placeholder((te.var("n"),), name="A")
    built = autosched.build(te.create_prim_func([a, te.compute(a.shape, lambda i: a[i] * 2, name="B")]), "llvm")
    assert isinstance(built, SizedModule)
    executable = built.function.executable
    executable.manifest[FUNCTION] = about
    with pytest.raises(ArtifactError, match="function"):
        SizedFunction(executable)
