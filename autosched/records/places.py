"""Where the tuning database is when nobody says: the environment, the project's, the user's."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from pathlib import Path

from autosched.env import AUTOSCHED_DB
from autosched.errors import RecordError

PROJECT_FILE = "autosched.toml"
DATABASE_NAME = "autosched.db"


@dataclass(frozen=True, slots=True)
class Place:
    """A database and what it is called in reports ("project database", "user database", …)."""

    where: str
    title: str

    @property
    def origin(self) -> str:
        """Title and place in one text."""
        return f"{self.title} {self.where}"


def find_project_file(start: Path | None = None) -> Path | None:
    """The `autosched.toml` of the folder or the nearest one above it."""
    folder = (start or Path.cwd()).resolve()
    return next((p for parent in (folder, *folder.parents) if (p := parent / PROJECT_FILE).is_file()), None)


def project_database(start: Path | None = None) -> Place | None:
    """The database that `autosched.toml` names, else `autosched.db` beside it; None where there is no such file.

    The file says `[records]` and `db = "…"`, a path relative to the file or a URL.

    Raises  RecordError for a file that cannot be read.
    """
    file = find_project_file(start)
    if file is None:
        return None
    try:
        document = tomllib.loads(file.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError, RecursionError) as error:
        raise RecordError(f"cannot read the project file: {error}", where=str(file)) from None
    section = document.get("records", {})
    name = section.get("db", DATABASE_NAME) if isinstance(section, dict) else None
    if not isinstance(name, str) or not name:
        raise RecordError('[records] db must be text, as in db = "tuned.db"', where=str(file))
    return Place(name if "://" in name else str(file.parent / Path(name).expanduser()), "project database")


def user_database() -> Place:
    """The user's own database."""
    import platformdirs  # only this function needs it

    return Place(str(Path(platformdirs.user_data_path("autosched")) / DATABASE_NAME), "user database")


def default_places(start: Path | None = None) -> tuple[Place, ...]:
    """Databases in the order of look-up: AUTOSCHED_DB, the project's, the user's."""
    named = AUTOSCHED_DB.get()
    first = (Place(named, "AUTOSCHED_DB"),) if named else ()
    project = project_database(start)
    return (*first, *((project,) if project else ()), user_database())


def database_to_write(explicit: str | Path | None = None, start: Path | None = None) -> Place:
    """Where tuning writes to: what was given, else the first of `default_places`."""
    return Place(str(explicit), "database") if explicit is not None else default_places(start)[0]
