"""Shapes that a model of open sizes takes, for messages that ask for some."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from autosched.errors import AutoschedError

Shapes = Mapping[str, tuple[int, ...]]
OpenShapes = Mapping[str, tuple[int | str | None, ...]]  # sizes, names of dimensions, None for any
SIZES = (1, 8, 64, 224, 512)  # tried in turn: of batches, of what is halved a few times, of images


def fitting(shapes: OpenShapes, load: Callable[[Shapes], object]) -> dict[str, tuple[int, ...]] | None:
    """The first of a few shapes with which a model can be loaded; None where there is none among them."""
    for tried in _candidates(shapes):
        try:
            load(tried)
        except AutoschedError:
            continue
        return tried
    return None


def _candidates(shapes: OpenShapes) -> Iterator[dict[str, tuple[int, ...]]]:
    """Shapes with all sizes alike, at first those with a batch of one."""
    first = {shape[0] for shape in shapes.values() if shape and isinstance(shape[0], str)}

    def is_batch(n: int, dim: str | None) -> bool:
        return dim in first if dim is not None else n == 0

    for size in SIZES:
        for batch in dict.fromkeys((1, size)):
            yield {
                name: tuple(
                    dim if isinstance(dim, int) else batch if is_batch(n, dim) else size for n, dim in enumerate(dims)
                )
                for name, dims in shapes.items()
            }
