"""Install the built wheel and sdist into fresh environments, outside the source tree, and use them as a user would.

    python .ci/try_dist.py dist

The wheel is installed with everything it depends on and its commands are run; the sdist is installed alone, and its
files are compared with the wheel's. Exits with 1 on the first thing that does not work. Installs with uv where this
interpreter has it, which takes seconds, else with pip.
"""

from __future__ import annotations

import importlib.util
import subprocess
import sys
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
MOST_MIB = {"plain": 350, "serving": 120}

HAS_UV = importlib.util.find_spec("uv") is not None


def make_environment(folder: Path) -> Path:
    """Create a virtual environment; returns its Python."""
    venv.create(folder, with_pip=not HAS_UV)
    return folder / "bin" / "python"


def install(python: Path, *what: object, cwd: Path) -> None:
    """Install something into the environment of `python`."""
    tool = (
        (sys.executable, "-m", "uv", "pip", "install", "--python", python)
        if HAS_UV
        else (python, "-m", "pip", "install")
    )
    run(*tool, "--quiet", *what, cwd=cwd)


def run(*command: object, cwd: Path) -> str:
    """Run a command without the source tree on its path; returns what it printed."""
    words = [str(word) for word in command]
    done = subprocess.run(words, cwd=cwd, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)
    if done.returncode:
        sys.exit(f"failed with {done.returncode}: {' '.join(words)}\n{done.stdout}")
    return done.stdout


def added_mib(python: Path, empty: int) -> int:
    """What is installed, in blocks of the disk and with all modules compiled, beyond `empty` MiB."""
    site = next((python.parents[1] / "lib").glob("python*/site-packages"))
    run(python, "-m", "compileall", "-q", "-j", "0", site, "-x", "lib2to3|/tests?/data/", cwd=site)
    return sum(path.lstat().st_blocks * 512 for path in site.rglob("*")) // 2**20 - empty


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

        python = make_environment(work / "sdist")
        install(python, "--no-deps", sdist.resolve(), cwd=work)
        if run(python, "-c", LIST_DATA, cwd=work) != installed:
            sys.exit("the sdist installs other files than the wheel")
    said = ", ".join(f"{name} {mib} MiB" for name, mib in sizes.items())
    print(f"{wheel.name} and {sdist.name}: installed in clean environments, {len(files)} files, commands run; {said}")


COMMANDS = ("tune", "build", "run", "bench", "logs", "worker", "doctor")

if __name__ == "__main__":
    main(Path(sys.argv[1]))
