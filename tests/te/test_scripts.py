"""Scripts written for TVM's `te` run after their imports have changed."""

from __future__ import annotations

from pathlib import Path

from tests.scripts import read_scripts, run_script
from tests.spread import spread

SCRIPTS = read_scripts(Path(__file__).with_name("scripts.txt"))


@spread(4, "name", SCRIPTS)
def test_runs(name: str, tmp_path: Path) -> None:
    run_script(SCRIPTS[name], tmp_path)
