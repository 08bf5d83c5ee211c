"""The notebooks run from the first cell to the last, each in a process and an empty folder."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.spread import spread

NOTEBOOKS = sorted((Path(__file__).parents[2] / "examples/notebooks").glob("*.ipynb"))
# As IPython does it: every cell is compiled under a name of its own, and its text is there for who asks.
RUN = """
import json, linecache, sys
if __name__ == "__main__":
    for number, cell in enumerate(json.load(open(sys.argv[1], encoding="utf-8"))["cells"]):
        if cell["cell_type"] == "code":
            text, name = "".join(cell["source"]) + "\\n", f"<cell {number}>"
            linecache.cache[name] = (len(text), None, text.splitlines(keepends=True), name)
            exec(compile(text, name, "exec"), globals())
    print("ran", number + 1)
"""


def test_there_is_one_for_each_use() -> None:
    assert [path.stem for path in NOTEBOOKS] == ["model", "operator", "own_kernel"]


@spread(3, "path", NOTEBOOKS, ids=lambda path: path.stem, first=2)  # examples/model.py and operator.py run every day
def test_a_notebook_runs(path: Path, tmp_path: Path) -> None:
    if path.stem == "model":
        pytest.importorskip("onnx")
    document = json.loads(path.read_text(encoding="utf-8"))
    assert not any(cell.get("outputs") for cell in document["cells"]), "results of one machine are no part of it"
    env = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    words = [sys.executable, "-c", RUN, str(path)]
    done = subprocess.run(words, cwd=tmp_path, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0 and f"ran {len(document['cells'])}" in done.stdout, done.stderr[-2000:]
