"""Patterns by name for external libraries, as TVM's `relax.backend` keeps them."""

from autosched.relax.backend.pattern_registry import get_pattern, get_patterns_with_prefix, register_patterns

__all__ = ["get_pattern", "get_patterns_with_prefix", "register_patterns"]
