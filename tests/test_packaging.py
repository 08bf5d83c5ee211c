"""What the packaging files promise agrees with the code."""

from __future__ import annotations

import ast
import configparser
import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import autosched
from autosched import relax
from autosched.cli import main
from autosched.env import child_environment
from tests.driver.programs import one_call
from tests.layers import modules, naming_nodes
from tests.own import kernels
from tests.rpc.parts import SERVER, save_model, start

ROOT = Path(__file__).parents[1]


def read_setup() -> configparser.ConfigParser:
    setup = configparser.ConfigParser()
    setup.read(ROOT / "setup.cfg")
    return setup


def requirement_names(text: str) -> set[str]:
    return {re.split(r"[<>=\[; ]", line)[0].lower() for line in text.split("\n") if line and not line.startswith("#")}


def imported_packages() -> set[str]:
    """Top-level packages that any module of autosched imports, also inside functions."""
    found: set[str] = set()
    for _, _, source in modules(ROOT / "autosched"):
        for node in naming_nodes(source):
            if isinstance(node, ast.Import):
                found |= {alias.name.split(".")[0] for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
                found.add(node.module.split(".")[0])
    return found - set(sys.stdlib_module_names) - {"autosched"}


def test_every_import_is_a_dependency_or_an_extra() -> None:
    options = read_setup()["options"]
    extras = read_setup()["options.extras_require"]
    declared = requirement_names(options["install_requires"]) | {"onnx", "torch", "onnxruntime", "openvino"}
    declared |= requirement_names(extras["cluster"]) | requirement_names(extras["plot"])
    for extra in ("cuda", "onnx", "report", "optuna", "xgboost"):
        declared |= requirement_names(extras[extra])
    declared |= {"pygments", "pandas"}  # colours, and frames, where they are installed
    declared |= {"pytest"}  # whoever uses TVM's fixtures of `autosched.testing` has it
    assert {"onnx", "torch"} <= set(extras)
    # what is called otherwise, and what a dependency cannot be without
    brought_by = {"scipy": "xgboost-cpu"}
    brought_by |= {"google": "onnx", "dask": "distributed", "cuda": "cuda-core", "re2": "google-re2"}
    missing = {brought_by.get(name, name) for name in imported_packages()} - declared
    assert not missing, f"imported but in no requirement: {missing}"


def test_every_dependency_has_an_upper_bound() -> None:
    for line in read_setup()["options"]["install_requires"].split("\n"):
        if line and line != "llvmlite":  # Numba pins it
            assert "<" in line, line


def test_version_is_what_the_package_says() -> None:
    assert re.fullmatch(r"\d+\.\d+\.\d+", autosched.__version__)
    assert read_setup()["metadata"]["version"] == "attr: autosched.version.__version__"
    assert f"## {autosched.__version__}" in (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")


ONLY_SERVING = """
import os, sys
allowed = set(os.environ["ALLOWED"].split())

class OnlyServing:
    def find_spec(self, name, path=None, target=None):
        top = name.partition(".")[0]
        if top not in allowed and top not in sys.stdlib_module_names and not top.startswith("_"):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, OnlyServing())
"""

SERVE = """
import sys
import numpy as np
import autosched
given = np.load(sys.argv[2])
executable = autosched.load(sys.argv[1])
assert np.array_equal(executable(given["x"]).numpy(), given["y"])
module = autosched.contrib.graph_executor.GraphModule(executable)
module.set_input("x0", given["x"])
module.run()
assert np.array_equal(module.get_output(0).numpy(), given["y"])
from autosched.cli import main
assert main(["run", sys.argv[1], "-q"]) == 0
for words in (["tune", "--help"], ["inspect", sys.argv[1]]):
    assert main(words) == 0, words
assert main(["logs", "list"]) == 2
try:
    autosched.build
except ModuleNotFoundError as error:
    assert "pip install autosched" in str(error), error
print("served")
"""


CALL = """
import sys
import numpy, autosched
x = numpy.arange(3.0)
autosched.load(sys.argv[1])(x, 2.0)
print(x.tolist())
"""


def serving_environment(folder: Path) -> dict[str, str]:
    """The environment of processes, and of their children, that find the packages of serving.txt alone."""
    serving = requirement_names((ROOT / "serving.txt").read_text(encoding="utf-8"))
    assert serving < requirement_names(read_setup()["options"]["install_requires"])
    (folder / "sitecustomize.py").write_text(ONLY_SERVING)
    return child_environment(
        {"ALLOWED": " ".join({*serving, "autosched"}), "PYTHONPATH": os.pathsep.join((str(folder), str(ROOT)))}
    )


def test_a_saved_model_is_served_by_the_packages_of_serving_txt(tmp_path: Path) -> None:
    """Neither LLVM nor Numba is among them: the linker and the detection of the CPU are autosched's own."""
    x = np.linspace(-1, 1, 64, dtype=np.float32).reshape(4, 16)
    weight = np.arange(256, dtype=np.float32).reshape(16, 16) / 256
    model = one_call(lambda x: relax.op.tanh(relax.op.matmul(x, relax.const(weight))), ((4, 16), "float32"))
    built = autosched.build(model, target="cpu", threads=2)
    built.save(tmp_path / "m.asx")
    np.savez(tmp_path / "xy.npz", x=x, y=built(x).numpy())
    words = [sys.executable, "-c", SERVE, str(tmp_path / "m.asx"), str(tmp_path / "xy.npz")]
    environment = serving_environment(tmp_path)
    done = subprocess.run(words, capture_output=True, text=True, check=False, env=environment)
    assert done.returncode == 0 and "served" in done.stdout, done.stderr
    assert "logs list" not in done.stderr and "pip install autosched" in done.stderr


def test_a_function_compiled_ahead_runs_with_the_packages_of_serving_txt(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    kernels.scale.save(tmp_path / "k.asx", np.ones(8), 2.0)
    environment = serving_environment(tmp_path)

    def said(words: list[str]) -> str:
        done = subprocess.run([sys.executable, *words], capture_output=True, text=True, check=False, env=environment)
        return done.stdout + done.stderr

    assert said(["-c", CALL, str(tmp_path / "k.asx")]) == "[0.0, 2.0, 4.0]\n"
    server, port = start(SERVER, environment=environment)
    try:
        assert main(["run", str(tmp_path / "k.asx"), "--remote", f"127.0.0.1:{port}/board"]) == 2
        said_here = capsys.readouterr().err
        assert "an artifact of functions is for the machine that loads it" in said_here and said_here.count("\n") == 1
    finally:
        server.kill()
        server.wait()
    for command in ("run", "inspect"):
        line = said(["-m", "autosched", command, str(tmp_path / "k.asx")])
        assert "holds functions and no model" in line and line.count("\n") == 1, line


def test_a_device_with_the_packages_of_serving_txt_runs_and_measures(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model = save_model(tmp_path / "m.onnx")
    server, port = start(SERVER, environment=serving_environment(tmp_path))
    try:
        place = ["--remote", f"127.0.0.1:{port}/board"]
        for words in (["run"], ["bench", "--runs", "20"], ["tune", "--trials", "2", "--db", str(tmp_path / "r.db")]):
            assert main([words[0], str(model), *place, *words[1:], "-q"]) == 0, capsys.readouterr().err
    finally:
        server.kill()
        server.wait()
