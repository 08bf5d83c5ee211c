"""Names of inputs: importers make identifiers of them, and users may go on using the model's own."""

from __future__ import annotations

import re
from collections.abc import Collection, Container, Mapping, Sequence

from autosched.errors import InvalidTypeError


def identifier(name: str) -> str:
    """A name made of letters, digits and underscores: "gpu_0/data_0" -> "gpu_0_data_0"."""
    text = re.sub(r"[^0-9a-zA-Z_]", "_", name)
    return text if text[:1].isalpha() or text[:1] == "_" else f"input_{text}"


def known_name(name: str, known: Container[str]) -> str:
    """The known name that is meant: itself, or what an importer made of it; an unknown name is returned unchanged."""
    return name if name in known or identifier(name) not in known else identifier(name)


def given_by_name(
    args: Sequence[object], named: Mapping[str, object], wanted: Collection[str], hint: str
) -> dict[str, object]:
    """The arguments of a model's call by the names of its inputs, `wanted`; some may be left out.

    Raises InvalidTypeError (TypeError) for too many, an unknown or a doubled one; `hint` says which inputs there are.
    """
    if len(args) > len(wanted):
        raise InvalidTypeError(f"{len(args)} inputs instead of {len(wanted)}", hint=hint)
    given = dict(zip(wanted, args))
    for own_name, value in named.items():
        name = known_name(own_name, wanted)
        if name not in wanted or name in given:
            raise InvalidTypeError(f"input '{name}' is {'given twice' if name in given else 'unknown'}", hint=hint)
        given[name] = value
    return given
