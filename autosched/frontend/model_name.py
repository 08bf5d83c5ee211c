"""How an object of a Python module is named: "package.module:object"."""

from __future__ import annotations

import re
from pathlib import Path

_NAME = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*:[^\W\d]\w*(\.[^\W\d]\w*)*")


def is_object_name(text: str) -> bool:
    """Whether a text names an object; a file of that name comes first."""
    return bool(_NAME.fullmatch(text)) and not Path(text).exists()
