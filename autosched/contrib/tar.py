"""Archives: accepted where TVM takes a function that packs, as artifacts are one file."""

from __future__ import annotations

from autosched.errors import TVMError


def tar(output: str, objects: object, options: object = None, **_: object) -> None:
    """Refused if called: `export_library` writes the artifact by itself. Raises TVMError always."""
    raise TVMError("libraries are written by export_library", hint="leave out fcompile")


tar.output_format = "tar"  # type: ignore[attr-defined]
