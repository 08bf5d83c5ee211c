"""The table of patterns by name."""

from __future__ import annotations

from collections.abc import Sequence

from autosched.relax.transform.fuse_by_pattern import FusionPattern, as_fusion_pattern

_patterns: list[FusionPattern] = []


def register_patterns(patterns: Sequence[object]) -> None:
    """Enter patterns, each (name, pattern[, named patterns[, check]]); later ones go first."""
    _patterns.extend(map(as_fusion_pattern, patterns))


def get_patterns_with_prefix(prefix: str) -> list[FusionPattern]:
    """All patterns whose name starts so, the latest first."""
    return [p for p in reversed(_patterns) if p.name.startswith(prefix)]


def get_pattern(name: str) -> FusionPattern | None:
    """The pattern of a name; None where there is none."""
    return next((p for p in reversed(_patterns) if p.name == name), None)
