"""A compiler for workers that have no time to compile: it takes kernels from a file that the test has made."""

from __future__ import annotations

import os
import pickle
from pathlib import Path
from typing import Any

from autosched.errors import ScheduleError
from autosched.runtime.kernel import Kernel
from autosched.space import Config
from autosched.target import Target
from tests.tuner.measure.kernels import KernelCompiler, config, matmul_task

VARIABLE = "AUTOSCHED_TEST_KERNELS"
KINDS = ("right", "slow", "one_term_short", "wild_store")


def make_file(path: Path) -> None:
    """Compile every kind of kernel once, and the native loop."""
    compiler, task = KernelCompiler(), matmul_task()
    kernels = {kind: compiler.compile(task.func, config(kind, rounds=9), task.target)[0] for kind in KINDS}
    path.write_bytes(pickle.dumps((compiler.native_loop(), kernels)))


class CannedCompiler:
    """Gives the kernel of a configuration's kind; "refused" and "build_error" fail."""

    def __init__(self) -> None:
        self._native, self._kernels = pickle.loads(Path(os.environ[VARIABLE]).read_bytes())

    def warm_up(self, target: Target) -> None:
        """Nothing is slow here."""

    def keep(self) -> None:
        """Nothing is stored here."""

    def native_loop(self) -> bytes:
        """The real one."""
        assert isinstance(self._native, bytes)
        return self._native

    def compile(self, func: Any, config: Config, target: Target) -> tuple[Kernel, tuple[Any, ...]]:
        """Take it out of the can, or fail."""
        if config["kind"] == "refused":
            raise ScheduleError("tile 7 does not fit")
        return self._kernels[config["kind"]], ()
