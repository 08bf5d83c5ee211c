"""The examples run and come to the right numbers."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from examples import model, operator, own_kernel, walkthrough

ROOT = Path(__file__).parents[2]


def largest_difference(text: str) -> float:
    found = re.search(r"largest difference from NumPy: (\S+)", text)
    assert found, text
    return float(found[1])


def test_operator(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    operator.main(["--trials", "4", "--db", str(tmp_path / "operator.db")])
    text = capsys.readouterr().out
    assert "4 trials, 0 failed" in text
    assert largest_difference(text) < 1e-3


def test_model(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model.main(["--trials", "4", "--folder", str(tmp_path)])
    text = capsys.readouterr().out
    assert "4 trials, 0 failed" in text
    assert largest_difference(text) < 1e-3
    assert {path.name for path in tmp_path.iterdir()} >= {"two_layers.asx", "model.db"}


def test_scikit_learn(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("skl2onnx")
    from examples import scikit_learn

    scikit_learn.main(["--folder", str(tmp_path / "new")])
    text = capsys.readouterr().out
    assert "150 of 150 rows" in text and "seven rows: [0, 0, 0, 0, 0, 0, 0]" in text
    found = re.search(r"difference of a probability: (\S+)", text)
    assert found and float(found[1]) < 1e-5


@pytest.mark.slow
def test_own_kernel(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    own_kernel.main(["--trials", "3", "--budget", "1m", "--db", str(tmp_path / "own.db")])
    text = capsys.readouterr().out
    assert "3 trials, 0 failed" in text and "def smooth(image, out, radius):" in text
    assert largest_difference(text) < 1e-5


def test_own_cuda_kernel(capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("numba_cuda", reason="the CUDA packages are an extra")
    from examples import own_cuda_kernel

    own_cuda_kernel.main(["--emulate"])
    assert "equal to NumPy: True" in capsys.readouterr().out


@pytest.mark.parametrize("style", ["llama", pytest.param("gpt2", marks=pytest.mark.slow)])
def test_generate(style: str, capsys: pytest.CaptureFixture[str]) -> None:
    """The prompt and each word from the cache give what PyTorch gives; every kind of weights runs."""
    torch = pytest.importorskip("torch")
    from examples import decoder as parts
    from examples import generate

    sizes = {"width": 64, "heads": 4, "layers": 1, "words": 96}
    words = [w for name, size in sizes.items() for w in (f"--{name}", str(size))]
    made = generate.main(["--style", style, *words, "--prompt", "4", "--count", "5", "--alone"])
    torch.manual_seed(0)
    shape = parts.Shape(style, **sizes, capacity=9)
    decoder = parts.Decoder(shape)

    def step(*inputs: np.ndarray) -> tuple[np.ndarray, ...]:
        with torch.no_grad():
            return tuple(x.numpy() for x in decoder(*map(torch.from_numpy, inputs)))

    text = np.random.default_rng(0).integers(0, shape.words, 4).tolist()
    assert made["float32"] == parts.Generator(shape, step, step).run(text, 5)[0]
    assert list(made) == list(generate.KINDS) and all(len(found) == 5 for found in made.values())
    assert capsys.readouterr().out.count("tokens/s") == 4


def test_walkthrough(capsys: pytest.CaptureFixture[str]) -> None:
    walkthrough.main()
    text = capsys.readouterr().out
    assert largest_difference(text) == 0
    for title in ("tensor expression", "schedule", "lowered", "built", "the kernel", "called", "timed"):
        assert f"== {title}" in text
    assert "for i_1 in T.vectorized(64)" in text


@pytest.mark.slow
def test_demo(tmp_path: Path) -> None:
    words = [sys.executable, "-m", "examples.demo", "--budget", "30s", "--time", "0.5", "--folder", str(tmp_path)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}  # its commands run in another folder
    done = subprocess.run(words, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    table = done.stdout[done.stdout.index("SqueezeNet, batch 1") :]
    assert all(name in table for name in ("autosched, untuned", "autosched, tuned", "ONNX Runtime"))
