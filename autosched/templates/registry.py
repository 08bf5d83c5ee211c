"""Which templates there are for a kind of target, in the order in which they are asked."""

from __future__ import annotations

from functools import cache

from autosched.errors import InvalidValueError
from autosched.space import Config, ConfigSpace
from autosched.space.union import union
from autosched.target import Target
from autosched.templates.base import Anchor, Applied, Template
from autosched.templates.cpu.conv2d import Conv2dBlocked
from autosched.templates.cpu.elementwise import Elementwise
from autosched.templates.cpu.matmul import Matmul
from autosched.templates.cpu.rows import RowReduction
from autosched.templates.cpu.window import WindowReduction
from autosched.tir import PrimFunc


@cache
def all_templates(kind: str) -> tuple[Template, ...]:
    """The templates for a target kind ("llvm"): special ones first, the one that takes everything last."""
    if kind != "llvm":
        return ()
    return (Matmul(), Conv2dBlocked(), WindowReduction(), RowReduction(), Elementwise())


def templates_for(func: PrimFunc, target: Target) -> tuple[tuple[Template, Anchor], ...]:
    """The templates that match a function, with what each found. The first one's default is the function's default."""
    found = ((t, t.match(func, target)) for t in all_templates(target.kind.name))
    matches = tuple((t, anchor) for t, anchor in found if anchor is not None)
    special = tuple(m for m in matches if m[0].name != "elementwise")
    return special or matches


def template_named(name: str, target: Target) -> Template:
    """Raises ValueError naming the templates there are."""
    for template in all_templates(target.kind.name):
        if template.name == name:
            return template
    names = [t.name for t in all_templates(target.kind.name)]
    raise InvalidValueError(f"no template '{name}' for target kind '{target.kind.name}'", hint=f"there are {names}")


def space_for(func: PrimFunc, target: Target) -> ConfigSpace:
    """The union of the spaces of all templates that match; its default is the first one's."""
    spaces = [t.space(anchor, target) for t, anchor in templates_for(func, target)]
    return spaces[0] if len(spaces) == 1 else union(spaces)


def default_config(func: PrimFunc, target: Target) -> Config:
    """The configuration that a function gets without any record."""
    template, anchor = templates_for(func, target)[0]
    return template.default(anchor, target)


def apply_config(func: PrimFunc, config: Config, target: Target) -> Applied:
    """Schedule a function by a configuration of one of its templates."""
    return template_named(config.template, target).apply(func, config, target)
