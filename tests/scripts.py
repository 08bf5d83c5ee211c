"""Small scripts as users of TVM write them: sections of a text file, each run by itself."""

from __future__ import annotations

import re
import runpy
from pathlib import Path

IMPORTS = """import numpy as np
import autosched
import autosched as tvm
from autosched import te, tir, topi
from autosched.script import tir as T
"""


def read_scripts(path: Path) -> dict[str, str]:
    """The scripts of a file by name; each begins with a line `# === name`."""
    parts = re.split(r"^# === (\S+)\n", path.read_text(encoding="utf-8"), flags=re.MULTILINE)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


def run_script(text: str, folder: Path) -> None:
    """Run a script as Python runs a file."""
    path = folder / "script.py"
    path.write_text(IMPORTS + text, encoding="utf-8")
    runpy.run_path(str(path), run_name="__main__")
