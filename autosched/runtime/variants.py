"""A model or function built for several CPUs and GPUs: one artifact; a machine loads the best that it can run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from autosched.errors import ArtifactError
from autosched.runtime.artifact import Contents, export_path, save_variants, source_rank
from autosched.runtime.cuda.devices import device_rank
from autosched.runtime.cuda.kernel import CudaKernel
from autosched.runtime.kernel import Kernel
from autosched.target import host_cpu

if TYPE_CHECKING:
    from autosched.json_types import Json


class Built(Protocol):
    """What `build` gives for one target: a model or a function, of known sizes or not."""

    @property
    def manifest(self) -> Mapping[str, Json]: ...
    def __call__(self, *args: Any, **named: Any) -> Any: ...
    def contents(self) -> Contents: ...


@dataclass(frozen=True)
class Variants:
    """One model or function, built once for each of several CPUs and GPUs.

    executables  by the CPU's name, as in -mcpu, or the GPU's architecture, as in -arch
    """

    executables: Mapping[str, Built]

    @property
    def here(self) -> Built:
        """The one that a process on this machine loads. Raises ArtifactError where none runs here."""
        ranks = {name: rank(built) for name, built in self.executables.items()}
        runs = [name for name, (lacks, _) in ranks.items() if lacks <= 0]
        if not runs:
            raise ArtifactError(f"this machine's devices are none of {', '.join(ranks)}", hint="build for them too")
        return self.executables[min(runs, key=lambda name: ranks[name])]

    def __call__(self, *args: object, **named: object) -> Any:
        """Run on this machine, as what was built for it does."""
        return self.here(*args, **named)

    def save(self, path: str | Path) -> None:
        """Write one artifact with all of them, equal constants once. Raises ArtifactError if it cannot be written."""
        save_variants({name: built.contents() for name, built in self.executables.items()}, Path(path))

    def export_library(self, path: str | Path) -> None:
        """Write the artifact, whatever the extension. Raises as `export_path`."""
        self.save(export_path(path))


def rank(built: Built) -> tuple[int, int]:
    """How well a model suits this machine: less is better, and above 0 what does not run."""
    kernels: Sequence[Kernel] = tuple(getattr(built, "kernels", {}).values())
    if not kernels and (target := str(built.manifest.get("target", ""))):  # compiled when it is called
        return source_rank(target)
    if gpu := [kernel.archs for kernel in kernels if isinstance(kernel, CudaKernel)]:
        return device_rank(gpu)
    needs = {feature for kernel in kernels for feature in kernel.features}
    return len(host_cpu().lacks(needs)), -len(needs)
