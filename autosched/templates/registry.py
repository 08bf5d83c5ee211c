"""Which templates there are for a back end, in the order in which they are asked."""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Mapping, Sequence
from functools import cache, lru_cache
from types import ModuleType
from typing import Protocol

from autosched.errors import InvalidTypeError, InvalidValueError, ScheduleError, TargetError
from autosched.extensions import load_extensions
from autosched.space import Config, ConfigSpace
from autosched.space.union_space import union
from autosched.target import Target
from autosched.templates.base import Anchor, Applied, Estimates, Template
from autosched.templates.thread_knob import split_threads
from autosched.tir import Buffer, PrimFunc

_registered: dict[str, tuple[Template, ...]] = {}  # by back end


def register_template(template: Template, backend: str = "cpu") -> Template:
    """Add a template of another package (see `extensions`): it is asked before those that a back end has.

    Its records carry its name and its `version`, so it keeps both as long as its knobs mean the same.
    Raises  InvalidValueError for a name that is taken, InvalidTypeError for what is no template, TargetError.
    """
    for method in ("match", "space", "default", "apply"):
        if not callable(getattr(template, method, None)):
            raise InvalidTypeError(f"a template needs a method {method}", hint="see autosched.templates.base.Template")
    name = getattr(template, "name", None)
    if not isinstance(name, str) or not name.isidentifier():
        raise InvalidTypeError(f"a template's name is an identifier, not {name!r}")
    there = (*_registered.get(backend, ()), *_package(backend).TEMPLATES)
    if name in [other.name for other in there]:
        raise InvalidValueError(f"there is a template '{name}' for {backend} already")
    _registered[backend] = (template, *_registered.get(backend, ()))
    all_templates.cache_clear()
    templates_for.cache_clear()
    return template


@cache
def all_templates(backend: str) -> tuple[Template, ...]:
    """The templates of a back end ("cpu"): special ones first, the one that takes everything last.

    Those of other packages come before what its own package `autosched.templates.<backend>` calls TEMPLATES.
    Raises TargetError where there is none.
    """
    load_extensions()
    found: tuple[Template, ...] = _package(backend).TEMPLATES
    return (*_registered.get(backend, ()), *found)


def layout_blocks(target: Target) -> tuple[int, ...]:
    """How many channels blocks may have in the layouts of a graph's values; empty where natural ones are kept.

    It is what the back end's package calls `layout_blocks`.
    """
    found: tuple[int, ...] = _package(target.backend).layout_blocks(target)
    return found


def widened_dtypes(target: Target) -> tuple[str, ...]:
    """Float types that kernels of a back end compute as float32 between a model's inputs and outputs: its WIDENED."""
    return tuple(getattr(_package(target.backend), "WIDENED", ()))


def product_types(target: Target) -> tuple[str, ...]:
    """What a back end can round the factors of float32 products to where a model allows it: its PRODUCT_TYPES."""
    return tuple(getattr(_package(target.backend), "PRODUCT_TYPES", ()))


def multiplies_bytes(target: Target) -> bool:
    """Whether a back end's products of bytes are worth taking quantised values for: its MULTIPLIES_BYTES."""
    return bool(getattr(_package(target.backend), "MULTIPLIES_BYTES", False))


def convolves_planes(target: Target) -> bool:
    """Whether a back end convolves volumes fastest as batches of images: its CONVOLVES_PLANES."""
    return bool(getattr(_package(target.backend), "CONVOLVES_PLANES", False))


def splits_products(target: Target) -> bool:
    """Whether a back end multiplies faster by parts of a weight than it moves these parts of the result."""
    return bool(getattr(_package(target.backend), "SPLITS_PRODUCTS", False))


def widens_bytes(target: Target) -> bool:
    """Whether a back end multiplies bytes faster as 16-bit integers: its `widens_bytes`, on others none does."""
    find = getattr(_package(target.backend), "widens_bytes", None)
    return find is not None and bool(find(target))


def sums_columns(target: Target) -> bool:
    """Whether a back end sums depthwise windows of bytes up fastest in words of their rows: its `sums_columns`."""
    find = getattr(_package(target.backend), "sums_columns", None)
    return find is not None and bool(find(target))


def tile_blocks(target: Target) -> Mapping[str, int]:
    """Channels in a block, by dtype, in which convolutions of it are several times as fast: its `tile_blocks`."""
    find = getattr(_package(target.backend), "tile_blocks", None)
    return {} if find is None else dict(find(target))


def schedule_sizes(func: PrimFunc, target: Target) -> Applied:
    """Schedule a function over symbols, whose values come with the call: its `schedule_sizes`.

    Raises  ScheduleError, InvalidValueError for what has no such kernel, as on other back ends all.
    """
    find = getattr(_package(target.backend), "schedule_sizes", None)
    if find is None:
        raise ScheduleError(f"there are no kernels for sizes that come with the call on {target.kind.name}")
    applied: Applied = find(func, target)
    return applied


def narrows_convolution(target: Target, weight: Sequence[int], strides: Sequence[int], groups: int) -> bool:
    """Whether a convolution is faster on bfloat16: its `narrows_convolution`; on other back ends none is.

    weight  its shape [O, I, KH, KW]
    """
    find = getattr(_package(target.backend), "narrows_convolution", None)
    return find is not None and bool(find(target, weight, strides, groups))


def streams_bfloat16(target: Target, rows: int) -> bool:
    """Whether a product of so many rows with a weight is faster on bfloat16 than on its values as float32.

    It is what the back end's package calls `streams_bfloat16`; on other back ends each is.
    """
    find = getattr(_package(target.backend), "streams_bfloat16", None)
    return find is None or bool(find(target, rows))


def narrows_attention(target: Target, queries: int, keys: int) -> bool:
    """Whether attention of so many queries and keys is faster on bfloat16: its `narrows_attention`; on others: no."""
    find = getattr(_package(target.backend), "narrows_attention", None)
    return find is not None and bool(find(target, queries, keys))


def shares_heads(target: Target) -> bool:
    """Whether attention reads keys and values that heads of queries share as they are: its `SHARES_HEADS`."""
    return bool(getattr(_package(target.backend), "SHARES_HEADS", False))


def joins_convolutions(target: Target, first: PrimFunc, second: PrimFunc, read: Buffer, always: bool = False) -> bool:
    """Whether two convolutions are faster as one kernel: its `joins_convolutions`; on other back ends none are.

    read    the second one's parameter that is the first one's result, which nobody else reads
    always  whether they can be one kernel
    """
    find = getattr(_package(target.backend), "joins_convolutions", None)
    return find is not None and bool(find(target, first, second, read, always))


class PeakFunctions(Protocol):
    """Functions that reach what a device can do at most: a back end's `peaks`."""

    def peak_product(self, target: Target, threads: int) -> tuple[PrimFunc, int]:
        """(a function, its floating-point operations)."""

    def peak_read(self, target: Target, threads: int, size_bytes: int) -> tuple[PrimFunc, int]:
        """(a function, the bytes that it reads): about so many."""

    def memory_levels(self, target: Target, threads: int) -> dict[str, tuple[int, int]]:
        """(bytes that a level holds, bytes to read of it) by its name, the fastest first."""


def peak_functions(target: Target) -> PeakFunctions | None:
    """What measures a device's peaks; None where its data sheet has to do."""
    found: PeakFunctions | None = getattr(_package(target.backend), "peaks", None)
    return found


def _package(backend: str) -> ModuleType:
    """A back end's templates. Raises TargetError where there are none."""
    package = f"{__package__}.{backend}"
    if importlib.util.find_spec(package) is None:
        raise TargetError(f"no templates for the back end '{backend}'", hint=f"{package} is missing")
    return importlib.import_module(package)


@lru_cache(maxsize=64)
def templates_for(func: PrimFunc, target: Target) -> tuple[tuple[Template, Anchor], ...]:
    """The templates that match a function, with what each found. The first one's default is the function's default."""
    found = ((t, t.match(func, target)) for t in all_templates(target.backend))
    matches = tuple((t, anchor) for t, anchor in found if anchor is not None)
    special = tuple(m for m in matches if m[0].name != "elementwise")
    return special or matches


def template_versions(backend: str) -> Mapping[str, str]:
    """The version of each template of a back end: a build uses no records of another one, a search takes hints.

    A template whose knobs mean something else, or whose kernels are others than before, gets the next `version`;
    without one it is 1.
    """
    return {template.name: str(getattr(template, "version", 1)) for template in all_templates(backend)}


def template_named(name: str, target: Target) -> Template:
    """Raises ValueError naming the templates there are."""
    for template in all_templates(target.backend):
        if template.name == name:
            return template
    names = [t.name for t in all_templates(target.backend)]
    raise InvalidValueError(f"no template '{name}' for target kind '{target.kind.name}'", hint=f"there are {names}")


def space_for(func: PrimFunc, target: Target) -> ConfigSpace:
    """The union of the spaces of all templates that match; its default is `default_config`."""
    spaces = [t.space(anchor, target) for t, anchor in templates_for(func, target)]
    return spaces[0] if len(spaces) == 1 else union(spaces).with_default(default_config(func, target))


def default_config(func: PrimFunc, target: Target) -> Config:
    """The configuration that a function gets without any record.

    That is the default of the first template that matches; among several that estimate their time, of the fastest.
    """
    matches = templates_for(func, target)
    template, anchor = matches[0]
    config = template.default(anchor, target)
    if not isinstance(template, Estimates) or len(matches) == 1:
        return config
    rivals = [(t, a, t.default(a, target)) for t, a in matches[1:] if isinstance(t, Estimates)]
    best = template.estimate(anchor, config, target)
    for rival, rival_anchor, rival_config in rivals:
        cycles = rival.estimate(rival_anchor, rival_config, target)
        if cycles < best:
            best, config = cycles, rival_config
    return config


def apply_config(func: PrimFunc, config: Config, target: Target) -> Applied:
    """Schedule a function by a configuration of one of its templates; a knob `threads` is not for the schedule."""
    config, _ = split_threads(config)
    return template_named(config.template, target).apply(func, config, target)
