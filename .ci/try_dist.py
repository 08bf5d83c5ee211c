"""Install the built wheel and sdist into fresh environments, outside the source tree, and use them as a user would.

    python .ci/try_dist.py dist

The wheel is installed with everything it depends on and its commands are run. What README prints to be typed is run as
it stands, in the unpacked sdist and an environment that has nothing before; what it installs are the wheel's files.
Exits with 1 on the first thing that does not work. Installs with uv where this interpreter has it, which takes seconds,
else with pip.
"""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys
import tarfile
import tempfile
import venv
import zipfile
from pathlib import Path

LIST_DATA = """
import importlib.util, pathlib
root = pathlib.Path(importlib.util.find_spec("autosched").origin).parent
print("\\n".join(sorted(str(p.relative_to(root)) for p in root.rglob("*") if p.suffix != ".pyc" and p.is_file())))
"""


# A model built where everything is installed, and run where only the serving set is.
SAVE = """
import sys
import autosched
from autosched import te
x = te.placeholder((8,), name="x")
autosched.build(te.create_prim_func([x, te.compute((8,), lambda i: x[i] * 2.0, name="y")])).save(sys.argv[1])
"""
SERVE = """
import sys
import numpy as np
import autosched
x = np.arange(8, dtype="float32")
y = np.zeros(8, dtype="float32")
assert not {"llvmlite", "numba"} & set(sys.modules)
autosched.load(sys.argv[1])(x, y)
assert (y == 2 * x).all(), y
"""
# What README takes as given: a model, and a file of its inputs.
GIVEN = """
import numpy as np
from onnx import TensorProto, helper, numpy_helper, save
x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, (4, n)) for name, n in (("x", 16), ("y", 8)))
weight = numpy_helper.from_array(np.ones((16, 8), "float32"), "w")
nodes = [helper.make_node("MatMul", ["x", "w"], ["h"]), helper.make_node("Softmax", ["h"], ["y"])]
graph = helper.make_graph(nodes, "g", [x], [y], [weight])
save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), "model.onnx")
np.savez("in.npz", x=np.ones((4, 16), "float32"))
"""
MOST_MIB = {"plain": 350, "serving": 120}

HAS_UV = importlib.util.find_spec("uv") is not None


def make_environment(folder: Path, with_pip: bool = not HAS_UV) -> Path:
    """Create a virtual environment; returns its Python."""
    venv.create(folder, with_pip=with_pip)
    return folder / "bin" / "python"


def install(python: Path, *what: object, cwd: Path) -> None:
    """Install something into the environment of `python`."""
    tool = (
        (sys.executable, "-m", "uv", "pip", "install", "--python", python)
        if HAS_UV
        else (python, "-m", "pip", "install")
    )
    run(*tool, "--quiet", *what, cwd=cwd)


def run(*command: object, cwd: Path, may_end_with: str | None = None, **environment: str) -> str:
    """Run a command without the source tree on its path; returns what it printed.

    may_end_with  a message with which it may fail
    """
    words = [str(word) for word in command]
    done = subprocess.run(
        words, cwd=cwd, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False,
        env={**os.environ, **environment},
    )  # fmt: skip
    if done.returncode and (may_end_with is None or may_end_with not in done.stdout):
        sys.exit(f"failed with {done.returncode}: {' '.join(words)}\n{done.stdout}")
    return done.stdout


def added_mib(python: Path, empty: int) -> int:
    """What is installed, in blocks of the disk and with all modules compiled, beyond `empty` MiB."""
    site = next((python.parents[1] / "lib").glob("python*/site-packages"))
    run(python, "-m", "compileall", "-q", "-j", "0", site, "-x", "lib2to3|/tests?/data/", cwd=site)
    return sum(path.lstat().st_blocks * 512 for path in site.rglob("*")) // 2**20 - empty


def type_off(page: Path, folder: Path) -> tuple[Path, int]:
    """Run the lines of a page that install and use autosched, in an empty environment.

    folder   an unpacked sdist, where the page's reader is
    returns  the Python of the environment, and the number of lines
    """
    python = make_environment(folder / f"typed-{page.stem}", with_pip=True)
    path = os.pathsep.join((str(python.parent), os.environ["PATH"]))
    blocks = re.findall(r"^```sh\n(.*?)^```$", page.read_text(encoding="utf-8"), re.M | re.S)
    lines = [line for block in blocks for line in block.splitlines() if line.startswith(("pip ", "autosched "))]
    for line in lines:
        data, short = str(folder / "data"), line.replace("--budget 10m", "--budget 10m --trials 4")
        if line.startswith("autosched bench "):
            short += " --time 100ms --warmup 10ms"
        without_gpu = "cuda:0 does not exist" if "--target cuda" in line else None
        settings = {"PATH": path, "XDG_DATA_HOME": data, "PIP_COMPILE": "no"}
        run("bash", "-c", short, cwd=folder, may_end_with=without_gpu, **settings)
        if line.startswith("pip "):
            run(python, "-c", GIVEN, cwd=folder)
    return python, len(lines)


def only(folder: Path, pattern: str) -> Path:
    found = sorted(folder.glob(pattern))
    if len(found) != 1:
        sys.exit(f"expected one {pattern} in {folder}, found {[path.name for path in found]}")
    return found[0]


def main(dist: Path) -> None:
    wheel, sdist = only(dist, "*.whl"), only(dist, "*.tar.gz")
    with zipfile.ZipFile(wheel) as archive:
        files = {name for name in archive.namelist() if not name.endswith("/") and ".dist-info/" not in name}
    strays = sorted(name for name in files if not name.startswith("autosched/"))
    if strays:
        sys.exit(f"the wheel installs files outside its package: {strays}")
    for folder in ("search_spaces", "tuning_logs"):
        if Path(folder).is_dir():
            expected = {
                f"autosched/_data/{path}" for path in Path(folder).rglob("*") if path.suffix in (".toml", ".jsonl")
            }
            if missing := sorted(expected - files):
                sys.exit(f"the wheel lacks {missing}")

    with tempfile.TemporaryDirectory() as place:
        work = Path(place)
        python = make_environment(work / "wheel")
        empty = added_mib(python, 0)
        install(python, wheel.resolve(), cwd=work)
        command = python.parent / "autosched"
        for words in (["--version"], ["--help"], ["doctor"], *([name, "--help"] for name in COMMANDS)):
            run(command, *words, cwd=work)
        installed = run(python, "-c", LIST_DATA, cwd=work)
        sizes = {"plain": added_mib(python, empty)}
        run(python, "-c", SAVE, work / "double.asx", cwd=work)

        python = make_environment(work / "serving")
        empty = added_mib(python, 0)
        install(python, "-r", Path("serving.txt").resolve(), cwd=work)
        install(python, "--no-deps", wheel.resolve(), cwd=work)
        run(python, "-c", SERVE, work / "double.asx", cwd=work)
        run(python.parent / "autosched", "run", "--help", cwd=work)
        sizes["serving"] = added_mib(python, empty)
        for name, limit in MOST_MIB.items():
            if sizes[name] > limit:
                sys.exit(f"the {name} installation takes {sizes[name]} MiB, more than {limit}")

        with tarfile.open(sdist) as archive:
            archive.extractall(work / "unpacked", filter="data")
        folder = only(work / "unpacked", "*")
        python, typed = type_off(folder / "README.md", folder)
        if run(python, "-c", LIST_DATA, cwd=work) != installed:
            sys.exit("the sdist installs other files than the wheel")
    said = ", ".join(f"{name} {mib} MiB" for name, mib in sizes.items())
    print(
        f"{wheel.name} and {sdist.name}: installed in clean environments, {len(files)} files, commands run, "
        f"{typed} of them as README prints them; {said}"
    )


COMMANDS = ("tune", "build", "run", "bench", "logs", "worker", "doctor")

if __name__ == "__main__":
    main(Path(sys.argv[1]))
