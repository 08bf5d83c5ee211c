# Made by `python -m tests.stubs` from the file beside it and autosched/public_names.py.
from autosched.relax.backend.pattern_registry import get_pattern as get_pattern
from autosched.relax.backend.pattern_registry import get_patterns_with_prefix as get_patterns_with_prefix
from autosched.relax.backend.pattern_registry import register_patterns as register_patterns
