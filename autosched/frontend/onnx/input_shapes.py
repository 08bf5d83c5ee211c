"""What an ONNX model says of its inputs' shapes, with what the caller gives: sizes, and names that inputs share."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from autosched.errors import ImportModelError
from autosched.frontend.onnx.contents import known_size
from autosched.frontend.onnx.node import OpenShapesError, RunTimeError

if TYPE_CHECKING:
    import onnx


def shared_sizes(
    declared: Mapping[str, onnx.ValueInfoProto], given: Mapping[str, tuple[int, ...]]
) -> dict[str, tuple[int, ...]]:
    """Shapes by input: those given, and of inputs whose open dimensions all have names that these give sizes.

    Raises ImportModelError where two inputs give one name two sizes.
    """
    named: dict[str, tuple[int, str]] = {}
    for name, shape in given.items():
        for dim, size in zip(declared[name].type.tensor_type.shape.dim, shape):
            if dim.dim_param and isinstance(size, int):
                known, first = named.setdefault(dim.dim_param, (size, name))
                if known != size:
                    text = f"inputs '{first}' and '{name}' share the dimension '{dim.dim_param}'"
                    raise ImportModelError(f"{text}, which is {known} in one and {size} in the other")
    result = dict(given)
    for name, value in declared.items():
        dims = value.type.tensor_type.shape.dim
        if name not in given and any(d.dim_param in named for d in dims):
            own = ((known_size(d), named.get(d.dim_param, (None,))[0]) for d in dims)
            sizes = [common if size is None else size for size, common in own]
            if all(s is not None for s in sizes):
                result[name] = tuple(s for s in sizes if s is not None)
    return result


def input_dims(value: onnx.ValueInfoProto, given: tuple[int, ...] | None) -> tuple[int | None, ...]:
    """The dimensions of an input, None where nobody says; `given` fills what the model leaves open."""
    kind = value.type.tensor_type
    if not value.type.HasField("tensor_type"):
        raise RunTimeError(f"input '{value.name}' is no tensor")
    if not kind.HasField("shape"):
        return given if given is not None else (None,)
    own = [known_size(d) for d in kind.shape.dim]
    if given is None:
        return tuple(own)
    if len(given) != len(own) or any(d is not None and d != g for d, g in zip(own, given, strict=True)):
        raise ImportModelError(
            f"input '{value.name}' has shape {shape_text(value)} in the model, and {times(given)} does not fit"
        )
    return given


def shape_text(value: onnx.ValueInfoProto) -> str:
    """The shape as the model has it: "[batch, 3, ?]", its own names where it has them."""
    if not value.type.tensor_type.HasField("shape"):
        return "[…]"
    return f"[{', '.join('?' if d is None else str(d) for d in _declared(value))}]"


def _declared(value: onnx.ValueInfoProto) -> tuple[int | str | None, ...]:
    """Its dimensions: sizes, names, None for any."""
    dims = value.type.tensor_type.shape.dim
    known = map(known_size, dims)
    return tuple(d.dim_param or size for d, size in zip(dims, known, strict=True))


def times(shape: Sequence[int | None]) -> str:
    return "x".join(map(str, shape)) or "a scalar"


def quoted(names: Iterable[str]) -> str:
    return ", ".join(f"'{name}'" for name in names)


def open_shapes(
    declared: Mapping[str, onnx.ValueInfoProto], unclear: Sequence[tuple[str, Sequence[int | None]]]
) -> OpenShapesError:
    names = ", ".join(f"'{n}' {shape_text(declared[n])}" for n, _ in unclear)
    example = ",".join(f"{n}:{'x'.join(str(d if isinstance(d, int) else 1) for d in dims)}" for n, dims in unclear)
    error = OpenShapesError(
        f"inputs with dimensions of unknown size: {names}", hint=f'give them, such as --shapes "{example}"'
    )
    error.shapes = {
        name: tuple(named if size is None else size for size, named in zip(dims, _declared(declared[name])))
        for name, dims in unclear
    }
    return error
