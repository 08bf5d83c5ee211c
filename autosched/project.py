"""The file `autosched.toml` of a project: where it is and what stands in it."""

from __future__ import annotations

import functools
import logging
import os
import tomllib
from pathlib import Path
from typing import Any

from autosched.errors import UsageError
from autosched.trust import is_own_file

PROJECT_FILE = "autosched.toml"
_log = logging.getLogger("autosched.project")


def find_project_file(start: Path | None = None) -> Path | None:
    """The `autosched.toml` of the folder (the current one if None) or the nearest one above it.

    One that belongs to another user is not followed: it chooses databases to connect to and code to tune.
    """
    folder = (start or Path.cwd()).resolve()
    for parent in (folder, *folder.parents):
        file = parent / PROJECT_FILE
        if os.path.isfile(file):  # pathlib's raises where it may not look
            if is_own_file(file):
                return file
            _warn_of_stranger(file)
    return None


@functools.cache
def _warn_of_stranger(file: Path) -> None:
    _log.warning("%r is not followed: it belongs to another user, or everybody can write it", str(file))


def read_project_file(file: Path) -> dict[str, Any]:
    """What the file says. Raises UsageError for one that cannot be read."""
    try:
        return tomllib.loads(file.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError, RecursionError) as error:
        raise UsageError(f"cannot read the project file: {error}", where=str(file)) from None
