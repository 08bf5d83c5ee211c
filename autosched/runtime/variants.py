"""A model built for several CPUs and GPUs: one artifact, of which each machine loads the best that it can run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from autosched.errors import ArtifactError
from autosched.runtime.array import NDArray
from autosched.runtime.artifact import export_path, save_variants
from autosched.runtime.cuda.devices import device_rank
from autosched.runtime.cuda.kernel import CudaKernel
from autosched.runtime.executable import Executable
from autosched.target import host_cpu


@dataclass(frozen=True)
class Variants:
    """One model, built once for each of several CPUs and GPUs.

    executables  by the CPU's name, as in -mcpu, or the GPU's architecture, as in -arch
    """

    executables: Mapping[str, Executable]

    @property
    def here(self) -> Executable:
        """The one that a process on this machine loads. Raises ArtifactError where none runs here."""
        ranks = {name: rank(built) for name, built in self.executables.items()}
        runs = [name for name, (lacks, _) in ranks.items() if lacks <= 0]
        if not runs:
            raise ArtifactError(f"this machine's devices are none of {', '.join(ranks)}", hint="build for them too")
        return self.executables[min(runs, key=lambda name: ranks[name])]

    def __call__(self, *args: object, **named: object) -> NDArray | tuple[NDArray, ...]:
        """Run on this machine; see `Executable.__call__`."""
        return self.here(*args, **named)

    def save(self, path: str | Path) -> None:
        """Write one artifact with all of them, equal constants once. Raises as `Executable.save`."""
        save_variants({name: built.contents() for name, built in self.executables.items()}, Path(path))

    def export_library(self, path: str | Path) -> None:
        """Write the artifact, whatever the extension. Raises as `export_path`."""
        self.save(export_path(path))


def rank(built: Executable) -> tuple[int, int]:
    """How well a model suits this machine: less is better, and above 0 what does not run."""
    gpu = [kernel.archs for kernel in built.kernels.values() if isinstance(kernel, CudaKernel)]
    if gpu:
        return device_rank(gpu)
    needs = {feature for kernel in built.kernels.values() for feature in kernel.features}
    return len(host_cpu().lacks(needs)), -len(needs)
