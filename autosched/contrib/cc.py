"""Compilers of the system: accepted where TVM takes one, as artifacts need none."""

from __future__ import annotations

from collections.abc import Callable

from autosched.errors import TVMError


def create_shared(output: str, objects: object, options: object = None, **_: object) -> None:
    """Refused if called: `export_library` writes the artifact by itself. Raises TVMError always."""
    raise TVMError("libraries are written by export_library", hint="leave out fcompile")


def cross_compiler(
    compile_func: object, options: object = None, output_format: str = "so", **_: object
) -> Callable[..., object]:
    """A function that `export_library` accepts."""
    return create_shared
