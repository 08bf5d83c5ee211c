"""The builder's side of tuning an own CUDA kernel."""

from __future__ import annotations

import pickle
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from autosched.codegen.cuda.user_kernel import UserKernel
from autosched.own.gpu.kernel import SentKernel
from autosched.space import Config
from autosched.target import Target
from autosched.task import ConfigLike

if TYPE_CHECKING:
    from autosched.tuner.measure.base import Packs

COMPILER = f"{__name__}:GpuCompiler"


@dataclass(frozen=True, slots=True)
class OwnGpuKernel:
    """A configuration with its machine code."""

    config: Config
    kernel: UserKernel


class GpuCompiler:
    """See `tuner.measure.builder.Compiler`."""

    def warm_up(self, target: Target) -> None:
        """Compile a small kernel: the first one is slower by a second."""
        from numba import types

        from autosched.codegen.cuda.user_kernel import UserOptions, compile_user_kernel

        compile_user_kernel(_small, (types.Array(types.float32, 1, "C"),), target, UserOptions())

    def compile(self, func: SentKernel, config: ConfigLike, target: Target) -> tuple[OwnGpuKernel, Packs]:
        """Compile a configuration for the types of the caller's arguments."""
        chosen = Config(config.template, config.knobs)
        self._last = OwnGpuKernel(chosen, func.compiled(chosen, pickle.loads(func.types)))
        return self._last, ()

    def describe(self, target: Target) -> Mapping[str, tuple[float, ...]]:
        """Give what a thread and a block of the kernel compiled last use."""
        used = self._last.kernel.kernel.resources
        return {"resources": (used.registers, used.shared_bytes, used.stack_bytes, used.spill_bytes)}

    def keep(self) -> None:
        """Nothing is kept on disk."""

    def native_loop(self) -> bytes:
        """No kernel of a CPU is run."""
        return b""


def _small(x: np.ndarray) -> None:
    x[0] = 1.0
