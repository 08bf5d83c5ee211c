"""Builds a candidate from its template: what the builder's workers do where nothing else is asked for."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from autosched.errors import SpaceError
from autosched.runtime.kernel import Kernel
from autosched.space import Config
from autosched.target import Target
from autosched.task import ConfigLike
from autosched.tir import PrimFunc

if TYPE_CHECKING:
    from autosched.codegen import CompiledKernel
    from autosched.templates.base import Anchor, Template
    from autosched.tuner.measure.base import Packs

# LLVM emits a kernel's code once more to show it, a tenth of its building: that pays where bad candidates run long.
COUNTED_FLOPS = 5e8
MOST_REMEMBERED = 64  # kernels of one worker: the default, which comes again and again, and the best so far are in it


class TemplateCompiler:
    """Schedules by template and compiles with `codegen`. Nothing goes to the kernel cache but what is kept."""

    def __init__(self) -> None:
        self._kernels: dict[str, CompiledKernel] = {}  # by the cache's key, the one used last at the end
        self._last: PrimFunc | None = None  # what was compiled last, as it was scheduled
        self._fitting: dict[int, tuple[PrimFunc, str, PrimFunc, tuple[tuple[Template, Anchor], ...]]] = {}

    def warm_up(self, target: Target) -> None:
        """Compile a small function: the first compilation in a process is slower by a second."""
        from autosched import te
        from autosched.codegen import compile_func
        from autosched.templates.registry import templates_for

        a = te.placeholder((64, 64), name="a")
        func = te.create_prim_func([a, te.compute((64, 64), lambda i, j: a[i, j] + 1.0, name="out")])
        template, anchor = templates_for(func, target)[0]
        applied = template.apply(func, template.default(anchor, target), target)
        compile_func(applied.func, target, name="warm_up")

    def compile(self, func: PrimFunc, config: ConfigLike, target: Target) -> tuple[Kernel, Packs]:
        """Apply the configuration's template and compile.

        Raises SpaceError if no such template fits the function.
        """
        from autosched.codegen import compile_func
        from autosched.codegen.cache import kernel_key, load
        from autosched.templates.base import schedule_attrs
        from autosched.templates.thread_knob import split_threads

        name, func, fitting = self._look_at(func, target)
        found = next((template for template, _ in fitting if template.name == config.template), None)
        if found is None:
            names = ", ".join(template.name for template, _ in fitting)
            raise SpaceError(f"template '{config.template}' does not fit the function", hint=f"those that do: {names}")
        plain, _ = split_threads(Config(config.template, config.knobs))
        applied = found.apply(func, plain, target)
        scheduled = applied.func.with_attr(schedule_attrs(plain, applied))
        key = kernel_key(scheduled, target, name, applied.trace, plain.to_json())
        compiled = self._kernels.pop(key, None) or load(key)
        if compiled is None:
            compiled = compile_func(
                scheduled, target, name=name, trace=applied.trace, config=plain.to_json(), use_cache=False
            )
        self._kernels[key] = compiled
        if len(self._kernels) > MOST_REMEMBERED:
            del self._kernels[next(iter(self._kernels))]
        self._last = applied.func
        return compiled.with_name(name).kernel, applied.packs

    def describe(self, target: Target) -> Mapping[str, tuple[float, ...]]:
        """Give the features of the loop nest compiled last; of a long kernel the counts of its instructions."""
        from autosched.tuner.cost_model.built import INSTRUCTIONS, LOOPS
        from autosched.tuner.cost_model.loop_features import loop_features

        assert self._last is not None, "called after `compile`"
        loops = tuple(np.round(loop_features(self._last, target), 3).tolist())
        compiled = self._kernels[self.key]
        if known := compiled.features():
            return {LOOPS: loops, **known}
        return {LOOPS: loops} | ({INSTRUCTIONS: compiled.instructions()} if self.is_counted(compiled) else {})

    @property
    def key(self) -> str:
        """Where the kernel cache would have what was compiled last."""
        return next(reversed(self._kernels))

    @staticmethod
    def is_counted(compiled: CompiledKernel) -> bool:
        """Whether looking at a kernel's machine code takes less time than running a bad one of its kind."""
        return compiled.kernel.flops >= COUNTED_FLOPS

    def keep(self) -> None:
        """Put the kernel that was compiled last into the kernel cache, where a build will look for it."""
        from autosched.codegen import cache

        compiled = self._kernels[self.key]
        if not compiled.from_cache:
            cache.store(self.key, compiled.kernel)

    def _look_at(self, func: PrimFunc, target: Target) -> tuple[str, PrimFunc, tuple[tuple[Template, Anchor], ...]]:
        """(kernel's name, the function without it, templates that fit); looked up once for all its candidates."""
        from autosched.templates.base import KERNEL_NAME
        from autosched.templates.registry import templates_for

        if id(func) not in self._fitting:
            name = str(func.attrs.get(KERNEL_NAME) or func.attrs.get("global_symbol", "main"))
            plain = func.without_attr(KERNEL_NAME)
            self._fitting[id(func)] = func, name, plain, templates_for(plain, target)
        return self._fitting[id(func)][1:]

    def comparisons(self, target: Target) -> Kernel:
        """Give the kernel that compares results on a device, from the kernel cache where it has it."""
        from autosched.codegen.cuda.comparisons import compile_comparisons

        return compile_comparisons(target)

    def native_loop(self) -> bytes:
        """Give the native loop's object code, from the kernel cache where it has it."""
        from autosched.codegen.native import native_object

        return native_object()
