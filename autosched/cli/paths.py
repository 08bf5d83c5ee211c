"""Which files a command may read and write, found out before anything slow begins."""

from __future__ import annotations

import difflib
import os
from collections.abc import Iterable
from pathlib import Path

from autosched.errors import UsageError

KINDS = (".onnx", ".pt2", ".asx", ".npz", ".npy", ".py", ".toml", ".db", ".jsonl", ".json")  # known by their ends


def is_object(path: Path) -> bool:
    """Whether MODEL names an object of a Python module, "package.module:object"."""
    from autosched.frontend.model_name import is_object_name

    return is_object_name(str(path))


def check_file(path: Path) -> None:
    """Refuse what cannot be read as a file. Raises UsageError."""
    if path.is_dir():
        raise UsageError(f"{path} is a folder", hint="give a file")
    if not path.exists():
        alike = [name for name in _names(path.parent) if Path(name).suffix == path.suffix or path.suffix not in KINDS]
        near = difflib.get_close_matches(path.name, alike, n=1)
        hint = f"did you mean {path.with_name(near[0])}?" if near else ""
        if path.parts[:1] in (("http:",), ("https:",)):
            hint = "download it first"
        raise UsageError(f"no file {path}", hint=_object_hint(path) or hint)
    if not path.is_file():
        raise UsageError(f"{path} is no regular file", hint="write it to disk first")
    if not os.access(path, os.R_OK):
        raise UsageError(f"cannot read {path}: permission denied")


def _object_hint(path: Path) -> str:
    """How an object of a Python file is named, where it was named in another way: as a module, after a dot or "::"."""
    module, colons, name = path.name.partition("::")
    if colons and path.with_name(module).is_file():
        return f"write {path.with_name(module)}:{name}"
    if path.with_name(f"{path.name}.py").is_file():
        return f"name an object of it: {path}:name"
    if path.suffix and path.suffix not in KINDS and path.with_suffix(".py").is_file():
        return f"write {path.with_suffix('')}:{path.suffix[1:]}"
    return ""


def _names(folder: Path) -> list[str]:
    """The names in a folder; none where it cannot be read."""
    try:
        return os.listdir(folder)
    except OSError:
        return []


def check_output(path: Path, inputs: Iterable[Path] = ()) -> None:
    """Refuse an output that cannot be written, or that would overwrite what the command reads. Raises UsageError."""
    folder = path.absolute().parent
    if path.is_dir():
        raise UsageError(f"cannot write {path}: it is a folder", hint="give a file")
    if path.exists() and not path.is_file():
        raise UsageError(f"cannot write {path}: it is no regular file")
    if not folder.is_dir():
        raise UsageError(f"cannot write {path}: there is no folder {folder}")
    if not os.access(folder, os.W_OK | os.X_OK):
        raise UsageError(f"cannot write {path}: folder {folder} is read-only")
    for other in inputs:
        if path.exists() and other.exists() and path.samefile(other):
            raise UsageError(f"cannot write {path}: it is an input of this command", hint="give another name")
