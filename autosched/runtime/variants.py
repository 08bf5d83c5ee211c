"""A model built for several instruction sets: one artifact, of which each machine loads the best that it can run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from autosched.errors import ArtifactError
from autosched.runtime.artifact import export_path, save_variants
from autosched.runtime.executable import Executable
from autosched.target import host_cpu


@dataclass(frozen=True)
class Variants:
    """One model, built once for each of several CPUs.

    executables  by the CPU's name, as in -mcpu
    """

    executables: Mapping[str, Executable]

    @property
    def here(self) -> Executable:
        """The one that a process on this machine loads. Raises ArtifactError where none runs here."""
        has = host_cpu().runnable
        needs = {
            name: {f for k in built.kernels.values() for f in k.features} for name, built in self.executables.items()
        }
        runs = [name for name, features in needs.items() if features <= has]
        if not runs:
            raise ArtifactError(f"this CPU is none of {', '.join(needs)}", hint="build for it too")
        return self.executables[max(runs, key=lambda name: len(needs[name]))]

    def __call__(self, *args: Any, **named: Any) -> Any:
        """Run on this machine; see `Executable.__call__`."""
        return self.here(*args, **named)

    def save(self, path: str | Path) -> None:
        """Write one artifact with all of them, equal constants once. Raises as `Executable.save`."""
        save_variants({name: built.contents() for name, built in self.executables.items()}, Path(path))

    def export_library(self, path: str | Path) -> None:
        """Write the artifact, whatever the extension. Raises as `export_path`."""
        self.save(export_path(path))
