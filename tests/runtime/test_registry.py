"""Global functions by name."""

from __future__ import annotations

import pytest

from autosched.runtime import registry


def test_functions_are_registered_and_found() -> None:
    @registry.register_func("tests.add_one")
    def add_one(x: int) -> int:
        return x + 1

    try:
        found = registry.get_global_func("tests.add_one")
        assert found is add_one and "tests.add_one" in registry.list_global_func_names()
        with pytest.raises(ValueError, match="already registered"):
            registry.register_func("tests.add_one", add_one)
        assert registry.register_func("tests.add_one", add_one, override=True) is add_one
    finally:
        registry.remove_global_func("tests.add_one")
    assert registry.get_global_func("tests.add_one", allow_missing=True) is None
    with pytest.raises(ValueError, match="Cannot find global function"):
        registry.get_global_func("tests.add_one")
    with pytest.raises(TypeError, match="a text"):
        registry.register_func(3)
