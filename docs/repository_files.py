"""Files of the repository that pages link to beside docs/: the site has them as pages of its own, under repository/."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

LINK = re.compile(r"\]\(\.\./([^)#]+)")
FOLDER = "repository"


def on_files(files: Files, *, config: Any) -> Files:
    """Add a page for each file that a page links to, of a folder for each table in it; mkdocs calls it."""
    root = Path(config.docs_dir).parent
    texts = [
        Path(file.abs_src_path).read_text(encoding="utf-8")
        for file in files
        if file.is_documentation_page() and file.abs_src_path
    ]
    for name in sorted({name for text in texts for name in LINK.findall(text)}):
        path = root / name
        if not path.is_dir():
            _add(files, config, path, name)
            continue
        tables = sorted(path.glob("*.md"))
        for table in tables:
            _add(files, config, table, f"{name}/{table.name}")
        lines = [f"# {name}", "", *(f"- [{table.stem}]({table.name})" for table in tables)]
        files.append(File.generated(config, page_of(name), content="\n".join(lines)))
    return files


def on_page_markdown(markdown: str, *, page: Any, config: Any, files: Files) -> str:
    """Let links to files beside docs/ lead to their pages; mkdocs calls it."""
    if page.file.src_uri.startswith(f"{FOLDER}/"):
        return markdown
    return LINK.sub(lambda found: f"]({page_of(found[1])}", markdown)


def page_of(name: str) -> str:
    """The page of a file or folder of the repository."""
    if name.endswith(".md"):
        return f"{FOLDER}/{name}"
    return f"{FOLDER}/{name}.md" if Path(name).suffix else f"{FOLDER}/{name}/index.md"


def _add(files: Files, config: Any, path: Path, name: str) -> None:
    where, text = page_of(name), path.read_text(encoding="utf-8")
    if files.get_file_from_path(where) is None:
        content = text if path.suffix == ".md" else f"# {name}\n\n```python\n{text}\n```\n"
        files.append(File.generated(config, where, content=content))
