"""Tables written to files beside what is shown."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from autosched.cli.output import Table, show
from autosched.errors import UsageError


def export(table: Table, files: Mapping[str, Path], document: Mapping[str, Any]) -> None:
    """Write a table to files by their form ("csv", "markdown"); "json" gets the whole document. Raises UsageError."""
    for form, path in files.items():
        try:
            with open(path, "w", encoding="utf-8") as out:
                if form == "json":
                    json.dump(document, out, indent=2, default=str)
                else:
                    show(table, form, out)
        except OSError as error:
            raise UsageError(f"cannot write {path}: {error.strerror or error}") from None
