"""Models of tables: scikit-learn's, XGBoost's and LightGBM's, as skl2onnx and onnxmltools export them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

N_ROWS, N_COLUMNS, N_CLASSES = 200, 12, 3


@dataclass(frozen=True)
class Tabular:
    """A fitted model: its ONNX file's bytes, an input, and what the package predicts for it, output by output."""

    onnx: bytes
    inputs: tuple[Any, ...]
    expected: tuple[Any, ...]


def _data() -> tuple[Any, Any, Any]:
    """(features, classes, values) with a structure that can be learned."""
    rng = np.random.default_rng(0)
    x = rng.standard_normal((N_ROWS, N_COLUMNS)).astype(np.float32)
    values = (x[:, :4].sum(axis=1) + np.sin(3 * x[:, 4]) + 0.1 * rng.standard_normal(N_ROWS)).astype(np.float32)
    return x, np.digitize(values, np.quantile(values, (1 / 3, 2 / 3))), values


def _scikit_learn(make: Callable[[], Any]) -> Tabular:
    import sklearn.base
    from skl2onnx import to_onnx

    x, classes, values = _data()
    model = make()
    is_classifier = sklearn.base.is_classifier(model)
    model.fit(x, classes if is_classifier else values)
    options = {"zipmap": False} if is_classifier else None
    proto = to_onnx(model, x[:1], options=options, target_opset={"": 20, "ai.onnx.ml": 3})
    return Tabular(proto.SerializeToString(), (x[:50],), _predicted(model, x[:50], is_classifier))


def _boosted(package: str, make: Callable[[], Any], is_classifier: bool) -> Tabular:
    import onnxmltools
    from onnxmltools.convert.common.data_types import FloatTensorType

    x, classes, values = _data()
    model = make()
    model.fit(x, classes if is_classifier else values)
    more = {"zipmap": False} if package == "lightgbm" else {}
    convert = getattr(onnxmltools, f"convert_{package}")
    proto = convert(model, initial_types=[("X", FloatTensorType([None, N_COLUMNS]))], target_opset=15, **more)
    return Tabular(proto.SerializeToString(), (x[:50],), _predicted(model, x[:50], is_classifier))


def _predicted(model: Any, x: Any, is_classifier: bool) -> tuple[Any, ...]:
    if hasattr(model, "transform") and not hasattr(model, "predict"):
        return (np.asarray(model.transform(x), np.float32),)
    found = np.asarray(model.predict(x))
    if is_classifier:
        return (found, np.asarray(model.predict_proba(x), np.float32))
    return (found.astype(np.float32),)


def _pipeline() -> Any:
    from sklearn.decomposition import PCA
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import PolynomialFeatures, StandardScaler

    return make_pipeline(StandardScaler(), PolynomialFeatures(2), PCA(8), LogisticRegression())


def _sklearn_makers() -> dict[str, Callable[[], Any]]:
    from sklearn import ensemble, linear_model, naive_bayes, neighbors, neural_network, preprocessing, svm, tree

    return {
        "sk_logistic": linear_model.LogisticRegression,
        "sk_ridge": linear_model.Ridge,
        "sk_tree": lambda: tree.DecisionTreeClassifier(max_depth=6, random_state=0),
        "sk_forest": lambda: ensemble.RandomForestClassifier(20, max_depth=6, random_state=0),
        "sk_forest_values": lambda: ensemble.RandomForestRegressor(20, max_depth=6, random_state=0),
        "sk_boosting": lambda: ensemble.GradientBoostingClassifier(n_estimators=10, random_state=0),
        "sk_hist_boosting": lambda: ensemble.HistGradientBoostingClassifier(max_iter=10, random_state=0),
        "sk_svr": svm.SVR,
        "sk_neighbours": lambda: neighbors.KNeighborsClassifier(5),
        "sk_bayes": naive_bayes.GaussianNB,
        "sk_mlp": lambda: neural_network.MLPClassifier((16,), max_iter=50, random_state=0),
        "sk_scaler": preprocessing.StandardScaler,
        "sk_pipeline": _pipeline,
    }


def _boosted_makers() -> dict[str, tuple[str, Callable[[], Any], bool]]:
    def xgboost(kind: str) -> Any:
        import xgboost

        return getattr(xgboost, kind)(n_estimators=10, max_depth=4)

    def lightgbm(kind: str) -> Any:
        import lightgbm

        return getattr(lightgbm, kind)(n_estimators=10, max_depth=4, min_child_samples=5, verbose=-1)

    return {
        "xgb_classes": ("xgboost", lambda: xgboost("XGBClassifier"), True),
        "xgb_values": ("xgboost", lambda: xgboost("XGBRegressor"), False),
        "lgbm_classes": ("lightgbm", lambda: lightgbm("LGBMClassifier"), True),
        "lgbm_values": ("lightgbm", lambda: lightgbm("LGBMRegressor"), False),
    }


def tabular_names() -> tuple[str, ...]:
    """All models."""
    return (*_sklearn_makers(), *_boosted_makers())


def make_tabular(name: str) -> Tabular:
    """Fit and export one. Raises KeyError for an unknown name."""
    if (boosted := _boosted_makers().get(name)) is not None:
        return _boosted(*boosted)
    return _scikit_learn(_sklearn_makers()[name])
