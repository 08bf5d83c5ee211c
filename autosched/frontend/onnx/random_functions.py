"""Random operators of ONNX in NumPy. With a seed, each call gives the same numbers; they are NumPy's own."""

from __future__ import annotations

import numpy as np

from autosched.errors import WrongInputError
from autosched.frontend.onnx.library import LibraryCall, library

Array = np.ndarray
FLOAT, INT32 = 1, 6  # of TensorProto


@library("RandomNormal", "RandomNormalLike")
def random_normal(call: LibraryCall, like: Array | None = None) -> Array:
    """Normally distributed numbers, rounded once to the wanted dtype."""
    shape, dtype = _wanted(call, like)
    wide = np.float64 if dtype == np.float64 else np.float32
    found = _generator(call).standard_normal(shape, wide)
    found *= wide(call.attributes.get("scale", 1.0))
    found += wide(call.attributes.get("mean", 0.0))
    return found.astype(dtype, copy=False)


@library("RandomUniform", "RandomUniformLike")
def random_uniform(call: LibraryCall, like: Array | None = None) -> Array:
    """Numbers from `low` to `high`, rounded once to the wanted dtype."""
    shape, dtype = _wanted(call, like)
    wide = np.float64 if dtype == np.float64 else np.float32
    low, high = (wide(call.attributes.get(name, usual)) for name, usual in (("low", 0.0), ("high", 1.0)))
    found = _generator(call).random(shape, wide)
    found *= high - low
    found += low
    return found.astype(dtype, copy=False)


@library("Bernoulli")
def bernoulli(call: LibraryCall, x: Array) -> Array:
    """A one with the probability that the input says, else zero."""
    from onnx import helper

    kind = call.attributes.get("dtype")
    dtype = x.dtype if kind is None else helper.tensor_dtype_to_np_dtype(kind)
    return (_generator(call).random(x.shape, np.float64 if x.dtype == np.float64 else np.float32) < x).astype(dtype)


@library("Multinomial")
def multinomial(call: LibraryCall, x: Array) -> Array:
    """[rows, sample_size]: classes drawn by the logarithms of their shares, which need not add up to one."""
    from onnx import helper

    dtype = helper.tensor_dtype_to_np_dtype(call.attributes.get("dtype", INT32))
    most = x.astype(np.float64).max(axis=1, keepdims=True, initial=-np.inf)
    if x.ndim != 2 or not np.isfinite(most).all():
        raise WrongInputError(f"no distribution over {x.shape[-1]} classes", where=f"node '{call.name}'")
    sums = np.cumsum(np.exp(x.astype(np.float64) - most), axis=1)
    total = sums[:, -1:]
    drawn = _generator(call).random((len(x), call.attributes.get("sample_size", 1))) * total
    drawn = np.minimum(drawn, np.nextafter(total, 0))  # below the last sum, so that a class of no share is not drawn
    found = [np.searchsorted(s, d, side="right") for s, d in zip(sums, drawn, strict=True)]
    return np.array(found, dtype).reshape(drawn.shape)


def _wanted(call: LibraryCall, like: Array | None) -> tuple[tuple[int, ...], np.dtype]:
    """(shape, dtype) of the result."""
    from onnx import helper

    kind = call.attributes.get("dtype", FLOAT if like is None else None)
    dtype = like.dtype if kind is None and like is not None else helper.tensor_dtype_to_np_dtype(kind)
    if str(dtype) not in ("bfloat16", "float16", "float32", "float64"):
        raise WrongInputError(f"random numbers of {dtype}", where=f"node '{call.name}'", hint="name a dtype of floats")
    return tuple(call.attributes["shape"]) if like is None else like.shape, dtype


def _generator(call: LibraryCall) -> np.random.Generator:
    """Seeded by the bits of the seed, which is a float32; by the system where there is none."""
    seed = call.attributes.get("seed")
    known = None if seed is None or np.isnan(seed) else int(np.float32(seed).view(np.uint32))
    return np.random.Generator(np.random.SFC64(known))
