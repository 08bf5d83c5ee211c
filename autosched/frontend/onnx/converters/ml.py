"""Operators of `ai.onnx.ml` but for trees: linear models, support vectors, and what prepares features."""

from __future__ import annotations

import numpy as np

from autosched.frontend.onnx.contents import array_of
from autosched.frontend.onnx.converters.classify import (
    binary_scores,
    columns_of,
    label_of,
    labels_of_classes,
    transformed,
)
from autosched.frontend.onnx.node import Node, constant, info_of
from autosched.frontend.onnx.registry import converter
from autosched.relax import op
from autosched.relax.expr import Constant, Expr, ShapeExpr, Tuple

Array = np.ndarray
REAL = ("float32", "float64")


def _real(node: Node, index: int = 0) -> Expr:
    """An input as numbers with a point: integers become float32."""
    x = node.input(index)
    return x if info_of(x).dtype in REAL else node.emit(op.astype(x, "float32"))


def _rows(node: Node) -> Expr:
    """The first input as [rows, features] of real numbers."""
    x = _real(node)
    dims = info_of(x).dims
    if len(dims) not in (1, 2):
        raise node.fail(f"features of shape {list(dims)}")
    return x if len(dims) == 2 else node.emit(op.expand_dims(x, axis=0))


def _linear(node: Node, x: Expr, coefficients: object, intercepts: object, outputs: int) -> Expr:
    """[rows, outputs]"""
    dtype, columns = info_of(x).dtype, columns_of(x)
    weights = np.asarray(coefficients, dtype)
    if weights.size != outputs * columns or not weights.size:
        raise node.fail(f"{weights.size} coefficients for {columns} features and {outputs} results")
    scores = node.emit(op.matmul(x, Constant(np.ascontiguousarray(weights.reshape(outputs, columns).T))))
    bias = np.asarray(intercepts or (), dtype)
    if not bias.size:
        return scores
    if bias.size != outputs:
        raise node.fail(f"{bias.size} intercepts for {outputs} results")
    return node.emit(op.add(scores, Constant(bias.reshape(1, -1))))


@converter("ai.onnx.ml.LinearRegressor")
def linear_regressor(node: Node) -> Expr:
    targets = node.attr("targets", 1)
    scores = _linear(node, _rows(node), node.attr("coefficients", ()), node.attr("intercepts"), targets)
    return transformed(node, scores)


@converter("ai.onnx.ml.LinearClassifier")
def linear_classifier(node: Node) -> tuple[Expr, Expr]:
    """The label and the scores; one score of two classes stands for the second, its opposite for the first."""
    labels, x = labels_of_classes(node), _rows(node)
    coefficients = node.attr("coefficients", ())
    columns = columns_of(x)
    outputs = len(coefficients) // max(columns, 1)
    scores = _linear(node, x, coefficients, node.attr("intercepts"), outputs)
    if outputs == 1 and len(labels) == 2:
        return binary_scores(node, scores, labels, is_share=False)
    if outputs != len(labels):
        raise node.fail(f"{outputs} scores of {len(labels)} classes")
    return label_of(node, scores, labels), transformed(node, scores)


def _kernel(node: Node, x: Expr, vectors: Array) -> Expr:
    """[rows, vectors]: the kernel of each row with each support vector."""
    kind, dtype = node.attr("kernel_type", "LINEAR"), info_of(x).dtype
    gamma, coef0, degree = (*node.attr("kernel_params", ()), 0.0, 0.0, 0.0)[:3]
    columns = Constant(np.ascontiguousarray(vectors.T.astype(dtype)))
    if kind == "RBF":
        distance = node.emit(op.squared_distance(x, columns))
        return node.emit(op.exp(op.multiply(distance, constant(-gamma, dtype))))
    products = node.emit(op.matmul(x, columns))
    if kind == "LINEAR":
        return products
    scaled = node.emit(op.add(op.multiply(products, constant(gamma, dtype)), constant(coef0, dtype)))
    if kind == "SIGMOID":
        return node.emit(op.tanh(scaled))
    if kind == "POLY" and degree == int(degree) and 1 <= degree <= 16:
        result = scaled
        for _ in range(int(degree) - 1):
            result = node.emit(op.multiply(result, scaled))
        return result
    raise node.no_kernel(f"kernel '{kind}' of degree {degree}")


@converter("ai.onnx.ml.SVMRegressor")
def svm_regressor(node: Node) -> Expr:
    x, supports = _rows(node), node.attr("n_supports", 0)
    dtype, columns = info_of(x).dtype, columns_of(x)
    coefficients = np.asarray(node.attr("coefficients", ()), dtype)
    if supports:
        vectors = np.asarray(node.attr("support_vectors", ()), dtype).reshape(supports, -1)
        values = _kernel(node, x, vectors)
    else:
        values, supports = x, columns
    if coefficients.size != supports:
        raise node.fail(f"{coefficients.size} coefficients for {supports}")
    score = node.emit(op.matmul(values, Constant(coefficients.reshape(-1, 1))))
    score = node.emit(op.add(score, constant(node.attr("rho", [0.0])[0], dtype)))
    if node.attr("one_class", 0):
        over = op.greater(score, constant(0, dtype))
        return op.where(over, constant(1, dtype), constant(-1, dtype))
    return transformed(node, score)


@converter("ai.onnx.ml.Scaler")
def scaler(node: Node) -> Expr:
    x = _real(node)
    dtype = info_of(x).dtype
    offset, scale = (Constant(np.asarray(node.attr(n, [d]), dtype)) for n, d in (("offset", 0.0), ("scale", 1.0)))
    return op.multiply(op.subtract(x, offset), scale)


@converter("ai.onnx.ml.Normalizer")
def normalizer(node: Node) -> Expr:
    """Each row divided by its largest element, or its length in one of two senses; rows of zeros stay."""
    x, norm = _real(node), node.attr("norm", "MAX")
    dtype = info_of(x).dtype
    if norm == "L2":
        length = op.sqrt(node.emit(op.sum(node.emit(op.multiply(x, x)), axis=-1, keepdims=True)))
    elif norm in ("MAX", "L1"):
        length = (op.max if norm == "MAX" else op.sum)(node.emit(op.abs(x)), axis=-1, keepdims=True)
    else:
        raise node.fail(f"there is no norm '{norm}'")
    return op.divide(x, op.maximum(node.emit(length), constant(1e-30, dtype)))


@converter("ai.onnx.ml.Binarizer")
def binarizer(node: Node) -> Expr:
    dtype = node.info(0).dtype
    over = op.greater(node.input(0), constant(node.attr("threshold", 0.0), dtype))
    return op.astype(over, dtype)


@converter("ai.onnx.ml.Imputer")
def imputer(node: Node) -> Expr:
    """What is missing (a number, or NaN) becomes a value, one for all or one for each feature."""
    x, dtype = node.input(0), node.info(0).dtype
    real = dtype in REAL
    values = node.attr("imputed_value_floats" if real else "imputed_value_int64s")
    missing = node.attr("replaced_value_float", 0.0) if real else node.attr("replaced_value_int64", 0)
    dims = node.info(0).dims
    if not values or len(values) not in (1, dims[-1]):
        raise node.fail(f"{len(values or ())} values for {list(dims)}")
    found = op.isnan(x) if real and np.isnan(missing) else op.equal(x, constant(missing, dtype))
    return op.where(found, Constant(np.asarray(values, dtype)), x)


@converter("ai.onnx.ml.ArrayFeatureExtractor")
def array_feature_extractor(node: Node) -> Expr:
    """Columns by their positions; a vector is one row."""
    x = node.input(0)
    at = node.emit(op.reshape(node.input(1), ShapeExpr((-1,))))
    if info_of(x).ndim == 1:
        x = node.emit(op.expand_dims(x, axis=0))
    return op.take(x, at, axis=-1)


@converter("ai.onnx.ml.FeatureVectorizer")
def feature_vectorizer(node: Node) -> Expr:
    """Features of several inputs side by side, as float32."""
    parts, sizes = [], node.attr("inputdimensions", ())
    for i in range(len(node.inputs)):
        x = node.input(i) if node.info(i).dtype == "float32" else node.emit(op.astype(node.input(i), "float32"))
        if info_of(x).ndim == 1:
            x = node.emit(op.expand_dims(x, axis=1))
        width = columns_of(x)
        wanted = sizes[i] if i < len(sizes) else width
        if wanted > width:
            x = node.emit(op.nn.pad(x, pad_width=[0, 0, 0, wanted - width], pad_value=0.0))
        elif wanted < width:
            x = node.emit(op.strided_slice(x, axes=(1,), begin=(0,), end=(wanted,), strides=(1,)))
        parts.append(x)
    return parts[0] if len(parts) == 1 else op.concat(Tuple(tuple(parts)), axis=1)


@converter("ai.onnx.ml.OneHotEncoder")
def one_hot_encoder(node: Node) -> Expr:
    """A one where the element is the category; without `zeros` an unknown one would be an error, which kernels lack."""
    categories = node.attr("cats_int64s")
    if not categories or not node.attr("zeros", 1):
        raise node.no_kernel("categories that are texts, or unknown ones that are errors")
    x = node.emit(op.expand_dims(op.astype(node.input(0), "int64"), axis=-1))
    return op.astype(op.equal(x, Constant(np.asarray(categories, np.int64))), "float32")


@converter("ai.onnx.ml.LabelEncoder")
def label_encoder(node: Node) -> Expr:
    """Integers for integers: the value of the key, else the default."""
    keys, values, default = _table(node)
    kinds = (keys.dtype.kind, values.dtype.kind)
    if "O" in kinds or "U" in kinds or keys.dtype != np.dtype(node.info(0).dtype) or not keys.size or kinds[0] == "f":
        raise node.no_kernel("keys or values that are no integers")
    order = np.argsort(keys, kind="stable")
    if keys.size > 64:
        raise node.no_kernel(f"{keys.size} keys")
    same = op.equal(op.expand_dims(node.input(0), axis=-1), Constant(keys[order]))
    at = node.emit(op.argmax(node.emit(op.astype(same, "int32")), axis=-1, keepdims=False))
    known = node.emit(op.max(node.emit(op.astype(same, "int32")), axis=-1))
    value = op.take(Constant(values[order]), at, axis=0, mode="clip")
    return op.where(op.greater(known, constant(0, "int32")), value, constant(default, str(values.dtype)))


def _table(node: Node) -> tuple[Array, Array, object]:
    found = []
    for part in ("keys", "values"):
        tensor = node.attr(f"{part}_tensor")
        if tensor is not None:
            found.append(array_of(tensor, f"'{part}' of node '{node.name}'"))
            continue
        kinds = (("int64s", np.int64), ("floats", np.float32), ("strings", object))
        given = [(node.attr(f"{part}_{n}"), k) for n, k in kinds if node.attr(f"{part}_{n}")]
        if not given:
            raise node.no_kernel(f"it has no {part}")
        found.append(np.asarray(given[0][0], given[0][1]))
    keys, values = found
    if len(keys) != len(values):
        raise node.fail(f"{len(keys)} keys and {len(values)} values")
    tensor = node.attr("default_tensor")
    if tensor is not None:
        return keys, values, array_of(tensor, "the default").reshape(-1)[0]
    return (
        keys,
        values,
        node.attr("default_float", -0.0) if values.dtype.kind == "f" else node.attr("default_int64", -1),
    )
