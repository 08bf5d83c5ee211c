"""TVM's `contrib.utils`: a folder that goes away by itself."""

from __future__ import annotations

import os
import tempfile


class TempDirectory:
    """A temporary folder; it is removed with the object.

    custom_path     a folder to use instead, which stays
    keep_for_debug  let the folder stay
    """

    def __init__(self, custom_path: str | None = None, keep_for_debug: bool | None = None):
        kept = tempfile.mkdtemp(prefix="autosched_") if keep_for_debug and not custom_path else custom_path
        self._folder = None if kept else tempfile.TemporaryDirectory(prefix="autosched_")
        self.temp_dir: str = kept or (self._folder.name if self._folder else "")
        if custom_path:
            os.makedirs(custom_path, exist_ok=True)

    @property
    def path(self) -> str:
        """The folder's path."""
        return self.temp_dir

    def relpath(self, name: str) -> str:
        """The path of a file in the folder."""
        return os.path.join(self.temp_dir, name)

    def listdir(self) -> list[str]:
        """The names of the files in the folder."""
        return os.listdir(self.temp_dir)

    def remove(self) -> None:
        """Remove the folder now."""
        if self._folder is not None:
            self._folder.cleanup()
            self._folder = None

    def __truediv__(self, other: str) -> str:
        return self.relpath(str(other))

    def __enter__(self) -> TempDirectory:
        return self

    def __exit__(self, *_: object) -> None:
        self.remove()


def tempdir(custom_path: str | None = None, keep_for_debug: bool | None = None) -> TempDirectory:
    """Make a temporary folder."""
    return TempDirectory(custom_path, keep_for_debug)
