"""Operators of ONNX in NumPy, for nodes that libraries compute: those that models have."""

from __future__ import annotations

import math
from itertools import product

import numpy as np

from autosched.errors import WrongInputError
from autosched.frontend.onnx.contents import array_of
from autosched.frontend.onnx.functions import OWN_DOMAIN
from autosched.frontend.onnx.library import LibraryCall, library

Array = np.ndarray


@library("NonZero")
def non_zero(call: LibraryCall, x: Array) -> Array:
    """[rank, count]: the positions of what is not zero; a scalar has rank 0."""
    return np.stack(np.nonzero(x)).astype(np.int64) if x.ndim else np.zeros((0, int(bool(x))), np.int64)


@library("Compress")
def compress(call: LibraryCall, x: Array, condition: Array) -> Array:
    """The elements, or slices along an axis, where a condition holds."""
    axis = call.attributes.get("axis")
    return np.compress(condition, x, axis=axis)


@library("Shape")
def shape(call: LibraryCall, x: Array) -> Array:
    """A part of the shape."""
    start, end = call.attributes.get("start", 0), call.attributes.get("end", x.ndim)
    return np.asarray(x.shape[slice(start, end)], np.int64)


@library("Size")
def size(call: LibraryCall, x: Array) -> Array:
    """The number of elements."""
    return np.asarray(x.size, np.int64)


@library("Identity")
def identity(call: LibraryCall, x: object) -> tuple[object]:
    """The value itself, a sequence or nothing too."""
    return (x,)


@library("ai.onnx.ml.LabelEncoder")
def label_encoder(call: LibraryCall, x: Array) -> Array:
    """Each element's value, or the default; NaN is a key like others."""
    keys, values = _column(call, "keys"), _column(call, "values")
    names = {"f": ("default_float", -0.0), "i": ("default_int64", -1), "O": ("default_string", "_Unused")}
    tensor = call.attributes.get("default_tensor")
    name, usual = names.get(values.dtype.kind, ("", 0))
    default = tensor_array(tensor).reshape(-1)[0] if tensor is not None else call.attributes.get(name, usual)
    result = np.full(x.size, default, values.dtype)
    table = {_key(k): v for k, v in zip(keys.tolist(), values.tolist(), strict=True)}
    for i, element in enumerate(x.reshape(-1).tolist()):
        if (key := _key(element)) in table:
            result[i] = table[key]
    return result.reshape(x.shape)


def _key(value: object) -> object:
    return "NaN of numbers" if isinstance(value, float) and np.isnan(value) else value


def _column(call: LibraryCall, part: str) -> Array:
    """Keys or values, whatever their type."""
    if (tensor := call.attributes.get(f"{part}_tensor")) is not None:
        found = tensor_array(tensor)
        return found.astype(object) if found.dtype.kind in "USO" else found
    for name, dtype in (("int64s", np.int64), ("floats", np.float32), ("strings", object)):
        if given := call.attributes.get(f"{part}_{name}"):
            return np.array([_text(v) for v in given], dtype)
    raise WrongInputError(f"it has no {part}")


def tensor_array(tensor: object) -> Array:
    """A tensor attribute as an array."""
    return array_of(tensor, "a tensor of a node")


def _text(value: object) -> object:
    return value.decode() if isinstance(value, bytes) else value


@library("ai.onnx.ml.OneHotEncoder")
def one_hot_encoder(call: LibraryCall, x: Array) -> Array:
    """A one where the element is the category."""
    categories = call.attributes.get("cats_int64s") or [_text(c) for c in call.attributes.get("cats_strings", ())]
    result = np.stack([x == c for c in categories], axis=-1)
    if not call.attributes.get("zeros", 1) and not result.any(axis=-1).all():
        raise WrongInputError("an element is of no category", where=f"node '{call.name}'")
    return result.astype(np.float32)


@library("ai.onnx.ml.CategoryMapper")
def category_mapper(call: LibraryCall, x: Array) -> Array:
    """Integers for texts, or texts for integers."""
    texts, numbers = [_text(t) for t in call.attributes["cats_strings"]], call.attributes["cats_int64s"]
    if x.dtype == object:
        table: dict[object, object] = dict(zip(texts, numbers, strict=True))
        default = call.attributes.get("default_int64", -1)
    else:
        table = dict(zip(numbers, texts, strict=True))
        default = call.attributes.get("default_string", "_Unused")
    found = [table.get(v, default) for v in x.reshape(-1).tolist()]
    return np.array(found, np.int64 if x.dtype == object else object).reshape(x.shape)


@library("ai.onnx.ml.ZipMap")
def zip_map(call: LibraryCall, x: Array) -> object:
    """A dictionary from labels to scores for each row."""
    labels = call.attributes.get("classlabels_int64s") or [_text(t) for t in call.attributes["classlabels_strings"]]
    rows = x.reshape(1, -1) if x.ndim == 1 else x
    if rows.shape[1] != len(labels):
        raise WrongInputError(f"{rows.shape[1]} scores for {len(labels)} labels", where=f"node '{call.name}'")
    return ([dict(zip(labels, row.tolist(), strict=True)) for row in rows],)


@library("ai.onnx.ml.SVMClassifier")
def svm_classifier(call: LibraryCall, x: Array) -> tuple[Array, Array]:
    """The label of each row, by votes of pairs of classes, and its scores, or with Platt's probabilities those."""
    attrs, x = call.attributes, x.astype(np.float64)
    texts = [_text(t) for t in attrs.get("classlabels_strings", ())]
    labels = np.array(texts, object) if texts else np.asarray(attrs.get("classlabels_ints", ()), np.int64)
    rho, coefficients = np.asarray(attrs["rho"]), np.asarray(attrs["coefficients"])
    how, sizes = attrs.get("post_transform", "NONE"), attrs.get("vectors_per_class", ())
    if how not in ("NONE", "LOGISTIC", "SOFTMAX"):
        raise WrongInputError(f"post_transform '{how}'", where=f"node '{call.name}'")
    if not len(sizes):  # linear: one row of coefficients for each class
        scores = x @ coefficients.reshape(len(labels), -1).T + rho[0]
        return _chosen(labels, scores.argmax(axis=1)), _after(scores, how)
    n, starts = len(sizes), np.cumsum([0, *sizes])
    values = _svm_kernel(call, x, np.asarray(attrs["support_vectors"]).reshape(starts[-1], -1))
    weights = coefficients.reshape(-1, starts[-1])
    pairs = [(i, j) for i in range(n) for j in range(i + 1, n)]
    scores, votes = np.empty((len(x), len(pairs))), np.zeros((len(x), n), np.int64)
    for at, (i, j) in enumerate(pairs):
        own, other = slice(starts[i], starts[i + 1]), slice(starts[j], starts[j + 1])
        scores[:, at] = values[:, own] @ weights[j - 1, own] + values[:, other] @ weights[i, other] + rho[at]
        votes[:, i] += scores[:, at] > 0
        votes[:, j] += scores[:, at] <= 0
    if attrs.get("prob_a"):
        a, b = np.asarray(attrs["prob_a"]), np.asarray(attrs["prob_b"])
        shares = _coupled(np.clip(1 / (1 + np.exp(scores * a + b)), 1e-7, 1 - 1e-7), pairs, n)
        return _chosen(labels, votes.argmax(axis=1)), _after(shares, how)
    if n == 2:
        both = np.hstack([-scores, scores])
        return _chosen(labels, votes.argmax(axis=1)), _after(both, how)
    return _chosen(labels, votes.argmax(axis=1)), _after(scores, how)


def _chosen(labels: Array, at: Array) -> Array:
    return labels[at] if len(labels) else at.astype(np.int64)


def _after(scores: Array, how: str) -> Array:
    if how == "LOGISTIC":
        scores = 1 / (1 + np.exp(-scores))
    elif how == "SOFTMAX":
        scores = np.exp(scores - scores.max(axis=1, keepdims=True))
        scores /= scores.sum(axis=1, keepdims=True)
    return scores.astype(np.float32)


def _svm_kernel(call: LibraryCall, x: Array, vectors: Array) -> Array:
    """[rows, vectors]"""
    kind = call.attributes.get("kernel_type", "LINEAR")
    gamma, coef0, degree = (*call.attributes.get("kernel_params", ()), 0.0, 0.0, 0.0)[:3]
    products = x @ vectors.T
    if kind == "RBF":
        distance = np.stack([np.square(x - v).sum(axis=1) for v in vectors], axis=1)
        return np.asarray(np.exp(-gamma * distance))
    if kind == "SIGMOID":
        return np.asarray(np.tanh(gamma * products + coef0))
    return np.asarray((gamma * products + coef0) ** degree if kind == "POLY" else products)


def _coupled(pairwise: Array, pairs: list[tuple[int, int]], n: int) -> Array:
    """Class probabilities from those of pairs. Source: Wu, Lin, Weng 2004, the second approach, as in libsvm."""
    rows = len(pairwise)
    r = np.zeros((rows, n, n))
    for at, (i, j) in enumerate(pairs):
        r[:, i, j], r[:, j, i] = pairwise[:, at], 1 - pairwise[:, at]
    q = -r * r.transpose(0, 2, 1)
    for t in range(n):
        q[:, t, t] = (r[:, :, t] ** 2).sum(axis=1)
    p = np.full((rows, n), 1 / n)
    for _ in range(max(100, n)):
        qp = np.einsum("ntj,nj->nt", q, p)
        pqp = (p * qp).sum(axis=1)
        going = np.abs(qp - pqp[:, None]).max(axis=1) >= 0.005 / n
        if not going.any():
            break
        for t in range(n):
            step = np.where(going, (pqp - qp[:, t]) / q[:, t, t], 0)
            p[:, t] += step
            pqp = (pqp + step * (step * q[:, t, t] + 2 * qp[:, t])) / (1 + step) ** 2
            qp = (qp + step[:, None] * q[:, t]) / (1 + step)[:, None]
            p /= (1 + step)[:, None]
    return p


@library(f"{OWN_DOMAIN}.FirstRows")
def first_rows(call: LibraryCall, rows: Array, count: Array) -> Array:
    """As many rows as a kernel has counted."""
    return rows[: int(count[0])]


@library("RoiAlign")
def roi_align(call: LibraryCall, x: Array, boxes: Array, images: Array) -> Array:
    """[R, C, high, wide]: parts of images sampled to one size; how many samples may follow from a box's size."""
    given, real = call.attributes, "float64" if x.dtype == np.float64 else "float32"
    high, wide = given.get("output_height", 1), given.get("output_width", 1)
    default = "half_pixel" if call.opset >= 16 else "output_half_pixel"
    from_corners = given.get("coordinate_transformation_mode", default) == "half_pixel"
    corners = boxes.astype(real) * float(given.get("spatial_scale", 1.0)) - (0.5 if from_corners else 0.0)
    _check_images(call, images, len(x))
    result = np.zeros((len(boxes), x.shape[1], high, wide), x.dtype)
    for (x1, y1, x2, y2), image, part in zip(corners, images, result, strict=True):
        extents = (y2 - y1, x2 - x1) if from_corners else (max(y2 - y1, 1.0), max(x2 - x1, 1.0))
        asked = given.get("sampling_ratio", 0)
        counts = [asked or math.ceil(extent / n) for extent, n in zip(extents, (high, wide))]
        if min(counts) < 1:
            continue
        rows = _samples(y1, extents[0], high, counts[0], x.shape[2])
        columns = _samples(x1, extents[1], wide, counts[1], x.shape[3])
        found = x[image].astype(real)
        if given.get("mode", "avg") == "avg":
            (first, down), (left, across) = (_window(*axis, parts) for axis, parts in ((rows, high), (columns, wide)))
            seen = found[:, first : first + down.shape[1], left : left + across.shape[1]]
            part[...] = down @ seen @ across.T / (counts[0] * counts[1])
        else:
            terms = [
                found[:, r[:, None], c] * (a[:, None] * b)
                for r, a in zip(rows[0], rows[1])
                for c, b in zip(columns[0], columns[1])
            ]
            most = np.maximum.reduce(terms).reshape(-1, high, counts[0], wide, counts[1])
            part[...] = most.max(axis=(2, 4))
    return result


def _samples(start: float, extent: float, parts: int, count: int, size: int) -> tuple[Array, Array]:
    """The two pixels beside each sample along an axis, [2, parts * count], and their weights: 0 far outside."""
    step, (part, inside) = extent / parts, np.divmod(np.arange(parts * count), count)
    at = (start + part * step + (inside + 0.5) * step / count).astype(np.asarray(start).dtype)
    counts = (at >= -1) & (at <= size)
    at = np.clip(at, 0, size - 1)
    low = np.floor(at).astype(np.int64)
    share = at - low
    return np.stack([low, np.minimum(low + 1, size - 1)]), np.stack([1 - share, share]) * counts


def _window(places: Array, weights: Array, parts: int) -> tuple[int, Array]:
    """(the first pixel, [parts, pixels]): what each pixel that samples touch adds to each part."""
    first, count = int(places.min()), places.shape[1] // parts
    table = np.zeros((parts, int(places.max()) - first + 1), weights.dtype)
    owner = np.broadcast_to(np.arange(places.shape[1]) // count, places.shape)
    np.add.at(table, (owner, places - first), weights)
    return first, table


@library("MaxRoiPool")
def max_roi_pool(call: LibraryCall, x: Array, boxes: Array) -> Array:
    """[R, C, high, wide]: the largest pixel of each part of a box (image, x1, y1, x2, y2); 0 where it has none."""
    high, wide = call.attributes["pooled_shape"]
    images = boxes[:, 0].astype(np.int64)
    _check_images(call, images, len(x))
    corners = boxes[:, 1:] * boxes.dtype.type(call.attributes.get("spatial_scale", 1.0))
    result = np.zeros((len(boxes), x.shape[1], high, wide), x.dtype)
    for (x1, y1, x2, y2), image, part in zip(_rounded(corners), images, result, strict=True):
        rows, columns = _parts(y1, y2, high, x.shape[2]), _parts(x1, x2, wide, x.shape[3])
        for (i, (top, bottom)), (j, (left, right)) in product(enumerate(rows), enumerate(columns)):
            if top < bottom and left < right:
                part[:, i, j] = x[image, :, top:bottom, left:right].max(axis=(1, 2))
    return result


def _parts(first: int, last: int, parts: int, size: int) -> list[tuple[int, int]]:
    """The pixels [begin, end) of each part of those from `first` to `last`; neighbours may share some."""
    step = np.float32(max(last - first + 1, 1)) / np.float32(parts)
    ends = ((math.floor(i * step), math.ceil((i + 1) * step)) for i in range(parts))
    return [(min(max(first + a, 0), size), min(max(first + b, 0), size)) for a, b in ends]


@library("com.microsoft.CropAndResize")
def crop_and_resize(call: LibraryCall, x: Array, boxes: Array, images: Array, size: Array) -> Array:
    """[R, C, *size]: boxes (y1, x1, y2, x2), in shares of an image, resized with corners on corners."""
    _check_images(call, images, len(x))
    nearest = call.attributes.get("mode", "bilinear") == "nearest"
    high, wide = map(int, size)
    result = np.full((len(boxes), x.shape[1], high, wide), call.attributes.get("extrapolation_value", 0.0), x.dtype)
    for (y1, x1, y2, x2), image, part in zip(boxes, images, result, strict=True):
        (r, rows), (c, columns) = _places(y1, y2, high, x.shape[2]), _places(x1, x2, wide, x.shape[3])
        if nearest:
            values = x[image][:, _rounded(rows)[:, None], _rounded(columns)]
        else:
            left, right = np.floor(columns).astype(np.int64), np.ceil(columns).astype(np.int64)
            top, bottom = np.floor(rows).astype(np.int64), np.ceil(rows).astype(np.int64)
            across = x[image][..., left] + (x[image][..., right] - x[image][..., left]) * (columns - left)
            values = across[:, top] + (across[:, bottom] - across[:, top]) * (rows - top)[:, None]
        part[:, r[:, None], c] = values
    return result


def _places(first: np.floating, last: np.floating, count: int, size: int) -> tuple[Array, Array]:
    """(which of `count` samples from `first` to `last`, in shares of an axis, lie inside it, at which pixels)."""
    end = first.dtype.type(size - 1)
    step = (last - first) * end / first.dtype.type(max(count - 1, 1))
    start = first * end if count > 1 else (first + last) * end / 2
    at = start + np.arange(count, dtype=first.dtype) * step
    inside = np.flatnonzero((at >= 0) & (at <= end))
    return inside, at[inside]


def _rounded(at: Array) -> Array:
    """Whole numbers, halves away from 0."""
    whole: Array = np.trunc(at + np.copysign(at.dtype.type(0.5), at)).astype(np.int64)
    return whole


def _check_images(call: LibraryCall, images: Array, count: int) -> None:
    for image in images[(images < 0) | (images >= count)]:
        raise WrongInputError(f"index {image} is out of range [0, {count}) of images", where=f"node '{call.name}'")


@library("com.microsoft.Inverse")
def inverse(call: LibraryCall, x: Array) -> Array:
    """The inverse of each matrix."""
    wide = x.astype(np.float32) if x.dtype == np.float16 else x
    return np.linalg.inv(wide).astype(x.dtype)


@library("com.microsoft.Unique")
def unique(call: LibraryCall, x: Array) -> tuple[Array, Array, Array]:
    """(the different values in the order in which they come, which of them each element is, how many are each)."""
    _, first, where, counts = np.unique(x, return_index=True, return_inverse=True, return_counts=True)
    order = np.argsort(first)
    rank = np.empty_like(order)
    rank[order] = np.arange(order.size)
    return x[first[order]], rank[where.reshape(-1)].astype(np.int64), counts[order].astype(np.int64)


@library("com.microsoft.NGramRepeatBlock")
def block_repeated(call: LibraryCall, tokens: Array, scores: Array) -> Array:
    """Scores [B, V] with -inf for each token that would end a run of `ngram_size` tokens that was there before."""
    size, found = call.attributes["ngram_size"], scores.copy()
    for row, own in zip(found, tokens):
        end = own[len(own) - size + 1 :]
        for start in range(len(own) - size + 1):
            if np.array_equal(own[start : start + size - 1], end):
                token = int(own[start + size - 1])
                if not 0 <= token < len(row):
                    raise WrongInputError(f"NGramRepeatBlock: token {token} of {len(row)}")
                row[token] = -np.inf
    return found


@library("com.microsoft.RemovePadding")
def without_padding(call: LibraryCall, x: Array, counts: Array) -> tuple[Array, Array, Array, Array]:
    """(tokens [T, W] of [B, S, W], offsets [B, S] of these and then of padding, ends [B + 1], the largest count)."""
    batch, length, width = x.shape
    if counts.shape != (batch,) or (counts < 0).any() or (counts > length).any():
        raise WrongInputError(f"{counts.tolist()} tokens of {batch} sequences of {length}", where=f"node '{call.name}'")
    inside = (np.arange(length) < counts[:, None]).reshape(-1)
    offsets = np.concatenate([np.flatnonzero(inside), np.flatnonzero(~inside)]).astype(np.int32)
    ends = np.concatenate([[0], np.cumsum(counts)]).astype(np.int32)
    largest = counts.max(keepdims=True).astype(np.int32)
    return x.reshape(-1, width)[inside], offsets.reshape(batch, length), ends, largest


@library("com.microsoft.DynamicTimeWarping")
def warped(call: LibraryCall, x: Array) -> Array:
    """[2, steps]: rows and columns of the cheapest way through a matrix from its first element to its last."""
    costs = x.reshape(x.shape[-2:])
    rows, columns = x.shape[-2], x.shape[-1]
    total, steps = np.full((rows + 1, columns + 1), np.inf, np.float32), np.zeros(costs.shape, np.int64)
    total[0, 0] = 0
    for i in range(rows):
        for j in range(columns):
            before = (total[i, j], total[i, j + 1], total[i + 1, j])
            if before[0] < before[1] and before[0] < before[2]:
                step = 0
            else:
                step = 1 if before[1] < before[0] and before[1] < before[2] else 2
            steps[i, j] = step
            total[i + 1, j + 1] = costs[i, j] + before[step]
    way: list[tuple[int, int]] = []
    i, j = rows - 1, columns - 1
    while i >= 0 and j >= 0:
        way.append((i, j))
        step = steps[i, j] if i and j else (1 if i else 2)
        i, j = i - (step != 2), j - (step != 1)
    return np.array(way[::-1], np.int32).T
