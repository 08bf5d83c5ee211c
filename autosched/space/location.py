"""Where the data folders `search_spaces/` and `tuning_logs/` are: in a checkout, or installed with the package."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from importlib.resources import files
from pathlib import Path

from autosched.env import TOPHUB_LOCATION
from autosched.errors import SpaceError

_user_spaces: ContextVar[Path | None] = ContextVar("user_spaces", default=None)


@contextmanager
def use_spaces(folder: Path | None) -> Iterator[None]:
    """Within, the search spaces of `folder` (`cpu/matmul.toml`, …) come before the project's; None changes nothing.

    Raises  SpaceError if there is no such folder.
    """
    if folder is not None and not folder.is_dir():
        raise SpaceError("no such folder of search spaces", where=str(folder), hint="give one that holds cpu/NAME.toml")
    token = _user_spaces.set(folder if folder is not None else _user_spaces.get())
    try:
        yield
    finally:
        _user_spaces.reset(token)


def user_spaces_folder() -> Path | None:
    """The folder that `use_spaces` names; None outside of it."""
    return _user_spaces.get()


def candidate_folders(name: str) -> tuple[Path, ...]:
    """The places where the data folder `name` may be, the first one that exists counts.

    The checkout's root (beside the package), the package's own `_data` folder (a wheel or a normal install), and
    `share/autosched` of the environment (a distribution's package).
    """
    package = Path(str(files("autosched")))
    return (package.parent / name, package / "_data" / name, Path(sys.prefix) / "share" / "autosched" / name)


def find_data_folder(name: str) -> Path | None:
    """The data folder `name`, None where there is none."""
    checkout, *installed = candidate_folders(name)
    if checkout.is_dir() and (checkout.parent / "setup.cfg").is_file():  # not some other package's folder
        return checkout
    return next((folder for folder in installed if folder.is_dir()), None)


def search_spaces_folder() -> Path:
    """The folder of the search spaces. Raises SpaceError where the installation has lost it."""
    folder = find_data_folder("search_spaces")
    if folder is None:
        places = ", ".join(map(str, candidate_folders("search_spaces")))
        raise SpaceError("no folder 'search_spaces'", where=places, hint="install autosched again")
    return folder


def tuning_logs_folder() -> Path | None:
    """The folder of shipped best configurations; None where the installation has none or TOPHUB_LOCATION is NONE."""
    named = TOPHUB_LOCATION.get()
    if named.upper() == "NONE":
        return None
    return Path(named) if named and Path(named).is_dir() else find_data_folder("tuning_logs")
