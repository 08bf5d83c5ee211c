"""A function's parameters, divided into arguments and knobs."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from inspect import Parameter
from typing import Any, TypeAlias

from autosched.errors import UsageError

Knobs: TypeAlias = dict[str, Any]  # knobs of a call by name, and their values


@dataclass(frozen=True)
class Signature:
    """What a caller gives (`arguments`) and what a configuration gives (`knobs`), in the function's order.

    where  names the function, for messages
    """

    whole: inspect.Signature
    knobs: tuple[str, ...]
    where: str

    @staticmethod
    def of(
        func: Callable[..., object], knobs: Iterable[str], where: str, whole: inspect.Signature | None = None
    ) -> Signature:
        """Divide a function's parameters; names that are no parameters are left out.

        whole   the parameters, where callers give others than those that are written
        Raises UsageError for knobs before arguments that have to be given, for `**keywords`, and for arguments by
        keyword only.
        """
        whole = whole or inspect.signature(func)
        wanted = set(knobs)
        found = Signature(whole, tuple(name for name in whole.parameters if name in wanted), where)
        seen = ""
        for name, parameter in whole.parameters.items():
            if parameter.kind is Parameter.VAR_KEYWORD:
                raise UsageError(f"'**{name}' cannot be compiled", where=where)
            if name in wanted:
                if parameter.kind in (Parameter.VAR_POSITIONAL, Parameter.POSITIONAL_ONLY):
                    raise UsageError(f"knob '{name}' cannot be given by its name", where=where)
                seen = seen or name
            elif parameter.kind is Parameter.KEYWORD_ONLY:
                raise UsageError(f"argument '{name}' is by keyword only, which Numba does not take", where=where)
            elif seen and parameter.default is Parameter.empty and parameter.kind is not Parameter.VAR_POSITIONAL:
                raise UsageError(f"knob '{seen}' stands before argument '{name}'", where=where, hint="put knobs last")
        return found

    @cached_property
    def arguments(self) -> tuple[str, ...]:
        """The names of what the caller gives."""
        return tuple(name for name in self.whole.parameters if name not in self.knobs)

    @cached_property
    def rest(self) -> str:
        """The name of `*args`; "" where there is none."""
        kinds = {p.kind: name for name, p in self.whole.parameters.items()}
        return kinds.get(Parameter.VAR_POSITIONAL, "")

    @cached_property
    def defaults(self) -> Mapping[str, object]:
        """The defaults of the arguments that have one."""
        params = self.whole.parameters
        return {name: params[name].default for name in self.arguments if params[name].default is not Parameter.empty}

    @cached_property
    def knob_defaults(self) -> Mapping[str, object]:
        """The defaults of the knobs that have one."""
        params = self.whole.parameters
        return {name: params[name].default for name in self.knobs if params[name].default is not Parameter.empty}

    @cached_property
    def _open(self) -> inspect.Signature:
        """The signature with every knob optional."""
        changed = [p.replace(default=None) if name in self.knobs else p for name, p in self.whole.parameters.items()]
        return self.whole.replace(parameters=changed)

    def bind(self, args: tuple[object, ...], kwargs: Mapping[str, object]) -> tuple[tuple[object, ...], Knobs]:
        """(the arguments by position, defaults included; the knobs that were given). Raises TypeError."""
        bound = self._open.bind(*args, **kwargs)
        knobs = {name: bound.arguments[name] for name in self.knobs if name in bound.arguments}
        bound.apply_defaults()
        values: list[object] = []
        for name in self.arguments:
            value = bound.arguments[name]
            values += value if name == self.rest else [value]
        return tuple(values), knobs

    def named(self, values: tuple[object, ...]) -> dict[str, Any]:
        """Arguments by position as arguments by name; the parts of `*args` as args_0, args_1, …"""
        names = [name for name in self.arguments if name != self.rest]
        more = [f"{self.rest}_{i}" for i in range(len(values) - len(names))]
        return dict(zip([*names, *more], values, strict=True))


def check_key(key: Sequence[str] | None, signature: Signature, where: str) -> None:
    """Raises UsageError for a name in a key that is no argument."""
    if missing := [n for n in key or () if n not in signature.arguments or n == signature.rest]:
        raise UsageError(f"'{missing[0]}' in key is no argument", where=where, hint=", ".join(signature.arguments))
