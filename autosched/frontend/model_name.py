"""How an object of a Python module is named: "package.module:object", or by its file, "package/module.py:object"."""

from __future__ import annotations

import re
from pathlib import Path

_OBJECT = r"[^\W\d]\w*(\.[^\W\d]\w*)*"
_NAME = re.compile(rf"{_OBJECT}:{_OBJECT}")
_IN_FILE = re.compile(rf"(?P<file>.+)\.py:(?P<object>{_OBJECT})")


def is_object_name(text: str) -> bool:
    """Whether a text names an object; a file of that name comes first."""
    return bool(_NAME.fullmatch(object_name(text))) and not Path(text).exists()


def object_name(text: str) -> str:
    """The name with its module in place of a Python file below the working folder; any other text as it is."""
    found = _IN_FILE.fullmatch(text)
    if found is None or not Path(f"{found['file']}.py").is_file():
        return text
    path = Path(found["file"]).absolute()
    if not path.is_relative_to(Path.cwd()):
        return text
    return f"{'.'.join(path.relative_to(Path.cwd()).parts)}:{found['object']}"
