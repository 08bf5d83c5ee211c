"""The Python code that README and documents show runs, all blocks of a page in order; every block is run by a test."""

from __future__ import annotations

import functools
import os
import re
import subprocess
import sys
import textwrap
import tomllib
from pathlib import Path

import click
import pytest

from autosched.cli.app import app
from autosched.cli.project_flags import read_flags
from autosched.cli.tune_models import project_models
from autosched.extensions import GROUP
from tests.cli.models import dense_file
from tests.pages import PAGES, ROOT, blocks, commands, fenced

# What a page's reader has before its first block.
BEFORE = {
    "README.md": """import numba, numpy as np, tests.moments
tests.moments.shorten()
x = np.zeros((4, 16), "float32")
""",
    "cuda.md": 'import autosched\nmodule = autosched.frontend.onnx.from_onnx("model.onnx")\n',
}
ON_A_GPU = "cuda.jit"  # blocks with it run on the emulator, with fewer elements
EMULATED = """
from autosched.codegen.cuda.emulate import EmulatorDriver
from autosched.own.gpu.function import AutotunedKernel
from autosched.runtime.cuda.devices import use_driver
from tests.own.gpu.emulated import ROLE
AutotunedKernel.role = ROLE
with use_driver(EmulatorDriver):
"""
# Own functions end before their 30 s, which a busy machine may need.
SHORTER = {'"10m"': '"10m", options=autosched.TuneOptions(trials=4)'}


def shown(block: str) -> str:
    """A block with times to wait that suit a test, a body where the page shows none, a GPU where it asks for one."""
    for text, shorter in SHORTER.items():
        block = block.replace(text, shorter)
    if ON_A_GPU in block:
        return EMULATED + textwrap.indent(block.replace("1 << 20", "1 << 9").replace("30s", "15s"), "    ")
    return block.replace("block=256): ...", "block=256):\n    for i in range(x.shape[0]):\n        x[i, 0] *= a\n")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_block_is_run_by_a_test(page: Path) -> None:
    """Commands are run by test_shown_commands.py. What is shown as text has no code in it: figures and output."""
    for language, text in fenced(page):
        assert language in ("python", "sh", "console", "toml", "text"), f"{page.name}: {language or 'no language'}"
        if language == "text":
            assert not re.search(r"^\$? *(autosched|pip|make|python|dask|import|from) ", text, re.M), text
        if language == "console":
            assert commands(text)


@pytest.mark.parametrize("page", [page for page in PAGES if blocks(page, "python")], ids=lambda page: page.name)
def test_python_blocks_run_in_order(page: Path, tmp_path: Path) -> None:
    if page.name == "cuda.md":
        pytest.importorskip("numba.cuda.cudadrv", reason="needs the extra cuda")
    dense_file(tmp_path / "model.onnx")
    text = BEFORE.get(page.name, "") + "\n".join(map(shown, blocks(page, "python")))
    (tmp_path / "page.py").write_text(text, encoding="utf-8")
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "XDG_DATA_HOME": str(tmp_path), "AUTOSCHED_AFFINITY": "off"}
    done = subprocess.run(
        [sys.executable, "page.py"], cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=240
    )
    assert done.returncode == 0, done.stderr[-2000:]


def test_files_that_are_shown_are_read(tmp_path: Path) -> None:
    """An extension's metadata, and what a project's `autosched.toml` may hold: all keys are known."""
    texts = [(page, text) for page in PAGES for text in blocks(page, "toml")]
    assert len(texts) >= 3
    for page, text in texts:
        table = tomllib.loads(text)
        if "project" in table:
            assert [*table["project"]["entry-points"]] == [GROUP], page.name
            continue
        file = tmp_path / "autosched.toml"
        file.write_text(text, encoding="utf-8")
        for names in [("build",), ("tune",), ("logs", "list")]:
            command: click.Command | None = app
            for name in names:
                assert isinstance(command, click.Group)
                command = command.get_command(click.Context(command), name)
            assert command is not None
            inner = functools.reduce(lambda found, name: found.get(name, {}), names, table)
            assert len(read_flags(command, names, file)) == len({*inner} - {"models", "kernels"}), page.name
        assert project_models(tmp_path), page.name


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
