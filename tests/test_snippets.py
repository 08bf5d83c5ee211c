"""The code that README and documents show runs: Python blocks of a page in order, README's commands as printed."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from autosched.cli import main
from tests.cli.models import dense_file

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
# What a page's reader has before its first block, and where a page begins another file.
BEFORE = {
    "README.md": 'import numba, numpy as np\nx = np.zeros((4, 16), "float32")\n',
    "cuda.md": 'import autosched\nmodule = autosched.frontend.onnx.from_onnx("model.onnx")\n',
}
ON_A_GPU = "cuda.jit"  # blocks with it need a device to run
BUDGETS = {'"10m"': '"15s"', '"30s"': '"15s"'}


def blocks(page: Path) -> list[str]:
    text = page.read_text(encoding="utf-8")
    return [block for block in re.findall(r"^```python\n(.*?)^```$", text, re.M | re.S) if ON_A_GPU not in block]


def shown(block: str) -> str:
    """A block with times to wait that suit a test, and a body where the page shows none."""
    for text, shorter in BUDGETS.items():
        block = block.replace(text, shorter)
    return block.replace("block=256): ...", "block=256):\n    for i in range(x.shape[0]):\n        x[i] *= a\n")


@pytest.mark.parametrize("page", [page for page in PAGES if blocks(page)], ids=lambda page: page.name)
def test_python_blocks_run_in_order(page: Path, tmp_path: Path) -> None:
    if page.name == "cuda.md":
        pytest.importorskip("numba.cuda.cudadrv", reason="needs the extra cuda")
    dense_file(tmp_path / "model.onnx")
    (tmp_path / "page.py").write_text(BEFORE.get(page.name, "") + "\n".join(map(shown, blocks(page))), encoding="utf-8")
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "XDG_DATA_HOME": str(tmp_path), "AUTOSCHED_AFFINITY": "off"}
    done = subprocess.run(
        [sys.executable, "page.py"], cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=240
    )
    assert done.returncode == 0, done.stderr[-2000:]


def test_the_readme_s_commands_run_as_printed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    (block,) = [
        b for b in re.findall(r"^```\n(.*?)^```$", text, re.M | re.S) if "autosched tune " in b and "$" not in b
    ]
    lines = [line.partition("#")[0] for line in block.splitlines() if line.startswith("autosched ")]
    assert len(lines) == 4
    dense_file(tmp_path / "model.onnx")
    np.savez(tmp_path / "in.npz", x=np.ones((4, 16), "float32"))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    for line in lines:
        words = shlex.split(line.replace("10m", "15s"))[1:]
        words += ["--time", "0.2"] if words[0] == "bench" else []
        assert main([*words, "--threads", "1"]) == 0, capsys.readouterr().err
    assert np.load(tmp_path / "out.npz")["y"].shape == (4, 8)


def test_links_lead_to_files_and_headings() -> None:
    for page in (*PAGES, *sorted(ROOT.glob("*.md"))):
        for target in re.findall(
            r"\]\(([^)\s]+)\)", re.sub(r"```.*?```", "", page.read_text(encoding="utf-8"), flags=re.S)
        ):
            if re.match(r"[a-z]+:", target):
                continue
            name, _, anchor = target.partition("#")
            file = (page.parent / name).resolve() if name else page
            assert file.exists(), f"{page.name}: {target}"
            if anchor and file.suffix == ".md":
                titles = re.findall(r"^#+ (.*)$", file.read_text(encoding="utf-8"), re.M)
                slugs = {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}
                assert anchor in slugs, f"{page.name}: {target}"


def test_no_page_holds_two_versions_of_a_passage() -> None:
    for page in (*PAGES, *sorted(ROOT.glob("*.md"))):
        marks = re.findall(r"^(?:<{7} .*|={7}|>{7} .*)$", page.read_text(encoding="utf-8"), re.M)
        assert not marks, f"{page.name}: {marks}"


def test_the_site_names_every_page_once() -> None:
    text = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    named = re.findall(r": ([\w-]+\.md)$", text, re.M)
    assert sorted(named) == sorted(path.name for path in PAGES[1:])
