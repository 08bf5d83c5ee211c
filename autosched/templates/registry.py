"""Which templates there are for a kind of target, in the order in which they are asked."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache, lru_cache

from autosched.errors import InvalidValueError
from autosched.space import Config, ConfigSpace
from autosched.space.union_space import union
from autosched.target import Target
from autosched.templates.base import Anchor, Applied, Estimates, Template
from autosched.templates.cpu.attention import AttentionRows
from autosched.templates.cpu.conv2d import Conv2dBlocked
from autosched.templates.cpu.conv_plain import PlainConv2d
from autosched.templates.cpu.depthwise import DepthwiseConv2d
from autosched.templates.cpu.elementwise import Elementwise
from autosched.templates.cpu.matmul import Matmul
from autosched.templates.cpu.rows import RowReduction
from autosched.templates.cpu.window import WindowReduction
from autosched.templates.cpu.winograd import Winograd
from autosched.templates.thread_knob import split_threads
from autosched.tir import PrimFunc


@cache
def all_templates(kind: str) -> tuple[Template, ...]:
    """The templates for a target kind ("llvm"): special ones first, the one that takes everything last."""
    if kind != "llvm":
        return ()
    return (
        Matmul(),
        Conv2dBlocked(),
        Winograd(),
        DepthwiseConv2d(),
        PlainConv2d(),
        WindowReduction(),
        AttentionRows(),
        RowReduction(),
        Elementwise(),
    )


@lru_cache(maxsize=64)
def templates_for(func: PrimFunc, target: Target) -> tuple[tuple[Template, Anchor], ...]:
    """The templates that match a function, with what each found. The first one's default is the function's default."""
    found = ((t, t.match(func, target)) for t in all_templates(target.kind.name))
    matches = tuple((t, anchor) for t, anchor in found if anchor is not None)
    special = tuple(m for m in matches if m[0].name != "elementwise")
    return special or matches


def template_versions(kind: str) -> Mapping[str, str]:
    """The version of each template for a target kind: a build uses no records of another one, a search takes hints.

    A template whose knobs mean something else, or whose kernels are others than before, gets the next `version`;
    without one it is 1.
    """
    return {template.name: str(getattr(template, "version", 1)) for template in all_templates(kind)}


def template_named(name: str, target: Target) -> Template:
    """Raises ValueError naming the templates there are."""
    for template in all_templates(target.kind.name):
        if template.name == name:
            return template
    names = [t.name for t in all_templates(target.kind.name)]
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
