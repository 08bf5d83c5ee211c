"""A model of scikit-learn through ONNX: a forest is trained, exported, built, saved, and run in place of the original.

pip install '.[onnx]' scikit-learn skl2onnx
python -m examples.scikit_learn
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
from skl2onnx import to_onnx
from sklearn.datasets import load_iris
from sklearn.ensemble import RandomForestClassifier

import autosched


def main(words: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m examples.scikit_learn", description=__doc__.split("\n", 1)[0])
    parser.add_argument("--folder", type=Path, default=Path(), help="where the files go (%(default)s)")
    folder = parser.parse_args(words).folder

    x, species = load_iris(return_X_y=True)
    x = x.astype("float32")
    model = RandomForestClassifier(n_estimators=50, random_state=0).fit(x, species)

    proto = to_onnx(model, x[:1], options={"zipmap": False})  # probabilities as an array, not as a list of dictionaries
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "forest.onnx").write_bytes(proto.SerializeToString())

    session = autosched.onnx.InferenceSession(folder / "forest.onnx")  # the interface of ONNX Runtime
    found, probabilities = session.run(None, {"X": x})
    print(f"{(found == model.predict(x)).sum()} of {len(x)} rows are of the class that scikit-learn says")
    print(f"largest difference of a probability: {np.abs(probabilities - model.predict_proba(x)).max():.1e}")

    autosched.build(folder / "forest.onnx").save(folder / "forest.asx")  # for any number of rows
    found, _ = autosched.load(folder / "forest.asx")(x[:7])
    print(f"loaded again, seven rows: {found.numpy().tolist()}")


if __name__ == "__main__":
    main()
