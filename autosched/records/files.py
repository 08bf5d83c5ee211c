"""Files that are replaced whole or not at all."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TextIO

from autosched.errors import RecordError


@contextmanager
def replaced(path: Path, what: str, *, make_folder: bool = False) -> Iterator[TextIO]:
    """Give a file to write text to, that takes the place of `path` when the block ends without an error.

    what         "the log", for the message
    make_folder  whether its folder may be made
    Raises       RecordError where it cannot be written or the disk is full; `path` is then as it was.
    """
    folder, temporary = path.absolute().parent, ""
    try:
        if make_folder:
            folder.mkdir(parents=True, exist_ok=True)
        handle, temporary = tempfile.mkstemp(dir=folder, prefix=f".{path.name}.")
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            yield file
        mask = os.umask(0)
        os.umask(mask)
        os.chmod(temporary, 0o666 & ~mask)
        os.replace(temporary, path)
    except OSError as error:
        raise RecordError(f"cannot write {what}: {error.strerror or error}", where=str(path)) from None
    finally:
        if temporary:
            Path(temporary).unlink(missing_ok=True)
