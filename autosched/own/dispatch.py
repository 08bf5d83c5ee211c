"""The way from a call to the configuration that it runs with: a table by dtypes, shapes or buckets of values.

The code of the quick way is written for the kinds of the arguments of the first call: an attribute or two per array,
the class of each scalar, compared with those of the latest kind of call that the slow way took, else one look into a
dict. What does not fit it takes the slow way, which finds the same.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from inspect import Parameter
from typing import Any, TypeAlias

import numpy as np

from autosched.own.signature import Knobs, Signature
from autosched.own.workload import bucket_of


class _Unset:
    """Stands for a knob that the caller has not given."""

    def __repr__(self) -> str:
        return "tuned"


UNSET: Any = _Unset()
Slow: TypeAlias = Callable[[tuple[Any, ...], Knobs], object]


def quick_call(
    signature: Signature,
    values: Sequence[object],
    key: Sequence[str] | None,
    exact: frozenset[str],
    table: dict[Hashable, Callable[..., object]],
    around: Callable[[], object],
    slow: Slow,
) -> tuple[Callable[..., object], Callable[..., object], Callable[..., None]]:
    """(a method with the parameters of the decorated function, what gives the table's key for arguments by position,
    what makes a compiled function, or None, the first to be tried, with arguments by position that it is for).

    values  the arguments of the first call, by position
    exact   facts of arguments that the constraints read: "n", "x_size", …
    table   from keys to the compiled functions; filled by `slow`
    around  gives something true while a `with` block says which configurations are used: then the table does not hold
    slow    takes what is not in the table: the arguments by position, and the knobs as they were given
    """
    fixed = [name for name in signature.arguments if name != signature.rest]
    tokens = [token for name, value in zip(fixed, values, strict=False) for token in _tokens(name, value, key, exact)]
    tokens += [f"_form({signature.rest})"] if signature.rest else []
    token = "".join(f"{token}, " for token in tokens)
    positional = "".join(f"{name}, " for name in fixed) + (f"*{signature.rest}, " if signature.rest else "")
    given = " and ".join(f"{name} is _unset" for name in signature.knobs) or "True"
    knobs = ", ".join(f"{name!r}: {name}" for name in signature.knobs)
    names = {"_table": table, "_slow": slow, "_unset": UNSET, "_around": around, "_form": form, "_bucket": bucket_of}
    firsts = [f"_token_{i}" for i in range(len(tokens))]
    differs = "".join(
        f" or {token} {'is not' if token.endswith(('.dtype', '.__class__')) else '!='} {first}"
        for token, first in zip(tokens, firsts, strict=True)
    )
    scope: dict[str, Any] = {**names, **{f"_of_{name}": value for name, value in signature.defaults.items()}}
    scope["_first"] = nothing = (None,) * (1 + len(tokens))
    text = f"""
def quick(_self, {_parameters(signature)}):
    try:
        found, {"".join(f"{first}, " for first in firsts)}= _first
        if not ({given}) or _around():
            found = None
        elif found is None{differs}:
            found = _table[{token or "()"}]
    except (KeyError, AttributeError, TypeError):
        found = None
    if found is None:
        return _slow(({positional}), {{{knobs}}})
    return found({positional})

def token({positional}):
    return ({token})
"""
    exec(compile(text, "<autosched dispatch>", "exec"), scope)
    quick, token_of = scope["quick"], scope["token"]
    quick.__name__ = quick.__qualname__ = signature.where.rpartition(":")[2]  # what a TypeError calls it

    def put_first(call: Callable[..., object] | None, *values: object) -> None:
        scope["_first"] = nothing if call is None else (call, *token_of(*values))

    return quick, token_of, put_first


def form(value: Any) -> Any:
    """What the table knows of an argument of any kind."""
    if isinstance(value, np.ndarray) or hasattr(type(value), "__cuda_array_interface__"):
        return value.dtype, value.shape
    if isinstance(value, tuple):
        return tuple(map(form, value))
    return value.__class__


def _tokens(name: str, value: object, key: Sequence[str] | None, exact: frozenset[str]) -> list[str]:
    """Python expressions that tell calls apart which need not have the same configuration."""
    if isinstance(value, np.ndarray) or hasattr(type(value), "__cuda_array_interface__"):
        has_shape = key is None or name in key or any(fact.startswith(f"{name}_") for fact in exact)
        return [f"{name}.dtype", f"{name}.shape" if has_shape else f"{name}.ndim"]
    if isinstance(value, tuple):
        return [f"_form({name})"]
    tokens = [f"{name}.__class__"]
    if name in exact:
        tokens.append(name)
    elif key is not None and name in key:
        if type(value) is int:  # numbers up to 0 as they are: few
            tokens.append(f"(({name} - 1).bit_length() if {name} > 0 else {name})")
        else:
            tokens.append(f"_bucket({name})")
    return tokens


def _parameters(signature: Signature) -> str:
    """The parameters of the decorated function; knobs may be left out, and defaults are read from the scope."""
    parts: list[str] = []
    kinds = [parameter.kind for parameter in signature.whole.parameters.values()]
    for i, (name, parameter) in enumerate(signature.whole.parameters.items()):
        if parameter.kind is Parameter.KEYWORD_ONLY and Parameter.VAR_POSITIONAL not in kinds and (
            i == 0 or kinds[i - 1] is not Parameter.KEYWORD_ONLY
        ):  # fmt: skip
            parts.append("*")
        if parameter.kind is Parameter.VAR_POSITIONAL:
            parts.append(f"*{name}")
        elif name in signature.knobs:
            parts.append(f"{name}=_unset")
        else:
            parts.append(f"{name}=_of_{name}" if name in signature.defaults else name)
        if parameter.kind is Parameter.POSITIONAL_ONLY and kinds[i + 1 : i + 2] != [Parameter.POSITIONAL_ONLY]:
            parts.append("/")
    return ", ".join(parts)
