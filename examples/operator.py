"""One operator: written as a tensor expression, tuned for this machine, built and called on arrays.

python -m examples.operator
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np

import autosched
from autosched import te, tir


def dense_relu(m: int, n: int, k: int) -> list[te.Tensor]:
    """relu(data [m, k] @ weight [n, k] transposed): the inputs and the output."""
    data = te.placeholder((m, k), name="data")
    weight = te.placeholder((n, k), name="weight")
    axis = te.reduce_axis((0, k), name="k")
    dense = te.compute((m, n), lambda i, j: te.sum(data[i, axis] * weight[j, axis], axis=axis), name="dense")
    return [data, weight, te.compute((m, n), lambda i, j: tir.maximum(dense[i, j], 0.0), name="relu")]


def main(words: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m examples.operator", description="Tune one operator.")
    parser.add_argument("--trials", type=int, default=64, help="configurations to try (%(default)s)")
    parser.add_argument("--db", type=Path, default=Path("operator.db"), help="where results are kept (%(default)s)")
    args = parser.parse_args(words)

    tensors = dense_relu(128, 256, 784)
    report = autosched.tune(tensors, records=args.db, options=autosched.TuneOptions(trials=args.trials, threads=1))
    for task in report.tasks:
        print(f"{task.n_trials} trials, {task.n_failed} failed; best: {task.config or 'the default'}")
    module = autosched.build(tensors, target="cpu", records=args.db, threads=1)

    rng = np.random.default_rng(0)
    data, weight = (rng.standard_normal(shape, dtype=np.float32) for shape in ((128, 784), (256, 784)))
    out = autosched.nd.empty((128, 256))
    module(autosched.nd.array(data), autosched.nd.array(weight), out)
    error = np.abs(out.numpy() - np.maximum(data @ weight.T, 0)).max()
    print(f"largest difference from NumPy: {error:.1e}")


if __name__ == "__main__":
    main()
