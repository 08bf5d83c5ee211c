"""Sorts, scans and scatters as they are written: for each result a sum over its whole line, work for every pair."""

from __future__ import annotations

from autosched.target import Target
from autosched.templates.base import Anchor
from autosched.templates.cuda.scan import Scan
from autosched.templates.cuda.scatter import Scatter
from autosched.templates.cuda.sort import Sort
from autosched.tir import PrimFunc

MOST_TERMS = 128  # of lines whose pairs are worth one launch without a barrier
_TEMPLATES = (Sort(), Scan(), Scatter())


def is_over_pairs(func: PrimFunc, target: Target) -> bool:
    """Whether a function is one of them, has long lines, and another template takes it."""
    found: list[Anchor | None] = [t.match(func, target) for t in _TEMPLATES]
    return any(anchor is not None and anchor.sizes["length"] > MOST_TERMS for anchor in found)
