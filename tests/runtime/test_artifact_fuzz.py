"""Artifacts with manifests changed at random and hashes made anew: each loads and runs, or is refused in one line."""

from __future__ import annotations

import json
import os
import random
import struct
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import autosched
from autosched.env import child_environment
from autosched.errors import AutoschedError
from autosched.runtime import Executable
from autosched.runtime.artifact import _HEADER
from autosched.runtime.dynamic import DynamicExecutable
from autosched.runtime.library import read_module
from tests.driver.build.test_dynamic import mlp, model, n
from tests.runtime.kernels import chain
from tests.runtime.test_artifact_check import resealed, write

_NUMBERS = (
    0,
    -1,
    1,
    2,
    3,
    7,
    63,
    64,
    65,
    1000,
    1 << 20,
    1 << 31,
    -(1 << 31),
    (1 << 47) + 1,
    1 << 63,
    1 << 70,
    0.5,
    1e300,
)
_OTHERS = (
    None,
    True,
    "",
    "float64",
    "int8",
    "const",
    "arena",
    "alias",
    "input",
    "output",
    "__nop",
    [],
    {},
    [0],
    {"a": 1},
)


def _places(value: Any, found: list[tuple[Any, Any]]) -> list[tuple[Any, Any]]:
    for key in list(value) if isinstance(value, dict) else range(len(value)):
        found.append((value, key))
        if isinstance(value[key], dict | list):
            _places(value[key], found)
    return found


def change(manifest: dict[str, Any], source: random.Random) -> None:
    """Change one to three things of a manifest: a value, an entry that goes, doubles or trades places."""
    for _ in range(source.randint(1, 3)):
        container, key = source.choice(_places(manifest, []))
        match source.randrange(8):
            case 0:
                del container[key]
            case 1 if isinstance(container, list):
                container.append(container[key])
            case 2 if isinstance(container, list):
                other = source.randrange(len(container))
                container[key], container[other] = container[other], container[key]
            case 3:
                container[key] = source.choice(_OTHERS)
            case 4 | 5 if isinstance(container[key], int) and not isinstance(container[key], bool):
                container[key] += source.choice((-64, -1, 1, 64, container[key]))
            case _:
                container[key] = source.choice(_NUMBERS)


def attack(path: Path, seeds: range) -> None:
    """What the child process does. It dies where native code is led astray. A seed below 0 changes nothing."""
    data = path.read_bytes()
    size, start = struct.unpack_from("<QQ", data, 16)
    text = data[_HEADER.size : _HEADER.size + size]
    refused = ran = 0
    for seed in seeds:
        source = random.Random(seed)
        manifest, sections = json.loads(text), bytearray(data[start:])
        if seed >= 0:
            change(manifest, source)
        sealed = resealed(manifest, bytes(sections))
        write(path, json.dumps(manifest).encode(), sealed)
        try:
            loaded = read_module(path)
            if isinstance(loaded, DynamicExecutable):
                for rows in (1, 5, 70):
                    loaded(np.ones((rows, 50), np.float32))
                ran += 1
                continue
            if isinstance(loaded, Executable):
                loaded(*(np.ones(value.shape, value.dtype) for value in loaded.inputs))
            else:
                for name in loaded.graphs:
                    function = loaded[name]
                    function(*(np.ones(arg.shape, arg.dtype) for arg in function.args))
            ran += 1
        except (AutoschedError, MemoryError) as error:
            assert isinstance(error, AutoschedError), f"seed {seed}: {error!r}"
            assert "\n" not in str(error), f"seed {seed}: {error}"
            refused += 1
        except Exception as error:
            raise AssertionError(f"seed {seed}: {error!r}") from error
    print(refused, ran)


@pytest.mark.parametrize(
    ("kind", "n_mutants"),
    [("graph", 200), ("module", 100), ("dynamic", 100)]
    + [pytest.param(kind, 3000, marks=pytest.mark.slow) for kind in ("graph", "dynamic")],
)
def test_changed_manifests_never_crash(tmp_path: Path, kind: str, n_mutants: int) -> None:
    executable = chain(3, 4, constant=True)
    if kind == "dynamic":
        dynamic = autosched.build(model((n(), 50), mlp), records=[], threads=1)
        assert isinstance(dynamic, DynamicExecutable)
        dynamic.save(tmp_path / "model.asx")
    elif kind == "graph":
        executable.save(tmp_path / "model.asx")
    else:
        executable.get_lib().save(tmp_path / "model.asx")
    path = str(tmp_path / "model.asx")
    code = f"from tests.runtime.test_artifact_fuzz import *; attack(Path({path!r}), range(-1, {n_mutants}))"
    done = subprocess.run(
        [sys.executable, "-c", code],
        env=child_environment({"PYTHONPATH": str(Path(__file__).parents[2])}),
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, f"{done.returncode}: {done.stderr[-3000:]}"
    refused, ran = map(int, done.stdout.split())
    assert refused > n_mutants / 3
    assert ran > 0  # the file itself, at least: almost every change of a kernel is refused


def test_this_finds_lies(tmp_path: Path) -> None:
    """Most changes would be refused whatever is changed if the untouched file were."""
    path = tmp_path / "model.asx"
    chain(3, 4, constant=True).save(path)
    data = path.read_bytes()
    size, start = struct.unpack_from("<QQ", data, 16)
    write(path, data[_HEADER.size : _HEADER.size + size], data[start:])
    assert isinstance(read_module(path), Executable)
    assert os.path.getsize(path) == len(data)
