"""What templates find out about functions in natural layout, and their kernels, kept on disk.

A build whose kernels are all known matches no template, and schedules and lowers nothing: it reads each function's
workload and default, what it needs of the function as scheduled, and machine code.
"""

from __future__ import annotations

import functools
import hashlib
import json
import pickle
import sys
import zlib
from collections.abc import Hashable
from dataclasses import dataclass, replace
from pathlib import Path

from autosched.codegen.backends import codegen_backend
from autosched.codegen.cache import load, toolchain
from autosched.codegen.compile import Request
from autosched.codegen.compiled import CompiledKernel, code_name
from autosched.codegen.lower.flops import count_work, symbolic_work
from autosched.errors import AutoschedError
from autosched.ir.structural import function_texts
from autosched.runtime.cache import kernel_cache
from autosched.space import Config
from autosched.target import Target
from autosched.task import Workload
from autosched.templates.base import Applied, Template, schedule_attrs
from autosched.templates.pack import Packing
from autosched.templates.registry import all_templates, apply_config, default_config, template_named
from autosched.templates.workload import describe
from autosched.tir.checked_index import CHECKED
from autosched.tir.expr import const_int
from autosched.tir.function import PrimFunc
from autosched.tir.in_place import IN_PLACE, overwritable
from autosched.tir.outer_sizes import Form, open_outer_sizes
from autosched.tir.separable import BLOCKS
from autosched.tir.serialize import to_json
from autosched.tir.size_expr import SIZES, WORK, to_size


@dataclass(frozen=True, slots=True)
class Facts:
    """What follows from a function alone.

    workload  see `describe`
    default   its default configuration
    work      its floating-point operations, see `count_work`
    """

    workload: Workload
    default: Config
    work: int

    @staticmethod
    def of(func: PrimFunc, target: Target) -> Facts:
        """From the cache, or found out. Raises ScheduleError for a function that no template takes."""
        key = _key("facts", func, target)
        if has_foreign(target.backend):
            return Facts._find(func, target)
        if (data := kernel_cache().get(key)) is not None:
            known: Facts = pickle.loads(data)  # bytes that only this user can have stored
            return known
        found = Facts._find(func, target)
        kernel_cache().put(key, pickle.dumps(found))
        return found

    @staticmethod
    def _find(func: PrimFunc, target: Target) -> Facts:
        return Facts(describe(func, target), default_config(func, target), count_work(func))


@dataclass(frozen=True, slots=True)
class Scheduled:
    """What a build needs of a scheduled function beside its kernel.

    packs     how arguments are packed, as in `Applied`
    text      the function as JSON, from which it can be built again
    in_place  which outputs may be written over which inputs, see `overwritable`
    kernel    its kernel's key in the cache
    numbers   of the function's form, whose kernel that is; none for a kernel of its own
    """

    packs: tuple[Packing | None, ...]
    text: str
    in_place: frozenset[tuple[int, int]]
    kernel: str
    numbers: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Made:
    """A function that was scheduled and compiled."""

    scheduled: Scheduled
    compiled: CompiledKernel

    @property
    def from_cache(self) -> bool:
        return self.compiled.from_cache

    def with_name(self, name: str) -> Made:
        """The same with the kernel of another name, whose `code_name` is the same."""
        return replace(self, compiled=self.compiled.with_name(name))


@dataclass(frozen=True, slots=True, eq=False)
class KernelRequest:
    """A function in natural layout whose kernel a `Compilation` is asked for.

    applied  the function as the configuration schedules it, where that is known already
    checks   whether the kernel sees that every access stays inside of its buffer
    """

    func: PrimFunc
    name: str
    config: Config
    applied: Applied | None = None
    checks: bool = False

    @property
    def kin(self) -> Hashable:
        """Kernels of one configuration and first arguments of like shapes share most of their code, or all of it."""
        return self.config, tuple(tuple(map(const_int, buffer.shape[2:])) for buffer in self.func.buffers[:2])

    def key(self, target: Target) -> str:
        """A key that is equal exactly where scheduling and compiling give the same."""
        return _key("scheduled", self.func, target, self.config.to_json(), str(self.checks), code_name(self.name))

    def load(self, key: str) -> Made | None:
        data = kernel_cache().get(key)
        if data is None:
            return None
        scheduled: Scheduled = pickle.loads(zlib.decompress(data))  # bytes that only this user can have stored
        compiled = load(scheduled.kernel)
        return None if compiled is None else Made(scheduled, compiled.at(scheduled.numbers))

    def make(self, target: Target, key: str) -> Made:
        """Schedule the function and compile it. Raises ScheduleError, SpaceError and what `compile_func` raises."""
        applied = self.applied or apply_config(self.func, self.config, target)
        func = applied.func.with_attr(schedule_attrs(self.config, applied))
        func = func.with_attr(CHECKED, True) if self.checks else func
        request = Request(func, self.name, applied.trace, self.config.to_json())
        kernel, numbers = request.key(target), tuple[int, ...]()
        compiled = request.load(kernel)
        if compiled is None and target.is_cpu and not self.checks and (found := self._form(request, target)):
            compiled, kernel, numbers = found
        compiled = compiled or request.make(target, kernel)
        scheduled = Scheduled(applied.packs, to_json(func), overwritable(func), kernel, numbers)
        if is_own(self.config, target):
            kernel_cache().put(key, zlib.compress(pickle.dumps(scheduled), 1))
        return Made(scheduled, compiled.at(numbers))

    def _form(self, request: Request, target: Target) -> tuple[CompiledKernel, str, tuple[int, ...]] | None:
        """The kernel of a scheduled function's form, its key and the numbers for it; None where it has no good one."""
        form = form_of(request.func)
        if form is None:
            return None
        opened = replace(request, func=form.func)
        key = opened.key(target)
        try:
            compiled = opened.load(key) or opened.make(target, key)
        except AutoschedError:  # what some step does for numbers alone
            return None
        is_proved = not compiled.kernel.checks  # numbers may prove what symbols do not
        return (compiled, key, form.numbers) if is_proved else None


def form_of(func: PrimFunc) -> Form | None:
    """A scheduled function's form with what its kernel needs to know; None where it has none."""
    form = None if BLOCKS in func.attrs or SIZES in func.attrs else open_outer_sizes(func)
    if form is None:
        return None
    known = {IN_PLACE: tuple(sorted(overwritable(func))), WORK: json.dumps(to_size(symbolic_work(form.func)))}
    return replace(form, func=form.func.with_attr(known))


def _key(what: str, func: PrimFunc, target: Target, *more: str) -> str:
    """A key of all that decides what templates make of a function."""
    parts = (
        *function_texts(func), target.to_json(), machine_facts(target), toolchain(target.backend, "templates"), *more,
    )  # fmt: skip
    return f"{what} " + hashlib.sha256("\x1f".join(parts).encode()).hexdigest()


def machine_facts(target: Target) -> str:
    """What templates read of a target beyond its JSON text: instruction sets, caches, cores."""
    cores = str(target.num_cores) if target.is_cpu else ""
    return "\x1f".join((codegen_backend(target.backend).target_facts(target), target.fingerprint().key, cores))


def is_own(config: Config, target: Target) -> bool:
    """Whether a configuration is of a template of this package: its sources are in the key."""
    return not _is_foreign(template_named(config.template, target))


def has_foreign(backend: str) -> bool:
    """Whether a back end has templates of other packages, whose sources are in no key."""
    return any(map(_is_foreign, all_templates(backend)))


def _is_foreign(template: Template) -> bool:
    return _is_foreign_class(type(template))


@functools.cache
def _is_foreign_class(kind: type[Template]) -> bool:
    file = sys.modules[kind.__module__].__file__
    return file is None or not Path(file).is_relative_to(Path(__file__).parent)
