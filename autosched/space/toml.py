"""Search spaces from TOML files: `search_spaces/<back end>/<template>.toml`.

    [space]
    template = "matmul"
    values = ["M", "N", "K", "lanes", "registers"]      # what the caller must give

    [knobs.rows]                                        # one of: values, range, powers_of_two, bool, split
    range = [1, 12]                                     # first, last (inclusive), optional step
    default = 6

    [knobs.block_k]
    powers_of_two = [16, "K"]                           # numbers may be expressions over the space's values
    also = ["K"]                                        # more candidates
    at_most = "K"                                       # larger candidates become this one
    default = "min(K, 256)"                             # the nearest candidate counts
    absent = "K"                                        # of configurations recorded before there was this knob

    [knobs.order]
    values = ["mnk", "nmk"]

    [knobs.tile]
    split = { extent = "M", parts = 2, policy = "factors", max_inner = 64 }

    [[constraint]]
    require = "rows * vectors + vectors + 1 <= registers"
    because = "accumulators, one row of B and one broadcast stay in registers"

A file is data: expressions are parsed, never run. Every mistake is reported with file, line and reason.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path

import numpy as np

from autosched.errors import SpaceError
from autosched.json_types import Json
from autosched.space.config import KnobValue
from autosched.space.config_space import ConfigSpace
from autosched.space.constraints import Constraint
from autosched.space.expression import parse_expression
from autosched.space.knob import MAX_CANDIDATES, Knob, split
from autosched.space.location import search_spaces_folder, user_spaces_folder

MAX_FILE_BYTES = 1 << 20
SOURCES = ("values", "range", "powers_of_two", "bool", "split")
KNOB_KEYS = {*SOURCES, "also", "at_most", "default", "absent", "notes"}
SPLIT_KEYS = {"extent", "parts", "policy", "max_inner"}

Values = Mapping[str, int | float | str | bool]


@dataclass(frozen=True)
class SpaceFile:
    """A parsed file: its text (to find lines), its path and its document."""

    path: Path
    text: str
    document: Mapping[str, Json]

    @property
    def template(self) -> str:
        """The template that the space is for."""
        return str(self.document["space"]["template"])

    @property
    def notes(self) -> str:
        """What the file says of itself."""
        return str(self.document["space"].get("notes", "")).strip()

    @property
    def values(self) -> tuple[str, ...]:
        """The names that the caller must give."""
        return tuple(self.document["space"].get("values", ()))

    @property
    def knobs(self) -> Mapping[str, Json]:
        """The entries of the knobs as they stand in the file."""
        knobs: Mapping[str, Json] = self.document.get("knobs", {})
        return knobs

    def refuse(self, reason: str, near: str = "") -> SpaceError:
        """The error for something in this file; `near` is text whose first occurrence gives the line."""
        lines = self.text.splitlines()
        line = next((n for n, text in enumerate(lines, start=1) if near and near in text), None)
        return SpaceError(reason, where=f"{self.path}:{line}" if line else str(self.path))


def list_spaces(backend: str, folder: Path | None = None) -> tuple[str, ...]:
    """The names of the spaces that there are for a back end ("cpu"), the user's with the project's, sorted."""
    folders = (folder,) if folder else (user_spaces_folder(), search_spaces_folder())
    return tuple(sorted({p.stem for f in folders if f is not None for p in (f / backend).glob("*.toml")}))


def load_space(backend: str, name: str, values: Values, *, folder: Path | None = None) -> ConfigSpace:
    """The space of template `name` for the given shape and target values.

    values  what the file's `values` lists: {"M": 128, "lanes": 8, "registers": 16, …}; others are ignored
    folder  looked into first; what it does not have comes from the project's own folder
    Raises  SpaceError with file, line and reason if the file is missing or malformed, or a value is not given.
    """
    return space_from_file(find_space(backend, name, folder=folder), values)


def find_space(backend: str, name: str, *, folder: Path | None = None) -> Path:
    """The file of template `name`: in `folder`, else in the user's (`use_spaces`), else the project's own.

    Raises  SpaceError naming the spaces there are.
    """
    relative = Path(backend) / f"{name}.toml"
    for base in (folder, user_spaces_folder(), search_spaces_folder()):
        if base is not None and (path := base / relative).is_file():
            return path
    known = ", ".join(list_spaces(backend)) or "none"
    raise SpaceError(f"no search space '{relative}'", where=str(search_spaces_folder()), hint=f"there are {known}")


def space_from_file(path: Path, values: Values) -> ConfigSpace:
    """The space that one file describes. Raises SpaceError as `load_space`."""
    return make_space(read_space_file(path), values)


def read_space_file(path: Path) -> SpaceFile:
    """The parsed file, its outer form checked. Raises SpaceError with file, line and reason."""
    try:
        stamp = path.stat()
    except OSError as error:
        raise SpaceError(f"cannot read the file: {error.strerror}", where=str(path)) from None
    return _read(path, stamp.st_mtime_ns, stamp.st_size)


@lru_cache(maxsize=128)
def _read(path: Path, mtime_ns: int, size: int) -> SpaceFile:
    """Parse a file; cached by its path, time and size."""
    if size > MAX_FILE_BYTES:
        raise SpaceError(f"a search space of {size} bytes", where=str(path), hint=f"at most {MAX_FILE_BYTES}")
    try:
        return parse_space(path.read_text(encoding="utf-8"), path)
    except (OSError, UnicodeDecodeError) as error:
        raise SpaceError(f"cannot read the file: {error}", where=str(path)) from None


def parse_space(text: str, path: Path) -> SpaceFile:
    """Parse TOML text and check its outer form. Raises SpaceError with file and line."""
    try:
        document = tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise SpaceError(f"not TOML: {error or 'nested too deeply'}", where=str(path)) from None
    file = SpaceFile(path, text, document)
    if extra := set(document) - {"space", "knobs", "constraint"}:
        raise file.refuse(f"unknown section '{min(extra)}'", min(extra))
    head = document.get("space")
    if not isinstance(head, dict) or not isinstance(head.get("template"), str):
        raise file.refuse('a space needs [space] with template = "…"', "[space]")
    if extra := set(head) - {"template", "values", "notes"}:
        raise file.refuse(f"unknown key '{min(extra)}' in [space]", min(extra))
    names = head.get("values", [])
    if not isinstance(names, list) or not all(isinstance(n, str) and n.isidentifier() for n in names):
        raise file.refuse("[space] values must be a list of names", "values")
    if not isinstance(document.get("knobs", {}), dict) or not isinstance(document.get("constraint", []), list):
        raise file.refuse("knobs must be tables [knobs.NAME], constraints [[constraint]]", "knobs")
    return file


def make_space(file: SpaceFile, values: Values) -> ConfigSpace:
    """The space of a parsed file for the given values. Raises SpaceError with file, line and reason."""
    head = file.document["space"]
    needed: list[str] = head.get("values", [])
    if missing := [name for name in needed if name not in values]:
        raise file.refuse(f"no value for {', '.join(missing)}", "values")
    bound = {name: values[name] for name in needed}
    knobs = [_knob(file, name, entry, bound) for name, entry in file.document.get("knobs", {}).items()]
    known = {*bound, *(k.name for k in knobs)}
    constraints = [_constraint(file, entry, known) for entry in file.document.get("constraint", [])]
    try:
        return ConfigSpace(head["template"], knobs, constraints, values=bound)
    except SpaceError as error:
        raise file.refuse(str(error)) from None


def _constraint(file: SpaceFile, entry: object, known: set[str]) -> Constraint:
    if not isinstance(entry, dict) or not isinstance(entry.get("require"), str) or set(entry) - {"require", "because"}:
        raise file.refuse('a constraint needs require = "…" and may have because = "…"', "[[constraint]]")
    try:
        expression = parse_expression(entry["require"])
    except SpaceError as error:
        raise file.refuse(str(error), entry["require"]) from None
    if unknown := expression.names - known:
        raise file.refuse(f"unknown name '{min(unknown)}' in '{expression.text}'", entry["require"])
    return Constraint(expression, str(entry.get("because", "")))


def _knob(file: SpaceFile, name: str, entry: object, values: Values) -> Knob:
    near = f"[knobs.{name}]"
    if not isinstance(entry, dict):
        raise file.refuse(f"knob '{name}' must be a table", name)
    sources = [key for key in SOURCES if key in entry]
    if len(sources) != 1:
        raise file.refuse(f"knob '{name}' needs exactly one of {', '.join(SOURCES)}", near)
    if extra := set(entry) - KNOB_KEYS:
        raise file.refuse(f"unknown key '{min(extra)}' of knob '{name}'", min(extra))
    try:
        if sources[0] == "split":
            knob = _split(name, entry, values)
        else:
            knob = Knob(name, _candidates(sources[0], entry, values), notes=str(entry.get("notes", "")))
        return _with_absent(_with_default(knob, entry, values), entry, values)
    except SpaceError as error:
        raise file.refuse(f"knob '{name}': {error}", near) from None


def _number(value: Json, values: Values) -> int:
    """An int that is written as such or as an expression."""
    if isinstance(value, str):
        value = parse_expression(value)(values)
        value = value.item() if isinstance(value, np.ndarray | np.generic) else value
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if not isinstance(value, int) or isinstance(value, bool):
        raise SpaceError(f"{value!r} is not an int")
    if abs(value) >= 1 << 62:
        raise SpaceError(f"an int of {value.bit_length()} bits is too large")
    return value


def _candidates(source: str, entry: Mapping[str, object], values: Values) -> tuple[KnobValue, ...]:
    given = entry[source]
    if source == "bool":
        return (False, True)
    if not isinstance(given, list):
        raise SpaceError(f"'{source}' must be a list")
    if source == "values" and not all(isinstance(v, int) and not isinstance(v, bool) for v in given):
        if {"also", "at_most"} & set(entry):
            raise SpaceError("'also' and 'at_most' are for ints")
        return tuple(given)
    numbers = [_number(v, values) for v in given]
    if source == "range":
        if len(numbers) not in (2, 3) or (len(numbers) == 3 and numbers[2] < 1):
            raise SpaceError("a range is [first, last] or [first, last, step]")
        span = range(numbers[0], numbers[1] + 1, *numbers[2:])
        count = max(0, -((span.start - span.stop) // span.step))  # len(span) is an error from 2**63 on
        if count > MAX_CANDIDATES:
            raise SpaceError(f"{count} candidates, at most {MAX_CANDIDATES}")
        numbers = list(span)
    elif source == "powers_of_two":
        if len(numbers) != 2 or numbers[0] < 1:
            raise SpaceError("powers_of_two is [least, greatest], both positive")
        numbers = [1 << i for i in range(62) if numbers[0] <= 1 << i <= numbers[1]]
    also = entry.get("also", [])
    if not isinstance(also, list):
        raise SpaceError("'also' must be a list")
    numbers += [_number(v, values) for v in also]
    if "at_most" in entry:
        limit = _number(entry["at_most"], values)
        numbers = [min(n, limit) for n in numbers]
    return tuple(sorted(set(numbers))) if {"also", "at_most"} & set(entry) else tuple(numbers)


def _split(name: str, entry: Mapping[str, object], values: Values) -> Knob:
    given = entry["split"]
    if not isinstance(given, dict) or "extent" not in given or set(given) - SPLIT_KEYS:
        raise SpaceError(f"split needs extent and may have {', '.join(sorted(SPLIT_KEYS - {'extent'}))}")
    parts, inner = _number(given.get("parts", 2), values), given.get("max_inner")
    limit = None if inner is None else _number(inner, values)
    notes = str(entry.get("notes", ""))
    return split(name, _number(given["extent"], values), parts, str(given.get("policy", "factors")), limit, notes=notes)


def _with_default(knob: Knob, entry: Mapping[str, Json], values: Values) -> Knob:
    if "default" not in entry:
        return knob
    default = entry["default"]
    if knob.kind == "int":
        wanted = _number(default, values)
        default = min(knob.values, key=lambda v: (abs(v - wanted), v))  # type: ignore[operator]
    return replace(knob, default=default)


def _with_absent(knob: Knob, entry: Mapping[str, Json], values: Values) -> Knob:
    if "absent" not in entry:
        return knob
    absent = entry["absent"]
    return replace(knob, absent=_number(absent, values) if knob.kind == "int" else absent)
