"""Scripts over the names and behaviours of TVM's documentation, area by area; each asserts what it says."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.scripts import read_scripts, run_script
from tests.spread import spread

SCRIPTS = read_scripts(Path(__file__).with_name("api_scripts.txt"))
NEEDS = {"dlpack_shares": "torch", "torch_fx_and_export": "torch"}


@spread(4, "name", SCRIPTS)
def test_runs(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if name in NEEDS:
        pytest.importorskip(NEEDS[name])
    monkeypatch.chdir(tmp_path)
    run_script(SCRIPTS[name], tmp_path)
