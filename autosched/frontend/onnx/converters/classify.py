"""What classifiers of `ai.onnx.ml` share: labels, scores of two classes, what is done to scores at the end."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from autosched.frontend.onnx.node import Node, constant, info_of
from autosched.relax import op
from autosched.relax.expr import Constant, Expr, Tuple
from autosched.relax.struct_info import TensorStructInfo

TRANSFORMS = ("NONE", "LOGISTIC", "SOFTMAX", "SOFTMAX_ZERO", "PROBIT")


def labels_of_classes(node: Node) -> list[int]:
    """The labels; positions where they are texts, which `split_labels` has made a node of their own."""
    labels: list[int] = list(node.attr("classlabels_int64s") or node.attr("classlabels_ints") or ())
    if not labels:
        raise node.no_kernel("labels that are texts, or none")
    return labels


def columns_of(x: Expr) -> int:
    """The number of features of [rows, features]. Raises ShapeError where it is open; that of rows may be."""
    info = info_of(x)
    return TensorStructInfo(info.dims[1:], info.dtype).static_shape[0]


def transformed(node: Node, scores: Expr, how: str | None = None) -> Expr:
    """Scores [rows, classes] after the attribute `post_transform`."""
    how = node.attr("post_transform", "NONE") if how is None else how
    dtype = info_of(scores).dtype
    if how == "NONE":
        return scores
    if how == "LOGISTIC":
        return node.emit(op.sigmoid(scores))
    if how == "SOFTMAX":
        return node.emit(op.nn.softmax(scores, axis=-1))
    if how == "SOFTMAX_ZERO":  # a score of 0 stays 0
        whole = node.emit(op.max(scores, axis=-1, keepdims=True))
        far = op.greater(op.abs(scores), constant(1e-7, dtype))
        powers = node.emit(
            op.where(far, op.exp(op.subtract(scores, whole)), op.multiply(scores, op.exp(op.negative(whole))))
        )
        total = node.emit(op.sum(powers, axis=-1, keepdims=True))
        none = op.equal(total, constant(0, dtype))
        return node.emit(op.where(none, constant(0.5, dtype), op.divide(powers, total)))
    if how == "PROBIT":
        y = node.emit(op.subtract(op.multiply(scores, constant(2, dtype)), constant(1, dtype)))
        log = node.emit(op.log(op.multiply(op.subtract(constant(1, dtype), y), op.add(constant(1, dtype), y))))
        half = node.emit(op.add(op.multiply(log, constant(0.5, dtype)), constant(2 / (np.pi * 0.147), dtype)))
        root = op.sqrt(op.subtract(op.multiply(half, half), op.multiply(log, constant(1 / 0.147, dtype))))
        inverse = op.multiply(op.sign(y), op.sqrt(op.subtract(root, half)))
        return node.emit(op.multiply(inverse, constant(1.41421356, dtype)))
    raise node.fail(f"there is no post_transform '{how}'")


def label_of(node: Node, scores: Expr, labels: Sequence[int]) -> Expr:
    """[rows]: the label of the largest score."""
    at = node.emit(op.argmax(scores, axis=1, keepdims=False))
    return node.emit(op.take(Constant(np.asarray(labels, np.int64)), at, axis=0, mode="clip"))


def binary_scores(node: Node, score: Expr, labels: Sequence[int], is_share: bool) -> tuple[Expr, Expr]:
    """(label [rows], scores [rows, 2]) from the one score of the second class [rows, 1].

    is_share  the score is a probability: the other class has the rest, and a half decides, not zero
    """
    dtype, how = info_of(score).dtype, node.attr("post_transform", "NONE")
    over = op.greater(score, constant(0.5 if is_share else 0.0, dtype))
    low, high = (labels[0], labels[1]) if len(labels) == 2 else (0, 1)
    chosen = node.emit(op.where(over, constant(high, "int64"), constant(low, "int64")))
    label = node.emit(op.squeeze(chosen, axis=[1]))
    if how not in ("NONE", "LOGISTIC"):  # ONNX does not say what it is of one score, and libraries differ
        raise node.fail(f"post_transform '{how}' of the one score of two classes")
    opposite = op.subtract(constant(1, dtype), score) if is_share and how == "NONE" else op.negative(score)
    both = node.emit(op.concat(Tuple((node.emit(opposite), score)), axis=1))
    return label, transformed(node, both)
