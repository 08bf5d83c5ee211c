"""Files from the web, kept for the next time."""

from __future__ import annotations

import os
import urllib.error
import urllib.request
from pathlib import Path

import platformdirs

from autosched.errors import TVMError, refuse


def download(url: str, path: str | os.PathLike[str], overwrite: bool = False, size_compare: bool = False,
             retries: int = 3) -> None:  # fmt: skip
    """Fetch a file unless it is there. Raises TVMError naming the address."""
    refuse("download", size_compare=size_compare)
    target = Path(path)
    if target.is_file() and not overwrite:
        return
    target.parent.mkdir(parents=True, exist_ok=True)
    for left in range(max(retries, 1) - 1, -1, -1):
        try:
            with urllib.request.urlopen(url, timeout=30) as answer:
                data = answer.read()
            break
        except (urllib.error.URLError, OSError, ValueError) as error:
            if not left:
                raise TVMError(f"download of {url}: {error}", hint=f"put the file at {target}") from error
    target.write_bytes(data)


def download_testdata(url: str, relpath: str, module: str | list[str] | None = None, overwrite: bool = False) -> str:
    """The path of a file in the user's cache, fetched where it is missing."""
    parts = [module] if isinstance(module, str) else list(module or ())
    path = Path(platformdirs.user_cache_dir("autosched"), "testdata", *parts, relpath)
    download(url, path, overwrite)
    return str(path)
