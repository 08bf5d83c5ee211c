"""Functions of the VM that are built when they are called, in the process that made them or from a file."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Protocol

from autosched.errors import ArtifactError
from autosched.runtime.artifact import Contents, from_contents
from autosched.runtime.vm_program import Program
from autosched.target import Target

if TYPE_CHECKING:
    from autosched.json_types import JsonObject

SYMBOLIC = "symbolic"  # in an artifact's manifest: functions that are built when they are called


class LateBuild(Protocol):
    """Makes the program of a function with symbolic shapes from its arguments."""

    @property
    def names(self) -> Collection[str]:
        """The functions that it knows."""

    @property
    def target(self) -> Target: ...

    def manifest(self, names: Collection[str]) -> JsonObject:
        """What a file has to hold for `LateText` of functions."""

    def __call__(self, name: str, args: Sequence[object]) -> Program: ...

    def for_sizes(self, name: str, args: Sequence[object]) -> Program:
        """The program for the sizes of the arguments alone."""


class LateText:
    """Functions that are built when they are called, as a file has them: text that is read when the first is called.

    Raises ArtifactError for what is none, TargetError for a target that cannot be read.
    """

    def __init__(self, manifest: JsonObject):
        kinds = {"source": str, "target": str, "runs": str, "reasons": dict}
        if not isinstance(manifest, dict) or any(type(manifest.get(key)) is not kind for key, kind in kinds.items()):
            raise ArtifactError("what the artifact holds of functions that are built when they are called is damaged")
        self._manifest, self.names, self.target = manifest, manifest["reasons"], Target(manifest["target"])

    @cached_property
    def _made(self) -> LateBuild:
        made: LateBuild = from_contents(Contents("source", {}, b"", {}, (), {"entry": "", "manifest": self._manifest}))
        return made

    def manifest(self, names: Collection[str]) -> JsonObject:
        """What it was made of: it knows no others."""
        return self._manifest

    def __call__(self, name: str, args: Sequence[object]) -> Program:
        return self._made(name, args)

    def for_sizes(self, name: str, args: Sequence[object]) -> Program:
        """As of `LateBuild`."""
        return self._made.for_sizes(name, args)
