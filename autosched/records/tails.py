"""Reading files of lines that others still append to: every complete line once."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from autosched.errors import RecordError
from autosched.records.jsonl import MAX_LINE_BYTES


class Tails:
    """How far each `*.jsonl` file of a folder has been read."""

    def __init__(self, folder: Path):
        self.folder = folder
        self._read: dict[Path, tuple[int, int]] = {}  # bytes and lines

    def new_lines(self) -> Iterator[tuple[Path, int, bytes]]:
        """File, number from 1 and text of each line that was completed since the last time.

        Raises  RecordError for a file that cannot be read.
        """
        for path in sorted(self.folder.glob("*.jsonl")):
            try:
                yield from self._of_file(path)
            except FileNotFoundError:
                continue  # tidied away meanwhile
            except OSError as error:
                raise RecordError(f"cannot read the log: {error.strerror}", where=str(path)) from None

    def _of_file(self, path: Path) -> Iterator[tuple[Path, int, bytes]]:
        offset, number = self._read.get(path, (0, 0))
        size = path.stat().st_size
        if size < offset:  # somebody has replaced it
            offset = number = 0
        if size == offset:
            return
        with path.open("rb") as file:
            file.seek(offset)
            for line in file:
                if not line.endswith(b"\n") and len(line) <= MAX_LINE_BYTES:
                    return  # its writer is about to complete it, or was killed
                offset, number = offset + len(line), number + 1
                self._read[path] = (offset, number)
                yield path, number, line

    def skip(self, path: Path, offset: int, n_lines: int) -> None:
        """Take lines that this process has appended itself as read."""
        self._read[path] = (offset, self._read.get(path, (0, 0))[1] + n_lines)

    def cut(self) -> list[Path]:
        """Files whose last line is not complete."""
        return [path for path, (offset, _) in self._read.items() if path.exists() and path.stat().st_size > offset] + [
            path for path in sorted(self.folder.glob("*.jsonl")) if path not in self._read and path.stat().st_size
        ]
