"""The file `autosched.toml` of a project: where it is and what stands in it."""

from __future__ import annotations

import os
import tomllib
from pathlib import Path
from typing import Any

from autosched.errors import UsageError

PROJECT_FILE = "autosched.toml"


def find_project_file(start: Path | None = None) -> Path | None:
    """The `autosched.toml` of the folder (the current one if None) or the nearest one above it."""
    folder = (start or Path.cwd()).resolve()
    files = (parent / PROJECT_FILE for parent in (folder, *folder.parents))
    return next((file for file in files if os.path.isfile(file)), None)  # pathlib's raises where it may not look


def read_project_file(file: Path) -> dict[str, Any]:
    """What the file says. Raises UsageError for one that cannot be read."""
    try:
        return tomllib.loads(file.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError, RecursionError) as error:
        raise UsageError(f"cannot read the project file: {error}", where=str(file)) from None
