"""Strategies by name; a new one is a file beside this and a line here."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from autosched.errors import InvalidValueError
from autosched.space import ConfigSpace
from autosched.tuner.search.base import BaseSearch

STRATEGIES = {
    "random": "autosched.tuner.search.random:RandomSearch",
    "xgboost": "autosched.tuner.search.xgboost_rank:XGBoostSearch",
    "gp": "autosched.tuner.search.gaussian_process:GaussianProcessSearch",
}
AUTO = "gp"  # what replay on recorded spaces measured as the best


def make_search(name: str, space: ConfigSpace, *, seed: int = 0) -> BaseSearch:
    """The strategy of that name over the space. Raises InvalidValueError for an unknown name."""
    known = AUTO if name == "auto" else name
    if known not in STRATEGIES:
        raise InvalidValueError(f"no strategy '{name}'", hint=f"there are auto, {', '.join(STRATEGIES)}")
    module, _, attribute = STRATEGIES[known].partition(":")
    kind: Any = getattr(import_module(module), attribute)
    search: BaseSearch = kind(space, seed=seed)
    return search
