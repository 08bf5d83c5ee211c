"""Where the tuning database is when nobody says: the environment, the project's, the user's."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from autosched.env import AUTOSCHED_DB
from autosched.errors import RecordError, UsageError
from autosched.project import find_project_file, read_project_file

DATABASE_NAME = "autosched.db"


@dataclass(frozen=True, slots=True)
class Place:
    """A database and what it is called in reports ("project database", "user database", …)."""

    where: str
    title: str

    @property
    def origin(self) -> str:
        """Title and place in one text."""
        return f"{self.title} {shown(self.where)}"


def is_url(where: str | Path) -> bool:
    """Whether a place is a URL, as of a database server."""
    return "://" in str(where)


def file_of(where: str | Path) -> Path | None:
    """The file that a path or a SQLite URL names; None for a server's URL."""
    text = str(where)
    if text.startswith("sqlite:///"):
        return Path(text.removeprefix("sqlite:///"))
    return None if is_url(text) else Path(where)


def shown(where: str) -> str:
    """A path or URL as it may stand in messages and reports: without its password."""
    return re.sub(r"(://[^/@:]*):.*@", r"\1:***@", where)


def project_database(start: Path | None = None) -> Place | None:
    """The database that `autosched.toml` names, else `autosched.db` beside it; None where there is no such file.

    The file says `[records]` and `db = "…"`, a path relative to the file or a URL.

    Raises  RecordError for a file that cannot be read.
    """
    file = find_project_file(start)
    if file is None:
        return None
    try:
        document = read_project_file(file)
    except UsageError as error:
        raise RecordError(error.message, where=error.where) from None
    section = document.get("records", {})
    name = section.get("db", DATABASE_NAME) if isinstance(section, dict) else None
    if not isinstance(name, str) or not name:
        raise RecordError('[records] db must be text, as in db = "tuned.db"', where=str(file))
    return Place(name if "://" in name else str(file.parent / Path(name).expanduser()), "project database")


def user_database() -> Place | None:
    """The user's own database; None for a user without a home folder."""
    import platformdirs  # only this function needs it

    folder = Path(platformdirs.user_data_path("autosched"))
    return Place(str(folder / DATABASE_NAME), "user database") if folder.is_absolute() else None


def default_places(start: Path | None = None) -> tuple[Place, ...]:
    """Databases in the order of look-up: AUTOSCHED_DB, the project's, the user's."""
    named = AUTOSCHED_DB.get()
    places = (Place(named, "AUTOSCHED_DB") if named else None, project_database(start), user_database())
    return tuple(place for place in places if place is not None)


def database_to_write(explicit: str | Path | None = None, start: Path | None = None) -> Place:
    """Where tuning writes to: what was given, else the first of `default_places`.

    Raises  RecordError where there is none.
    """
    if explicit is not None:
        return Place(str(explicit), "database")
    places = default_places(start)
    if not places:
        raise RecordError("there is no home folder for the tuning database", hint="give --db or set AUTOSCHED_DB")
    return places[0]


def is_there(source: object) -> bool:
    """Whether a source of records can be opened: a file that tuning has yet to make cannot."""
    return not isinstance(source, str | Path) or "://" in str(source) or Path(source).exists()
