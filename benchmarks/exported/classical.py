"""Models of scikit-learn, written by skl2onnx, with classifiers' maps and without."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

__all__ = ["CLASSICAL"]

_FEATURES = 6


def _data() -> tuple[Any, Any]:
    rng = np.random.default_rng(0)
    x = rng.standard_normal((80, _FEATURES)).astype(np.float32)
    return x, (x[:, 0] + x[:, 1] ** 2 > 0.5).astype(np.int64) + (x[:, 2] > 1)


def _write(make: Callable[[], Any], path: Path, zipmap: bool, opset: int) -> None:
    import onnxruntime
    from skl2onnx import to_onnx

    x, y = _data()
    model = make().fit(x, y)
    classifies = hasattr(model, "predict_proba")
    options = {id(model): {"zipmap": zipmap}} if classifies else None
    path.write_bytes(to_onnx(model, x[:1], options=options, target_opset=opset).SerializeToString())
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    session.run(None, {"X": x})


def _models() -> dict[str, Callable[[], Any]]:
    from sklearn.cluster import KMeans
    from sklearn.decomposition import PCA
    from sklearn.ensemble import GradientBoostingClassifier, RandomForestRegressor
    from sklearn.gaussian_process import GaussianProcessRegressor
    from sklearn.linear_model import LogisticRegression
    from sklearn.naive_bayes import GaussianNB
    from sklearn.neighbors import KNeighborsClassifier
    from sklearn.neural_network import MLPClassifier
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import PolynomialFeatures, StandardScaler
    from sklearn.svm import SVC

    return {
        "logistic": lambda: make_pipeline(StandardScaler(), LogisticRegression()),
        "forest": lambda: RandomForestRegressor(5, max_depth=4, random_state=0),
        "boosting": lambda: GradientBoostingClassifier(n_estimators=5, random_state=0),
        "perceptron": lambda: MLPClassifier((16, 8), max_iter=50, random_state=0),
        "svc": lambda: SVC(probability=False),
        "bayes": GaussianNB,
        "neighbours": lambda: KNeighborsClassifier(3),
        "kmeans": lambda: KMeans(3, n_init=1, random_state=0),
        "pca": lambda: make_pipeline(PolynomialFeatures(2), PCA(4)),
        "gaussian_process": GaussianProcessRegressor,
    }


def _one(name: str, zipmap: bool, opset: int, path: Path) -> None:
    _write(_models()[name], path, zipmap, opset)


_NAMES = (
    "logistic", "forest", "boosting", "perceptron", "svc", "bayes", "neighbours", "kmeans", "pca",
    "gaussian_process",
)  # fmt: skip
CLASSICAL: dict[str, Callable[[Path], None]] = {
    **{
        f"sklearn_{name}.op{11 + index}": partial(_one, name, False, 11 + index)
        for index, name in enumerate(_NAMES)
    },
    **{
        f"sklearn_{name}_map.op{17 + index}": partial(_one, name, True, 17 + index)
        for index, name in enumerate(("logistic", "boosting", "perceptron"))
    },
}
"""Writers of files by name."""
