"""Exported programs in files (.pt2)."""

from __future__ import annotations

import contextlib
import logging
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from autosched.env import AUTOSCHED_TRUST_PICKLE
from autosched.errors import ImportModelError
from autosched.frontend.torch.archive import read_program
from autosched.frontend.torch.exported import import_held
from autosched.ir.module import IRModule

if TYPE_CHECKING:
    from torch.export import ExportedProgram


def load_program_file(
    path: str | Path, *, trust_pickle: bool | None = None, shapes: Mapping[str, Sequence[int]] | None = None
) -> IRModule:
    """Import what torch.export.save wrote.

    shapes        sizes of inputs with dynamic dimensions
    trust_pickle  run what the archive holds (pickled objects, native code); None: as AUTOSCHED_TRUST_PICKLE says
    Raises        ImportModelError for a file that is no exported program, or that would run something unasked.
    """
    program = read_program_file(path, trust_pickle)
    return import_held(program, shapes)


def _is_archive(path: Path) -> bool:
    try:
        return zipfile.is_zipfile(path)
    except zipfile.BadZipFile:  # its end says that other files belong to it
        return False


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """PyTorch logs the traceback of each form that an archive has not, and then raises an error too."""
    log = logging.getLogger("torch.export")
    level = log.level
    log.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        log.setLevel(level)


def read_program_file(path: str | Path, trust_pickle: bool | None = None) -> ExportedProgram:
    """The exported program in a file. Raises as `load_program_file`."""
    path = Path(path)
    if not path.exists():
        raise ImportModelError(f"no file '{path}'")
    if not path.is_file() or not _is_archive(path):
        raise ImportModelError(
            f"'{path}' is no exported program", hint="write it with torch.export.save(program, path)"
        )
    try:
        import torch  # noqa: F401
    except ImportError:
        raise ImportModelError("reading .pt2 files takes PyTorch", hint="pip install 'autosched[torch]'") from None
    trusted = AUTOSCHED_TRUST_PICKLE.get() if trust_pickle is None else trust_pickle
    try:
        with _quiet():
            return read_program(path, trusted)
    except ImportModelError:
        raise
    except Exception as error:  # PyTorch raises whatever the broken part of the archive leads to
        first = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        raise ImportModelError(f"'{path}' cannot be read: {first[:200]}") from error
