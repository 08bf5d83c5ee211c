"""What can be said of a search space's file before anybody names a shape."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

from autosched.errors import SpaceError
from autosched.json_types import Json
from autosched.space.expression import Expression, parse_expression
from autosched.space.toml import KNOB_KEYS, SOURCES, SPLIT_KEYS, SpaceFile, read_space_file

Checked = tuple[str, Expression]  # where an expression stands in the file, and what it is


def check_space_file(path: Path) -> SpaceFile:
    """Read a file and check all that does not depend on its values: sections, keys, expressions and their names.

    Raises  SpaceError with file, line and reason for the first mistake.
    """
    file = read_space_file(path)
    values, knobs = set(file.values), set(file.knobs)
    if both := values & knobs:
        raise file.refuse(f"'{min(both)}' is a value and a knob", f"[knobs.{min(both)}]")
    for name, entry in file.knobs.items():
        _check_knob(file, name, entry)
        for text in _knob_expressions(entry):
            _check_names(file, text, f"[knobs.{name}]", values, f"knob '{name}': ")
    for entry in file.document.get("constraint", []):
        if not isinstance(entry, dict) or not isinstance(entry.get("require"), str):
            raise file.refuse('a constraint needs require = "…" and may have because = "…"', "[[constraint]]")
        if extra := set(entry) - {"require", "because"}:
            raise file.refuse(f"unknown key '{min(extra)}' of a constraint", min(extra))
        _check_names(file, entry["require"], entry["require"], values | knobs, "")
    return file


def _check_knob(file: SpaceFile, name: str, entry: object) -> None:
    near = f"[knobs.{name}]"
    if not isinstance(entry, dict):
        raise file.refuse(f"knob '{name}' must be a table", name)
    if len([key for key in SOURCES if key in entry]) != 1:
        raise file.refuse(f"knob '{name}' needs exactly one of {', '.join(SOURCES)}", near)
    if extra := set(entry) - KNOB_KEYS:
        raise file.refuse(f"unknown key '{min(extra)}' of knob '{name}'", min(extra))
    division = entry.get("split", {"extent": 1})
    if not isinstance(division, dict) or "extent" not in division or set(division) - SPLIT_KEYS:
        raise file.refuse(f"knob '{name}': a split needs extent and may have parts, policy, max_inner", near)
    for key in ("values", "range", "powers_of_two", "also"):
        if not isinstance(entry.get(key, []), list):
            raise file.refuse(f"knob '{name}': '{key}' must be a list", near)


def _knob_expressions(entry: Mapping[str, Json]) -> Iterator[str]:
    """The texts of a knob's entry that are read as expressions; those of `values` are texts of their own."""
    are_texts = any(isinstance(value, str) for value in entry.get("values", []))
    for key in ("range", "powers_of_two", "also"):
        yield from (value for value in entry.get(key, []) if isinstance(value, str))
    keys = ("at_most",) if are_texts else ("at_most", "default", "absent")
    yield from (entry[key] for key in keys if isinstance(entry.get(key), str))
    division = entry.get("split", {})
    yield from (division[key] for key in ("extent", "parts", "max_inner") if isinstance(division.get(key), str))


def _check_names(file: SpaceFile, text: str, near: str, known: set[str], prefix: str) -> None:
    try:
        expression = parse_expression(text)
    except SpaceError as error:
        raise file.refuse(f"{prefix}{error}", near) from None
    if unknown := expression.names - known:
        raise file.refuse(f"{prefix}unknown name '{min(unknown)}' in '{text}'", near)
