"""Names of inputs: importers make identifiers of them, and users may go on using the model's own."""

from __future__ import annotations

import re
from collections.abc import Container


def identifier(name: str) -> str:
    """A name made of letters, digits and underscores: "gpu_0/data_0" -> "gpu_0_data_0"."""
    text = re.sub(r"[^0-9a-zA-Z_]", "_", name)
    return text if text[:1].isalpha() or text[:1] == "_" else f"input_{text}"


def known_name(name: str, known: Container[str]) -> str:
    """The known name that is meant: itself, or what an importer made of it; an unknown name is returned unchanged."""
    return name if name in known or identifier(name) not in known else identifier(name)
