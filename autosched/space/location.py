"""Where the data folders `search_spaces/` and `tuning_logs/` are: in a checkout, or installed with the package."""

from __future__ import annotations

import sys
from importlib.resources import files
from pathlib import Path

from autosched.errors import SpaceError


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
    """The folder of shipped best configurations; None where the installation has none."""
    return find_data_folder("tuning_logs")
