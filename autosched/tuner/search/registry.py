"""Strategies by name; a new one is a file beside this and a line here."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from importlib.util import find_spec

from autosched.errors import InvalidTypeError, InvalidValueError, UsageError
from autosched.extensions import load_extensions
from autosched.space import ConfigSpace
from autosched.tuner.cost_model import Hint
from autosched.tuner.search.base import BaseSearch

STRATEGIES = {
    "random": "autosched.tuner.search.random:RandomSearch",
    "grid": "autosched.tuner.search.grid:GridSearch",
    "genetic": "autosched.tuner.search.genetic:GeneticSearch",
    "annealing": "autosched.tuner.search.annealing:AnnealingSearch",
    "xgboost": "autosched.tuner.search.xgboost_rank:XGBoostSearch",
    "forest": "autosched.tuner.search.forest:ForestSearch",
    "gp": "autosched.tuner.search.gaussian_process:GaussianProcessSearch",
    "optuna-tpe": "autosched.tuner.search.optuna_samplers:TpeSearch",
    "optuna-cmaes": "autosched.tuner.search.optuna_samplers:CmaEsSearch",
    "optuna-gp": "autosched.tuner.search.optuna_samplers:OptunaGpSearch",
}
# What a strategy needs beyond a plain installation: a package, which the extra of the same name brings.
_NEEDS = {"xgboost": "xgboost", **dict.fromkeys(("optuna-tpe", "optuna-cmaes", "optuna-gp"), "optuna")}
_registered: dict[str, type[BaseSearch]] = {}
AUTO = "gp"  # what replay on recorded spaces measured as the best


def register_strategy(name: str, kind: type[BaseSearch]) -> None:
    """Add a strategy of another package (see `extensions`): a subclass of BaseSearch.

    Raises InvalidValueError for a name that is taken, InvalidTypeError for what is no strategy.
    """
    if not (isinstance(kind, type) and issubclass(kind, BaseSearch)):
        raise InvalidTypeError(f"strategy '{name}': {kind!r} is no subclass of BaseSearch")
    if name == "auto" or name in STRATEGIES or name in _registered:
        raise InvalidValueError(f"there is a strategy '{name}' already")
    _registered[name] = kind


def strategies() -> tuple[str, ...]:
    """The names that `make_search` takes beside "auto"."""
    load_extensions()
    return (*STRATEGIES, *_registered)


def make_search(
    name: str, space: ConfigSpace, *, seed: int = 0, budget: int | None = None, hints: Sequence[Hint] = ()
) -> BaseSearch:
    """The strategy of that name over the space.

    budget  trials that there will be, None where nobody knows: `auto` goes through a space that they cover
    hints   what the records of other devices, workloads or versions say
    Raises  InvalidValueError for an unknown name, UsageError where the strategy needs a package that is not there.
    """
    known = _choose(space, budget) if name == "auto" else name
    if known in STRATEGIES:
        if (package := _NEEDS.get(known)) and find_spec(package) is None:
            raise UsageError(f"strategy '{known}' needs {package}", hint=f"pip install 'autosched[{package}]'")
        module, _, attribute = STRATEGIES[known].partition(":")
        kind = getattr(import_module(module), attribute)
    else:
        load_extensions()
        if known not in _registered:
            raise InvalidValueError(f"no strategy '{name}'", hint=f"there are auto, {', '.join(strategies())}")
        kind = _registered[known]
    search: BaseSearch = kind(space, seed=seed, hints=hints)
    return search


def _choose(space: ConfigSpace, budget: int | None) -> str:
    covered = budget is not None and space.count_is_exact and space.count() <= budget
    return "grid" if covered else AUTO
