"""Compilers for tests of tuning: what they make of a configuration is decided by the test, not by its knobs."""

from __future__ import annotations

import zlib
from typing import Any

from autosched.runtime.kernel import Kernel
from autosched.space import Config
from autosched.target import Target
from autosched.templates import default_config
from autosched.tir import PrimFunc
from autosched.tuner.measure.compiler import TemplateCompiler
from tests.tuner.measure.kernels import KernelCompiler
from tests.tuner.measure.kernels import config as kind_config

KINDS = (
    "right", "build_crash", "wild_store", "build_memory", "one_term_short", "makes_nan", "endless", "build_hang",
    "works_once",
)  # fmt: skip


def kind_of(config: Config, default: Config) -> str:
    """What `Accidents` makes of a configuration; the default is always right."""
    return "right" if config == default else KINDS[zlib.crc32(config.key.encode()) % len(KINDS)]


class Accidents(KernelCompiler):
    """Candidates of `tests.tuner.measure.kernels.matmul_task` that crash, hang, take too much or are wrong."""

    def compile(self, func: PrimFunc, config: Config, target: Target) -> tuple[Kernel, tuple[Any, ...]]:
        """The kernel of the configuration's kind."""
        return super().compile(func, kind_config(kind_of(config, default_config(func, target))), target)


class BrokenDefault(Accidents):
    """Only the default goes wrong."""

    def compile(self, func: PrimFunc, config: Config, target: Target) -> tuple[Kernel, tuple[Any, ...]]:
        """A segmentation fault for the default."""
        kind = "wild_store" if config == default_config(func, target) else "right"
        return KernelCompiler.compile(self, func, kind_config(kind), target)


class NothingWorks(Accidents):
    """All candidates give a wrong result."""

    def compile(self, func: PrimFunc, config: Config, target: Target) -> tuple[Kernel, tuple[Any, ...]]:
        """A sum with a term too few."""
        return KernelCompiler.compile(self, func, kind_config("one_term_short"), target)


class Worse(TemplateCompiler):
    """All candidates but the default become the slowest kernel that there is: one value at a time."""

    def compile(self, func: PrimFunc, config: Any, target: Target) -> tuple[Kernel, tuple[Any, ...]]:
        """The default as it is, the narrowest register tile for all others."""
        default = default_config(func, target)
        narrow = Config(default.template, {**default.knobs, "rows": 1, "vectors": 1, "unroll_k": 1})
        return super().compile(func, default if config == default else narrow, target)
