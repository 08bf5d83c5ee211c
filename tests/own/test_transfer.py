"""Functions reach workers by value, and by name where that does not work."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from autosched.errors import UsageError
from autosched.own.transfer import SentFunction, pack_function, pack_types, place_of
from autosched.space import Config
from tests.own import kernels

LOCK = threading.Lock()


def cannot_be_pickled(x: Any, block: int = 1) -> Any:
    return x if LOCK else block


LOCKED = cannot_be_pickled
cannot_be_pickled = SimpleNamespace(py_func=LOCKED)  # type: ignore[assignment]  # as a decorator would have it


def sent(func: Any, values: tuple[Any, ...], place: str, text: str | None, blob: bytes) -> SentFunction:
    return SentFunction(blob, place, func.__name__, text, ("x",), ("block",), {}, pack_types(values))


def test_a_function_travels_with_callees_and_globals() -> None:
    values = (np.arange(3.0), 2.0)
    there = kernels.scale.sent_function(values)
    assert there.blob and "times" in (there.text or "")
    x = values[0].copy()
    there.dispatcher(Config(kernels.scale.space.name, {"block": 64}))(x, 2.0)
    assert (x == 2 * values[0]).all()


MODULE = """
import autosched, numba
def plain(x, a, block=1):
    for i in range(x.size):
        x[i] *= a
function = autosched.autotune({"block": [1, 2]})(numba.njit(plain))
"""
WORKER = """
import pickle, sys
import numpy as np
from autosched.own.compiler import OwnCompiler
from autosched.space import Config
from autosched.target import Target
sent = pickle.loads(sys.stdin.buffer.read())
kernel, _ = OwnCompiler().compile(sent, Config("own/travelling:plain", {"block": 2}), Target("cpu"))
x = np.ones(3)
kernel.open(sent)(x, 2.0)
assert (x == 2).all() and "travelling" not in sys.modules and kernel.code
"""


def test_workers_do_not_import_the_module_of_a_function(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "travelling.py").write_text(MODULE)
    monkeypatch.syspath_prepend(tmp_path)
    import travelling  # type: ignore[import-not-found]

    sent = pickle.dumps(travelling.function.sent_function((np.ones(3), 2.0)))
    env = {**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path), *sys.path])}
    subprocess.run([sys.executable, "-c", WORKER], input=sent, env=env, check=True)


def test_what_cannot_be_pickled_is_imported() -> None:
    place = place_of(LOCKED)
    assert pack_function(LOCKED, place) == b""
    assert sent(LOCKED, (1,), place, None, b"").func is LOCKED
    with pytest.raises(UsageError, match="put the function into a module"):
        pack_function(LOCKED, "__main__:cannot_be_pickled")


def test_a_type_that_numba_lacks_is_named() -> None:
    with pytest.raises(UsageError, match="no type for a object"):
        pack_types((object(),))


def test_a_script_is_imported_by_its_path(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text("import threading\nL = threading.Lock()\nNAME = __name__\ndef f(x, block=1):\n    return NAME\n")
    assert sent(LOCKED, (1,), f"{script}:f", None, b"").func(1) == "__autosched_worker__"


@pytest.mark.slow
@pytest.mark.parametrize("way", ["script", "stdin"])
def test_scripts_and_standard_input_can_tune(tmp_path: Path, way: str) -> None:
    text = """
import numba, numpy as np, autosched
SCALE = 2.0
@numba.njit
def inner(v):
    return v * SCALE
@autosched.autotune({"block": [1, 32]})
@numba.njit
def f(x, block=1):
    for s in range(0, x.size, block):
        for i in range(s, min(s + block, x.size)):
            x[i] = inner(x[i])
x = np.ones(100)
report = f.tune(x, records="own.db")
f(x)
print("RESULT", report.n_trials, report.n_failed, x.sum(), f.records()[0].workload.op)
"""
    (tmp_path / "job.py").write_text(text)
    command = [sys.executable, "job.py"] if way == "script" else [sys.executable]
    folder = str(Path(__file__).parents[2])
    done = subprocess.run(
        command, cwd=tmp_path, input=text if way == "stdin" else None, capture_output=True, text=True,
        env={"PYTHONPATH": folder, "PATH": "/usr/bin:/bin", "HOME": str(tmp_path)}, check=False,
    )  # fmt: skip
    name = "job" if way == "script" else "__main__"
    assert f"RESULT 2 0 200.0 own/{name}:f" in done.stdout, done.stderr
