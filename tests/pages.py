"""README and the pages of docs/ as tests read them: which blocks of code they show."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]


def fenced(page: Path) -> list[tuple[str, str]]:
    """(language, text) of each block of a page, in order."""
    found = re.findall(r"^```(\w*)\n(.*?)^```$", page.read_text(encoding="utf-8"), re.M | re.S)
    assert 2 * len(found) == page.read_text(encoding="utf-8").count("```"), f"{page.name}: a block without an end"
    return found


def blocks(page: Path, *languages: str) -> list[str]:
    """The text of each block in one of these languages."""
    return [text for language, text in fenced(page) if language in languages]


def commands(block: str) -> list[str]:
    """The command lines of a block: all of them, in a transcript those behind a prompt."""
    lines = [line.partition("  #")[0].rstrip() for line in block.splitlines() if line.strip()]
    prompted = [line.removeprefix("$ ") for line in lines if line.startswith("$ ")]
    return prompted or lines
