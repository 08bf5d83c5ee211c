"""A model from ONNX to the process that serves it: import, bind parameters, tune, build, save, load, run.

python -m examples.model
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
import onnx.parser

import autosched
from autosched.contrib.graph_executor import GraphModule

MODEL = """
    <ir_version: 8, opset_import: ["": 17]>
    two_layers (float[1, 784] x, float[784, 256] w1, float[256] b1, float[256, 10] w2, float[10] b2)
        => (float[1, 10] y)
    {
        h = MatMul(x, w1)
        g = Add(h, b1)
        r = Relu(g)
        o = MatMul(r, w2)
        y = Add(o, b2)
    }
"""


def make_params() -> dict[str, np.ndarray]:
    """Random parameters for the model, by the names of its inputs."""
    rng, shapes = np.random.default_rng(0), {"w1": (784, 256), "b1": (256,), "w2": (256, 10), "b2": (10,)}
    return {name: (rng.standard_normal(shape) / 16).astype("float32") for name, shape in shapes.items()}


def main(words: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m examples.model", description="Tune, save and run a small model.")
    parser.add_argument("--trials", type=int, default=64, help="configurations to try (%(default)s)")
    parser.add_argument("--folder", type=Path, default=Path(), help="where the files go (%(default)s)")
    args = parser.parse_args(words)
    database, artifact = args.folder / "model.db", args.folder / "two_layers.asx"

    mod = autosched.relax.frontend.onnx.from_onnx(onnx.parser.parse_model(MODEL))
    params = make_params()
    options = autosched.TuneOptions(trials=args.trials, threads=1)
    report = autosched.tune(mod, "cpu", params=params, records=database, options=options)
    print(f"{len(report.tasks)} kernels, {report.n_trials} trials, {report.n_failed} failed")
    with autosched.ApplyHistoryBest(database):
        autosched.build(mod, target="cpu", params=params, threads=1).save(artifact)

    # from here on no compiler is needed: this is what the serving process does
    module = GraphModule(autosched.load(artifact))
    x = np.random.default_rng(1).standard_normal((1, 784), dtype=np.float32)
    module.set_input("x", x)
    module.run()
    expected = np.maximum(x @ params["w1"] + params["b1"], 0) @ params["w2"] + params["b2"]
    error = np.abs(module.get_output(0).numpy() - expected).max()
    print(f"largest difference from NumPy: {error:.1e}")


if __name__ == "__main__":
    main()
