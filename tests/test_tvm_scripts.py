"""Scripts as TVM's users write them, in the tutorials' names and in today's: each runs to its end.

What a script checks, it asserts itself; where it provokes an error it catches it, and fails if there was none.
"""

from __future__ import annotations

import runpy
from pathlib import Path

import pytest

from autosched.errors import AutoschedError

FOLDER = Path(__file__).parent / "tvm_scripts"
QUICK = {"fpass", "reg", "mutator1", "dpl2", "rtext", "script_err", "graphjson", "instruments", "inplace_and_sizes"}
NEEDS = {"p_grad": "torch", "torch1": "torch", "e2e2": "torch", "relay_pt": "torch", "ir_module_tutorial": "torch",
         "relay_onnx": "onnx", "cross": "torch"}  # fmt: skip


def _cases() -> list[object]:
    names = sorted(path.stem for path in FOLDER.glob("*.txt"))
    return [pytest.param(n, id=n, marks=() if n in QUICK else pytest.mark.slow) for n in names]


@pytest.mark.parametrize("name", _cases())
def test_script_runs(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if name in NEEDS:
        pytest.importorskip(NEEDS[name])
    monkeypatch.chdir(tmp_path)
    runpy.run_path(str(FOLDER / f"{name}.txt"), run_name="__main__")


def test_a_script_that_fails_is_seen(tmp_path: Path) -> None:
    script = tmp_path / "bad.txt"
    script.write_text("import autosched as tvm\ntvm.device('nobody')\n")
    with pytest.raises(AutoschedError):
        runpy.run_path(str(script))
