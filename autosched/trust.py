"""Who may change a file: what is executed or obeyed is read only where others cannot have written it."""

from __future__ import annotations

import os
import stat
from pathlib import Path

_MOST_LINKS = 40  # as the kernel follows


def why_untrusted(path: str | Path) -> str:
    """Say who besides this user and root can change a file or folder; "" where no one can.

    Every component from the root down is looked at, those that symbolic links lead through included. A folder that
    all may write to counts as safe where its sticky bit keeps others from renaming the next component (/tmp).
    What does not exist yet is judged by the folders above it. Systems without user numbers are not judged.
    """
    if not hasattr(os, "getuid"):
        return ""
    trusted = {os.geteuid(), 0}
    todo = _reversed_parts(os.path.join(os.getcwd(), path))
    at, links = "/", 0
    while todo:
        name = todo.pop()
        if name == "..":
            at = os.path.dirname(at)
            continue
        place = os.path.join(at, name)  # "/" begins anew
        try:
            status = os.lstat(place)
        except FileNotFoundError:
            return ""
        except OSError as error:
            return f"{place} cannot be looked at ({error.strerror or error})"
        if status.st_uid not in trusted:
            return f"{place} belongs to user {status.st_uid}"
        if stat.S_ISLNK(status.st_mode):
            links += 1
            if links > _MOST_LINKS:
                return f"{place} is one of too many symbolic links"
            todo += _reversed_parts(os.readlink(place))
            continue
        others_write = status.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
        if others_write and not (todo and stat.S_ISDIR(status.st_mode) and status.st_mode & stat.S_ISVTX):
            return f"{place} can be written by others"
        at = place
    return ""


def is_own_file(path: str | Path) -> bool:
    """Whether a file and the link that leads to it belong to this user or root, and not everybody can write the file.

    Enough for what is read as text, where a group may work on one project: `why_untrusted` is for what is executed.
    """
    if not hasattr(os, "getuid"):
        return True
    trusted = {os.geteuid(), 0}
    try:
        link, file = os.lstat(path), os.stat(path)
    except OSError:
        return False
    return {link.st_uid, file.st_uid} <= trusted and not file.st_mode & stat.S_IWOTH


def _reversed_parts(path: str) -> list[str]:
    names = [name for name in path.split("/") if name not in ("", ".")]
    return [*reversed(names), *(["/"] if path.startswith("/") else [])]
