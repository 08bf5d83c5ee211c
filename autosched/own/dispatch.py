"""The way from a call to the configuration that it runs with: a table by dtypes, shapes or buckets of values.

The code of the quick way is written for the kinds of the arguments of the first call: an attribute or two per array,
the class of each scalar, compared with those of the latest kind of call that the slow way took, else one look into a
dict. What does not fit it takes the slow way, which finds the same. Where no value decides, machine code goes before it
(`native_call`).
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from inspect import Parameter
from typing import Any, TypeAlias

import numpy as np

from autosched.own.native_call import native_call
from autosched.own.signature import Knobs, Signature
from autosched.own.workload import bucket_of


class _Unset:
    """Stands for a knob that the caller has not given."""

    def __repr__(self) -> str:
        return "tuned"


UNSET: Any = _Unset()
Slow: TypeAlias = Callable[[tuple[Any, ...], Knobs], object]


@dataclass(frozen=True, slots=True)
class QuickCall:
    """The quick way of one function.

    method     takes a call as the caller gives it
    token      gives the table's key for arguments by position
    put_first  makes a compiled function the first to be tried, with arguments by position that it is for; None: none is
    """

    method: Callable[..., object]
    token: Callable[..., object]
    put_first: Callable[..., None]


def quick_call(
    signature: Signature,
    values: Sequence[object],
    key: Sequence[str] | None,
    exact: frozenset[str],
    table: dict[Hashable, Callable[..., object]],
    blocks: ContextVar[tuple[Any, ...]],
    slow: Slow,
) -> QuickCall:
    """The quick way of a function.

    values  the arguments of the first call, by position
    exact   facts of arguments that the constraints read: "n", "x_size", …
    table   from keys to the compiled functions; filled by `slow`
    blocks  not empty inside a `with` block that says which configurations are used: then the table does not hold
    slow    takes what is not in the table: the arguments by position, and the knobs as they were given
    """
    fixed = [name for name in signature.arguments if name != signature.rest]
    per_name = [_tokens(name, value, key, exact) for name, value in zip(fixed, values, strict=False)]
    tokens = [token for part in per_name for token in part]
    tokens += [f"_form({signature.rest})"] if signature.rest else []
    token = "".join(f"{token}, " for token in tokens)
    positional = "".join(f"{name}, " for name in fixed) + (f"*{signature.rest}, " if signature.rest else "")
    given = " and ".join(f"{name} is _unset" for name in signature.knobs) or "True"
    knobs = ", ".join(f"{name!r}: {name}" for name in signature.knobs)
    names = {"_table": table, "_slow": slow, "_unset": UNSET, "_around": blocks.get, "_form": form}
    firsts = [f"_token_{i}" for i in range(len(tokens))]
    differs = "".join(
        f" or {token} {'is not' if token.endswith(('.dtype', '.__class__')) else '!='} {first}"
        for token, first in zip(tokens, firsts, strict=True)
    )
    scope: dict[str, Any] = {**names, **{f"_of_{name}": value for name, value in signature.defaults.items()}}
    scope["_bucket"], scope["_first"] = bucket_of, (nothing := (None,) * (1 + len(tokens)))
    text = f"""
def quick({_parameters(signature)}):
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
    quick, scalars = scope["quick"], [i for i, part in enumerate(per_name) if part[0].endswith(".__class__")]
    quick.__name__ = quick.__qualname__ = name = signature.where.rpartition(":")[2]  # what a TypeError calls it
    has_shape = [part[-1].endswith(".shape") for part in per_name]
    is_plain = not signature.rest and all(map(_is_plain, per_name))
    native = native_call(name, quick, has_shape, blocks) if is_plain else None

    def token_of(*values: object) -> object:
        """Raises TypeError for an array or a tuple where the first call had none: its class does not tell enough."""
        if any(isinstance(values[i], np.ndarray | tuple) for i in scalars):
            raise TypeError("not of the first call's kind")
        return scope["token"](*values)

    def put_first(call: Callable[..., object] | None, *values: object) -> None:
        scope["_first"] = nothing if call is None else (call, *scope["token"](*values))
        if native is not None:
            native.put_first(call, values) if call is not None else native.forget()

    return QuickCall(staticmethod(quick) if native is None else native.method, token_of, put_first)


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


def _is_plain(tokens: Sequence[str]) -> bool:
    """Whether an argument's class, or an array's dtype and extents, are all that tells calls apart."""
    return [token.partition(".")[2] for token in tokens] in (["__class__"], ["dtype", "shape"], ["dtype", "ndim"])


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
