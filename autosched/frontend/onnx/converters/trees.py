"""Ensembles of decision trees (`ai.onnx.ml`): all trees of all rows go down one level at a time."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

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
from autosched.relax.expr import Constant, Expr, ShapeExpr

Array = np.ndarray
MODES = ("BRANCH_LEQ", "BRANCH_LT", "BRANCH_GTE", "BRANCH_GT", "BRANCH_EQ", "BRANCH_NEQ")
COMPARE = (op.less_equal, op.less, op.greater_equal, op.greater, op.equal, op.not_equal)
NOT_STRICT, STRICT = {0, 3}, {1, 2}  # modes whose condition, or its opposite, is "at most", or "below"
OPPOSITE = (2, 3)  # x >= t is no x < t
LEVELS = 12  # of one kernel
AGGREGATES = ("AVERAGE", "SUM", "MIN", "MAX")
DEEPEST = 4096


@dataclass(frozen=True)
class _Ensemble:
    """Nodes of all trees in arrays; a leaf is its own successor.

    weights  [nodes, targets]: what each leaf adds;  has_weight  where it says anything
    """

    features: Array
    thresholds: Array
    modes: Array  # positions in MODES
    true: Array
    false: Array
    tracks: Array  # whether NaN goes to `true`
    roots: Array
    weights: Array
    has_weight: Array
    depth: int


def _successors(node: Node, true: Array, false: Array, roots: Array) -> int:
    """The number of levels. Raises ImportModelError for nodes that are their own ancestors, or that are not there."""
    if min(true.min(initial=0), false.min(initial=0)) < 0 or max(true.max(), false.max()) >= len(true):
        raise node.fail("a branch leads to no node")
    level, depth = np.unique(roots), 0
    while np.any((true[level] != level) | (false[level] != level)):
        level, depth = np.unique(np.concatenate([true[level], false[level]])), depth + 1
        if depth > min(len(true), DEEPEST):
            raise node.fail("its trees have no end")
    return depth


def _numbers(node: Node, name: str, default: float = 0.0, count: int = 0) -> Array:
    """An attribute of numbers, which may be a tensor (of float64)."""
    tensor = node.attr(f"{name}_as_tensor")
    if tensor is not None:
        return array_of(tensor, f"'{name}' of node '{node.name}'")
    return np.asarray(node.attr(name, [default] * count), np.float32)


def _read(node: Node, prefix: str, n_targets: int) -> _Ensemble:
    """The attributes of TreeEnsembleClassifier ("class") and TreeEnsembleRegressor ("target")."""
    trees, ids = (np.asarray(node.attr(f"nodes_{n}ids", []), np.int64) for n in ("tree", "node"))
    count = len(ids)
    if not count or len(trees) != count:
        raise node.fail(f"{count} nodes of {len(trees)} trees")
    place = {key: i for i, key in enumerate(zip(trees.tolist(), ids.tolist(), strict=True))}
    modes = [m.decode() if isinstance(m, bytes) else str(m) for m in node.attr("nodes_modes", [])]
    if unknown := {*modes} - {*MODES, "LEAF"}:
        raise node.fail(f"there is no mode '{min(unknown)}'")
    leaf = np.array([m == "LEAF" for m in modes])
    own = np.arange(count)

    def branch(name: str) -> Array:
        wanted = zip(trees.tolist(), node.attr(name), leaf.tolist(), strict=True)
        found = [-1 if is_leaf else place.get((tree, int(child)), -2) for tree, child, is_leaf in wanted]
        return np.where(leaf, own, np.asarray(found))

    true, false = branch("nodes_truenodeids"), branch("nodes_falsenodeids")
    _, first = np.unique(trees, return_index=True)
    weights, has_weight = np.zeros((count, n_targets)), np.zeros((count, n_targets), bool)
    values = _numbers(node, f"{prefix}_weights")
    fields = [node.attr(f"{prefix}_{n}", []) for n in ("treeids", "nodeids", "ids")]
    for tree, at, target, value in zip(*fields, values, strict=True):
        if (tree, at) not in place or not 0 <= target < n_targets:
            raise node.fail(f"a weight of target {target} at node {at} of tree {tree}")
        weights[place[tree, at], target] += value
        has_weight[place[tree, at], target] = True
    tracks = np.asarray(node.attr("nodes_missing_value_tracks_true", [0] * count), bool)
    kinds = np.array([MODES.index(m) if m != "LEAF" else 0 for m in modes])
    return _Ensemble(
        np.where(leaf, 0, node.attr("nodes_featureids")), _numbers(node, "nodes_values", 0.0, count),
        kinds, true, false, tracks if len(tracks) else np.zeros(count, bool), first, weights.astype(values.dtype),
        has_weight, _successors(node, true, false, first),
    )  # fmt: skip


@dataclass(frozen=True)
class _Packed:
    """An ensemble as `op.tree_levels` takes it: both successors of a node stand side by side.

    places  [packed nodes]: which node of the ensemble each is;  the first ones are the roots
    """

    words: Array
    splits: Array
    places: Array
    strict: bool


def _packed(trees: _Ensemble, n_columns: int) -> _Packed | None:
    """None for modes that differ or test equality, and for what does not fit words."""
    own = np.arange(len(trees.true))
    leaf = (trees.true == own) & (trees.false == own)
    kinds = set(trees.modes[~leaf].tolist())
    opposite = np.isin(trees.modes, OPPOSITE) & ~leaf
    if not (kinds <= NOT_STRICT or kinds <= STRICT) or np.isnan(trees.thresholds[opposite]).any():
        return None
    first, second = np.where(opposite, trees.false, trees.true), np.where(opposite, trees.true, trees.false)
    most = min(op.most_nodes(n_columns), 4 * len(own))  # nodes with several ancestors are there several times
    level, found = trees.roots, [trees.roots]
    children: list[Array] = []
    start = 0
    while level.size:
        is_leaf = leaf[level]
        total = start + len(level)
        inner = level[~is_leaf]
        if total + 2 * len(inner) > most:
            return None
        children.append(np.where(is_leaf, start + np.arange(len(level)) - 1, total + 2 * np.cumsum(~is_leaf) - 2))
        start = total
        level = np.stack([first[inner], second[inner]], axis=1).reshape(-1)
        found.append(level)
    places, child = np.concatenate(found), np.concatenate(children)
    low = 2 * trees.features[places] + (trees.tracks[places] ^ opposite[places])
    words = child << op.feature_bits(n_columns) + 1 | np.where(leaf[places], 0, low)
    splits = np.where(leaf[places], np.nan, trees.thresholds[places])
    return _Packed(words.astype(np.int32), splits, places, kinds <= STRICT and bool(kinds))


def _leaves(node: Node, trees: _Ensemble) -> tuple[Expr, Array]:
    """([trees, rows]: the node at which each row ends in each tree, the weights of these nodes)."""
    x = node.input(0)
    dtype = info_of(x).dtype
    if dtype not in ("float32", "float64"):
        x, dtype = node.emit(op.astype(x, "float32")), "float32"
    if info_of(x).ndim == 1:
        x = node.emit(op.expand_dims(x, axis=0))
    rows, columns = info_of(x).dims[0], columns_of(x)
    if trees.features.min() < 0 or trees.features.max() >= columns:
        raise node.fail(f"feature {int(trees.features.max())} of {columns}")
    packed = _packed(trees, columns)
    if packed is None:
        return node.emit(op.permute_dims(_followed(node, trees, x))), np.arange(len(trees.true))
    roots = np.arange(len(trees.roots), dtype=np.int32)
    place = node.emit(op.broadcast_to(Constant(roots[:, None]), ShapeExpr((len(roots), rows))))
    words, splits = Constant(packed.words), Constant(packed.splits.astype(dtype))
    for start in range(0, trees.depth, LEVELS):
        levels = min(LEVELS, trees.depth - start)
        kind = {"strict": packed.strict, "tracks": bool(np.any(packed.words & 1))}
        place = node.emit(op.tree_levels(place, x, words, splits, levels=levels, **kind))
    return place, packed.places


def _followed(node: Node, trees: _Ensemble, x: Expr) -> Expr:
    """[rows, trees]: the same for trees of any kind, level by level."""
    dtype, rows = info_of(x).dtype, info_of(x).dims[0]

    def at(values: Array, kind: str) -> Expr:
        return op.take(Constant(values.astype(kind)), place, axis=0, mode="clip")

    roots = Constant(trees.roots.astype(np.int32)[None])
    place = node.emit(op.broadcast_to(roots, ShapeExpr((rows, len(trees.roots)))))
    used = sorted(set(trees.modes[trees.true != np.arange(len(trees.true))].tolist())) or [0]
    strict = trees.tracks.any() or MODES.index("BRANCH_NEQ") in used
    for _ in range(trees.depth):
        feature = node.emit(at(trees.features, "int32"))
        value = node.emit(op.gather_elements(x, feature, axis=1, mode="clip"))
        threshold = node.emit(at(trees.thresholds, dtype))
        holds = COMPARE[used[0]](value, threshold)
        if len(used) > 1:
            mode = node.emit(at(trees.modes, "int32"))
            for kind in used[1:]:
                holds = op.where(op.equal(mode, constant(kind, "int32")), COMPARE[kind](value, threshold), holds)
        if strict:
            holds = op.where(op.isnan(value), node.emit(at(trees.tracks, "bool")), holds)
        place = node.emit(op.where(holds, at(trees.true, "int32"), at(trees.false, "int32")))
    return place


def _totals(node: Node, trees: _Ensemble, aggregate: str = "SUM") -> Expr:
    """[rows, targets]: what the leaves say of each target together."""
    leaves, places = _leaves(node, trees)
    dtype = "float64" if node.info(0).dtype == "float64" else "float32"
    weights, has_weight = trees.weights[places], trees.has_weight[places]
    if aggregate in ("MIN", "MAX"):
        weights = np.where(has_weight, weights, np.inf if aggregate == "MIN" else -np.inf)
    picked = node.emit(op.take(Constant(weights.astype(dtype)), leaves, axis=0, mode="clip"))
    reduce = {"MIN": op.min, "MAX": op.max}.get(aggregate, op.sum)
    total = node.emit(reduce(picked, axis=0))
    if aggregate == "AVERAGE":
        total = node.emit(op.divide(total, constant(len(trees.roots), dtype)))
    return total


def _based(node: Node, scores: Expr, base: Array, n_targets: int) -> Expr:
    if not base.size:
        return scores
    if base.size != n_targets:
        raise node.fail(f"{base.size} base values for {n_targets} targets")
    return node.emit(op.add(scores, Constant(base.astype(info_of(scores).dtype).reshape(1, -1))))


@converter("ai.onnx.ml.TreeEnsembleRegressor")
def tree_regressor(node: Node) -> Expr:
    targets, aggregate = node.attr("n_targets", 1), node.attr("aggregate_function", "SUM")
    if aggregate not in AGGREGATES:
        raise node.fail(f"there is no aggregate_function '{aggregate}'")
    total = _totals(node, _read(node, "target", targets), aggregate)
    scores = transformed(node, _based(node, total, _numbers(node, "base_values"), targets))
    return op.astype(scores, "float32") if info_of(scores).dtype != "float32" else scores


@converter("ai.onnx.ml.TreeEnsembleClassifier")
def tree_classifier(node: Node) -> tuple[Expr, Expr]:
    """The label and the scores of each row. Of two classes one may have all weights."""
    labels = labels_of_classes(node)
    trees = _read(node, "class", max(len(labels), 2))
    base = _numbers(node, "base_values")
    own = sorted(set(node.attr("class_ids", [])))
    if len(labels) > 2 or len(own) > 1:
        scores = _based(node, _totals(node, trees), base, len(labels))
        return label_of(node, scores, labels), _single(node, transformed(node, scores))
    if own != [0]:
        raise node.fail(f"weights of the classes {own} only")
    if base.size > 1:
        raise node.fail(f"{base.size} base values for the one score of two classes")
    total = _totals(node, trees)
    score = node.emit(op.strided_slice(total, axes=(1,), begin=(own[0],), end=(own[0] + 1,), strides=(1,)))
    if base.size:
        score = node.emit(op.add(score, constant(base[0], info_of(score).dtype)))
    positive = bool(np.all(trees.weights >= 0)) and bool(np.all(base >= 0))
    label, scores = binary_scores(node, score, labels, positive)
    return label, _single(node, scores)


def _single(node: Node, scores: Expr) -> Expr:
    return node.emit(op.astype(scores, "float32")) if info_of(scores).dtype != "float32" else scores


@converter("ai.onnx.ml.TreeEnsemble")
def tree_ensemble(node: Node) -> Expr:
    """The newer form: leaves have arrays of their own, branches are positions."""
    read = _reader(node)
    splits, features, modes = read("nodes_splits"), read("nodes_featureids"), read("nodes_modes")
    leaf_targets, leaf_weights, roots = read("leaf_targetids"), read("leaf_weights"), read("tree_roots")
    if np.any(modes >= len(MODES)):
        raise node.no_kernel("branches by membership")
    count, leaves = len(splits), len(leaf_weights)
    targets, aggregate = node.attr("n_targets", 1), AGGREGATES[node.attr("aggregate_function", 1)]
    own = np.arange(count, count + leaves)

    def branch(name: str) -> Array:
        return np.concatenate([read(f"nodes_{name}nodeids") + count * read(f"nodes_{name}leafs"), own])

    def padded(values: Array) -> Array:
        return np.concatenate([values, np.zeros(leaves, values.dtype)])

    weights, has_weight = np.zeros((count + leaves, targets)), np.zeros((count + leaves, targets), bool)
    if np.any((leaf_targets < 0) | (leaf_targets >= targets)):
        raise node.fail(f"a leaf of a target that is not among {targets}")
    weights[own, leaf_targets], has_weight[own, leaf_targets] = leaf_weights, True
    tracks = node.attr("nodes_missing_value_tracks_true", [0] * count) or [0] * count
    true, false = branch("true"), branch("false")
    trees = _Ensemble(
        padded(features), padded(splits), padded(modes), true, false, padded(np.asarray(tracks, bool)), roots,
        weights.astype(leaf_weights.dtype), has_weight, _successors(node, true, false, roots),
    )  # fmt: skip
    kinds = ("NONE", "SOFTMAX", "LOGISTIC", "SOFTMAX_ZERO", "PROBIT")
    total = transformed(node, _totals(node, trees, aggregate), kinds[node.attr("post_transform", 0)])
    return total


def _reader(node: Node) -> Any:
    def read(name: str) -> Array:
        value = node.attr(name)
        if value is None:
            raise node.fail(f"attribute '{name}' is missing")
        return array_of(value, f"'{name}' of node '{node.name}'") if hasattr(value, "dims") else np.asarray(value)

    return read
