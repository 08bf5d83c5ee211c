"""What `relay.build`, its executors and its VM make of their arguments: modules, targets, parameters, expressions."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import Any, TypeAlias

import numpy as np

from autosched.errors import InvalidTypeError, InvalidValueError
from autosched.ir import IRModule
from autosched.lazy_names import hook
from autosched.records import DispatchContext, FallbackContext
from autosched.relax.transform import BindParams
from autosched.relay.expr import GraphFunction, from_expr, unwrap
from autosched.runtime import NDArray
from autosched.target import Target


def as_module(mod: object) -> IRModule:
    """A module of a module, a function or an expression. Raises InvalidTypeError for anything else."""
    if isinstance(mod, IRModule):
        return mod
    if isinstance(mod, GraphFunction):
        return IRModule({"main": mod})
    raise InvalidTypeError(f"build, compile: an IRModule or a relay.Function is needed, not a {type(mod).__name__}")


def one_target(target: object, target_host: object = None) -> Target | None:
    """The target of what `relay.build` takes: one, several of which one can be built for, or None."""
    if target is None:
        return None if target_host is None else Target.current(allow_none=True)
    targets = Target.canon_multi_target_and_host(target, target_host)
    if len(targets) > 1:
        raise InvalidValueError(
            f"a model is built for one target, and {len(targets)} are given", hint="give one: target='llvm'"
        )
    return targets[0]


def tuning_context(target: object) -> AbstractContextManager[object]:
    """TopHub's records, unless the user has chosen a context: those replace them fully."""
    if not isinstance(DispatchContext.current, FallbackContext):
        return nullcontext()
    context: AbstractContextManager[object] = hook("tophub")(target or Target("llvm"))
    return context


def plain(value: object) -> np.ndarray:
    """An array of whatever stands for one."""
    return value.view() if isinstance(value, NDArray) else np.asarray(value)


def apply_params(mod: IRModule, params: Mapping[str, object] | None) -> IRModule:
    """Bind those parameters of `main` that are given; names that it does not have are ignored, as TVM does."""
    if params is not None and not isinstance(params, Mapping):
        raise InvalidTypeError(f"params is a {type(params).__name__}, expected a mapping from names to arrays")
    if not params:
        return mod
    known = {param.name for param in mod["main"].params}
    given = {name: plain(value) for name, value in params.items() if name in known}
    return BindParams("main", given)(mod) if given else mod


Evaluated: TypeAlias = Any  # a function of the arguments; of an expression without variables its value


def evaluated(
    mod: IRModule,
    expr: object,
    binds: Mapping[object, object] | None,
    make: Callable[[IRModule], Callable[..., object]],
) -> Evaluated:
    """A callable for `main`, a function, or an expression; an expression of no variables is computed at once."""
    if expr is None or (not isinstance(expr, GraphFunction) and getattr(expr, "name", None) == "main"):
        return _keywords(make(mod), mod)
    if isinstance(expr, GraphFunction):
        module = IRModule({**mod.functions, **from_expr(expr).functions}) if binds is None else from_expr(expr)
        return _keywords(make(module), module)
    module = from_expr(unwrap(expr))
    if binds:
        names = {str(getattr(key, "name", key)): value for key, value in binds.items()}
        module = apply_params(module, names)
    return _keywords(make(module), module) if module["main"].params else make(module)()


def _keywords(run: Callable[..., object], mod: IRModule) -> Callable[..., object]:
    """Let arguments be given by name too. Raises InvalidTypeError on a wrong count or name."""
    names = [param.name for param in mod["main"].params]

    def call(*args: object, **kwargs: object) -> object:
        for name in kwargs:
            if name not in names:
                raise InvalidTypeError(f"'{name}' is no parameter of main({', '.join(names)})")
        if len(args) + len(kwargs) != len(names):
            raise InvalidTypeError(f"{len(args) + len(kwargs)} arguments instead of {len(names)} for main")
        rest = iter(args)
        return run(*(kwargs[name] if name in kwargs else next(rest) for name in names))

    return call
