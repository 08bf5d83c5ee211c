"""Scripts written for TVM's `tir` run after their imports have changed."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.scripts import read_scripts, run_script

SCRIPTS = read_scripts(Path(__file__).with_name("scripts.txt"))
QUICK = 4  # one of so many runs in the quick set


@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=[] if i % QUICK == 0 else pytest.mark.slow) for i, n in enumerate(SCRIPTS)]
)
def test_runs(name: str, tmp_path: Path) -> None:
    run_script(SCRIPTS[name], tmp_path)
