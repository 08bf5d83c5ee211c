"""Operators of `ai.onnx.ml`, as scikit-learn's and boosting packages' exporters write them, against ONNX Runtime."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper

import autosched
from autosched import relax
from autosched.driver.build.late import LateModel
from autosched.errors import ImportModelError
from autosched.frontend.onnx import from_onnx
from autosched.runtime.dynamic import DynamicExecutable
from tests.spread import spread

RNG = np.random.default_rng(0)
X = RNG.standard_normal((40, 5)).astype("f4")
MODES = ["BRANCH_LEQ", "BRANCH_LT", "BRANCH_GTE", "BRANCH_GT", "BRANCH_EQ", "BRANCH_NEQ"]


def model(op: str, x: np.ndarray, outputs: int = 1, is_open: bool = False, **attrs: Any) -> onnx.ModelProto:
    kind = helper.np_dtype_to_tensor_dtype(x.dtype)
    graph = helper.make_graph(
        [helper.make_node(op, ["x"], [f"y{i}" for i in range(outputs)], domain="ai.onnx.ml", name="n", **attrs)],
        "g",
        [helper.make_tensor_value_info("x", kind, ("rows", *x.shape[1:]) if is_open else x.shape)],
        [onnx.ValueInfoProto(name=f"y{i}") for i in range(outputs)],
    )
    imports = [helper.make_opsetid("", 17), helper.make_opsetid("ai.onnx.ml", 3)]
    return helper.make_model(graph, opset_imports=imports, ir_version=8)


def runtime(made: onnx.ModelProto, x: np.ndarray) -> list[Any]:
    import onnxruntime

    return onnxruntime.InferenceSession(made.SerializeToString()).run(None, {"x": x})  # type: ignore[no-any-return]


def check(op: str, x: np.ndarray, outputs: int = 1, build: bool = False, **attrs: Any) -> None:
    """Import (and with `build` compile, for any number of rows), run, compare with ONNX Runtime."""
    made, of_any_rows = model(op, x, outputs, **attrs), model(op, x, outputs, is_open=True, **attrs)
    if build:
        built = autosched.build(of_any_rows)
        assert isinstance(built, DynamicExecutable) or op == "SVMClassifier"  # which NumPy computes
        built(x[:3])
        got = built(x)
    else:
        from_onnx(of_any_rows)  # its rows may be open
        got = relax.evaluate(from_onnx(made), {"x": x})
    for g, w in zip(got if isinstance(got, tuple) else (got,), runtime(made, x), strict=True):
        g = g.numpy() if hasattr(g, "numpy") else g
        assert g.dtype == w.dtype and g.shape == w.shape
        np.testing.assert_allclose(g, w, rtol=1e-4, atol=1e-5)


def forest(prefix: str, targets: int, modes: list[str], own: list[int] | None = None, missing: bool = False) -> Any:
    """Attributes of seven random trees, four levels deep at most, whose leaves add to the targets `own`."""
    nodes: dict[str, list[Any]] = {n: [] for n in ("treeids", "nodeids", "featureids", "values", "modes")}
    nodes |= {"truenodeids": [], "falsenodeids": [], "missing_value_tracks_true": []}
    weights: dict[str, list[Any]] = {n: [] for n in ("treeids", "nodeids", "ids", "weights")}
    for tree in range(7):
        count = 0
        todo = [(0, 0)]
        while todo:
            own_id, depth = todo.pop()
            leaf = depth == 4 or (depth and RNG.random() < 0.2)
            count = max(count, own_id + 1)
            yes, no = (0, 0) if leaf else (count, count + 1)
            mode = "LEAF" if leaf else str(RNG.choice(modes))
            values = [tree, own_id, int(RNG.integers(5)), float(np.float32(RNG.standard_normal())), mode, yes, no]
            values.append(int(missing and RNG.random() < 0.5))
            for name, value in zip(nodes, values, strict=True):
                nodes[name].append(value)
            if not leaf:
                count += 2
                todo += [(yes, depth + 1), (no, depth + 1)]
            for target in (own or range(targets)) if leaf else ():
                for name, value in zip(weights, [tree, own_id, target, float(np.float32(RNG.random()))], strict=True):
                    weights[name].append(value)
    found = {f"nodes_{k}": v for k, v in nodes.items()}
    return found | {f"{prefix}_{k}": v for k, v in weights.items()}


@pytest.mark.parametrize("aggregate", ["SUM", "AVERAGE", "MIN", "MAX"])
def test_tree_regressor(aggregate: str) -> None:
    trees = forest("target", 3, ["BRANCH_LEQ"])
    check("TreeEnsembleRegressor", X, n_targets=3, aggregate_function=aggregate, base_values=[1.0, 2.0, 3.0], **trees)


def test_trees_of_every_mode_with_missing_values() -> None:
    x = np.where(RNG.random(X.shape) < 0.2, np.nan, X).astype("f4")
    check("TreeEnsembleRegressor", x, n_targets=1, **forest("target", 1, ["BRANCH_LT"], missing=True))
    made = model("TreeEnsembleRegressor", x, n_targets=1, **forest("target", 1, MODES, missing=True))
    from onnx.reference import ReferenceEvaluator

    (want,) = ReferenceEvaluator(made).run(None, {"x": x})
    np.testing.assert_allclose(relax.evaluate(from_onnx(made), {"x": x}), want, rtol=1e-5)


def test_trees_are_compiled() -> None:
    check("TreeEnsembleRegressor", X, build=True, n_targets=1, **forest("target", 1, ["BRANCH_LEQ"]))
    x = X.astype("f8")
    check("TreeEnsembleRegressor", x, n_targets=1, **forest("target", 1, ["BRANCH_LT"]))


@pytest.mark.parametrize("post", ["NONE", "SOFTMAX", "LOGISTIC", "SOFTMAX_ZERO"])
def test_tree_classifier(post: str) -> None:
    for labels, own in (([3, 7, 9], None), ([0, 1], [0])):
        if own and post.startswith("SOFTMAX"):
            continue
        trees = forest("class", len(labels), ["BRANCH_LEQ"], own)
        check("TreeEnsembleClassifier", X, 2, classlabels_int64s=labels, post_transform=post, **trees)
        trees["class_weights"] = [w - 0.5 for w in trees["class_weights"]]
        check("TreeEnsembleClassifier", X, 2, classlabels_int64s=labels, post_transform=post, **trees)


def test_what_onnx_does_not_say_is_refused() -> None:
    trees = forest("class", 2, ["BRANCH_LEQ"], [0])
    for attrs, part in (({"post_transform": "SOFTMAX"}, "one score"), ({"base_values": [0.1, 0.2]}, "base values")):
        with pytest.raises(ImportModelError, match=part):
            from_onnx(model("TreeEnsembleClassifier", X, 2, classlabels_int64s=[0, 1], **attrs, **trees))
    with pytest.raises(ImportModelError, match="only"):
        trees = forest("class", 2, ["BRANCH_LEQ"], [1])
        from_onnx(model("TreeEnsembleClassifier", X, 2, classlabels_int64s=[0, 1], **trees))


def test_trees_without_end_are_refused() -> None:
    trees = forest("target", 1, ["BRANCH_LEQ"])
    trees["nodes_truenodeids"][0] = 0
    with pytest.raises(ImportModelError, match="no end"):
        from_onnx(model("TreeEnsembleRegressor", X, n_targets=1, **trees))
    trees = forest("target", 1, ["BRANCH_LEQ"])
    trees["nodes_truenodeids"][0] = 99
    with pytest.raises(ImportModelError, match="no node"):
        from_onnx(model("TreeEnsembleRegressor", X, n_targets=1, **trees))
    trees["nodes_featureids"][0] = 99
    with pytest.raises(ImportModelError):
        from_onnx(model("TreeEnsembleRegressor", X, n_targets=1, **trees))


@pytest.mark.parametrize("post", ["NONE", "SOFTMAX", "LOGISTIC", "PROBIT"])
def test_linear_classifier(post: str) -> None:
    for labels, rows in (([5, 6, 7], 3), ([0, 1], 1), ([2, 9], 2)):
        if rows == 1 and post != "LOGISTIC":
            continue  # ONNX Runtime gives 1 - score and score, onnx.reference their opposites
        coefficients = (RNG.standard_normal(5 * rows) / (40 if post == "PROBIT" else 1)).tolist()
        intercepts = (RNG.random(rows) * 0.2 + 0.4).tolist() if post == "PROBIT" else RNG.standard_normal(rows).tolist()
        attrs: dict[str, Any] = {"classlabels_ints": labels, "post_transform": post}
        check("LinearClassifier", X, 2, coefficients=coefficients, intercepts=intercepts, **attrs)


def test_labels_that_are_texts() -> None:
    coefficients = RNG.standard_normal(15).tolist()
    made = model("LinearClassifier", X, 2, coefficients=coefficients, intercepts=[0.1, 0.2, 0.3],
                 classlabels_strings=["ant", "bee", "cat"])  # fmt: skip
    built = autosched.build(made)
    assert isinstance(built, LateModel)
    label, scores = built(X)
    want = runtime(made, X)
    assert label.tolist() == want[0].tolist()
    np.testing.assert_allclose(scores.numpy(), want[1], rtol=1e-4, atol=1e-5)
    assert [c.op_name for c in built.calls] == ["ai.onnx.ml.LabelEncoder"]  # scores are computed by kernels


@pytest.mark.parametrize("kernel", ["LINEAR", "RBF", "POLY", "SIGMOID"])
def test_support_vectors(kernel: str) -> None:
    vectors = RNG.standard_normal((6, 5)).astype("f4")
    attrs: dict[str, Any] = {
        "kernel_type": kernel,
        "kernel_params": [0.3, 0.1, 3.0],
        "support_vectors": vectors.reshape(-1).tolist(),
    }
    own = RNG.standard_normal(6).tolist()
    check("SVMRegressor", X, coefficients=own, rho=[0.2], n_supports=6, **attrs)
    pairs = RNG.standard_normal(12).tolist()
    more = {
        "coefficients": pairs,
        "rho": [0.1, -0.2, 0.3],
        "vectors_per_class": [2, 3, 1],
        "classlabels_ints": [1, 2, 3],
    }
    check("SVMClassifier", X, 2, build=True, **attrs, **more)
    # probabilities of pairs that contradict their votes, which alone choose the label
    check("SVMClassifier", X, 2, build=True, prob_a=[1.1, 0.4, 2.0], prob_b=[0.1, -0.2, 0.3], **attrs, **more)


def test_what_prepares_features() -> None:
    check("Scaler", X, offset=[1.0, 2.0, 3.0, 4.0, 5.0], scale=[0.5, 1.0, 2.0, 3.0, 4.0])
    check("Scaler", (X * 10).astype("i8"), offset=[1.0], scale=[0.5])
    for norm in ("MAX", "L1", "L2"):
        check("Normalizer", np.abs(X), norm=norm)
    check("Binarizer", X, threshold=0.3)
    x = np.where(RNG.random(X.shape) < 0.3, np.nan, X).astype("f4")
    check("Imputer", x, imputed_value_floats=[1.0, 2.0, 3.0, 4.0, 5.0], replaced_value_float=float("nan"))
    check("Imputer", np.round(X), imputed_value_floats=[7.0], replaced_value_float=1.0)
    whole = RNG.integers(0, 5, (6,))
    check("LabelEncoder", whole, keys_int64s=[3, 1, 0], values_int64s=[30, 10, 0], default_int64=-5)
    check("OneHotEncoder", whole, cats_int64s=[4, 0, 2])
    check("LinearRegressor", X, coefficients=RNG.standard_normal(10).tolist(), intercepts=[1.0, 2.0], targets=2)


def test_encoders_of_texts_and_floats() -> None:
    texts = np.array(["b", "a", "zzz"], object)
    built = autosched.build(
        model("LabelEncoder", texts, keys_strings=["a", "b"], values_int64s=[1, 2], default_int64=9)
    )
    assert built(texts).numpy().tolist() == [2, 1, 9]
    x = np.array([np.nan, 1, 2], "f4")
    made = model("LabelEncoder", x, keys_floats=[float("nan"), 1.0], values_strings=["none", "one"], default_string="?")
    assert autosched.build(made)(x).tolist() == ["none", "one", "?"]
    scores = RNG.random((2, 2)).astype("f4")
    (rows,) = [autosched.build(model("ZipMap", scores, classlabels_strings=["p", "q"]))(scores)]
    assert rows == [dict(zip("pq", row)) for row in scores.tolist()]


@pytest.mark.parametrize(
    "modes", [["BRANCH_LEQ", "BRANCH_GT"], ["BRANCH_LT", "BRANCH_GTE"], ["BRANCH_GT"], ["BRANCH_EQ"]]
)
@spread(3, "rows", [1, 7, 33])
def test_conditions_and_their_opposites_go_down_one_kernel(modes: list[str], rows: int) -> None:
    from onnx.reference import ReferenceEvaluator

    trees = forest("target", 2, modes, missing=True)
    x = RNG.choice([np.nan, np.inf, -np.inf, 0.0, -0.0, *trees["nodes_values"]], (rows, 5)).astype(
        "f4"
    )  # on the splits
    made = model("TreeEnsembleRegressor", x, n_targets=2, **trees)
    (want,) = ReferenceEvaluator(made).run(None, {"x": x})
    np.testing.assert_allclose(np.asarray(autosched.build(made)(x)), want, rtol=1e-5)


def test_deep_trees() -> None:
    """A chain of 40 nodes: several kernels of some levels each."""
    depth, count = 40, 81
    inner = np.arange(count) % 2 == 0
    inner[-1] = False
    own = np.arange(count)
    trees = {
        "nodes_treeids": [0] * count, "nodes_nodeids": own, "nodes_featureids": [0] * count,
        "nodes_values": np.where(inner, own / 2, 0).astype("f4"), "nodes_truenodeids": np.where(inner, own + 1, 0),
        "nodes_falsenodeids": np.where(inner, own + 2, 0),
        "nodes_modes": np.where(inner, "BRANCH_LEQ", "LEAF").tolist(),
        "target_treeids": [0] * (depth + 1), "target_nodeids": own[~inner], "target_ids": [0] * (depth + 1),
        "target_weights": np.arange(depth + 1, dtype="f4"),
    }  # fmt: skip
    trees = {k: list(v) for k, v in trees.items()}
    check("TreeEnsembleRegressor", np.linspace(-1, 45, 19, dtype="f4")[:, None], n_targets=1, **trees)


def test_distances_of_large_features_do_not_cancel() -> None:
    vectors = (1e4 + RNG.standard_normal((33, 5))).astype("f4")
    x = (1e4 + RNG.standard_normal((9, 5))).astype("f4")
    check(
        "SVMRegressor", x, build=True, kernel_type="RBF", kernel_params=[0.2, 0.0, 3.0], n_supports=33,
        support_vectors=vectors.reshape(-1).tolist(), coefficients=RNG.standard_normal(33).tolist(), rho=[0.5],
    )  # fmt: skip
