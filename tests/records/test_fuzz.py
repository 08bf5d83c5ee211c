"""Every reader on damaged input: a clear error of ours or a good answer; nothing else, and nothing is executed."""

from __future__ import annotations

import builtins
import contextlib
import json
import os
import pickle
import shutil
import socket
import subprocess
import tempfile
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from autosched.cli.tune_models import project_models
from autosched.errors import AutoschedError
from autosched.records import ReadReport, default_reader, open_store, read_lines, write_lines
from autosched.records.importing import read_log
from autosched.records.leases import config_name, task_name
from autosched.records.lock import read_lock, write_lock
from autosched.records.package import read_package
from autosched.records.places import project_database
from autosched.records.report import make_document
from autosched.records.statistics import task_statistics
from autosched.records.upgrade import upgrade_database
from autosched.records.where import parse_where
from autosched.space.constraints import constraint, holds
from autosched.space.toml import parse_space, space_from_file
from autosched.testing.tasks import matmul_task, record
from autosched.tuner.measure.cluster.device import Device, this_device

ROOT = Path(__file__).parents[2]
AUTOTVM = (
    '{"input": ["llvm -keys=cpu", "dense.x86", [["TENSOR", [1, 4], "float32"], null], {}], "config": {"index": 1, '
    '"code_hash": null, "entity": [["tile_k", "sp", [-1, 4]], ["u", "ot", true], ["o", "re", [0, 1]], '
    '["a", "an", "x"]]}, "result": [[0.001, 0.002], 0, 1.5, 1.6e9], "version": 0.2, "tvm_version": "0.9.0"}'
)
KERNEL_TUNER = {
    "device_name": "A100", "kernel_name": "vector_add", "problem_size": [1000], "tune_params_keys": ["block", "tile"],
    "tune_params": {"block": [32, 64], "tile": [1, 2]}, "objective": "time",
    "cache": {
        "32,1": {"block": 32, "tile": 1, "time": 0.5, "times": [0.5, 0.6], "timestamp": "2024-01-01 00:00:00+00:00"},
        "64,2": {"block": 64, "tile": 2, "time": "CompilationFailedConfig", "timestamp": "2024-01-01T00:00:00"},
    },
}  # fmt: skip
T4 = {
    "schema_version": "1.0.0",
    "results": [
        {
            "timestamp": "2024-01-01T00:00:00+00:00", "configuration": {"block": 32, "tile": 1.5},
            "times": {"runtimes": [0.5]}, "invalidity": "correct", "correctness": 1,
            "measurements": [{"name": "time", "value": 0.5, "unit": "ms"}], "objectives": ["time"],
        },
        {"configuration": {"block": 64}, "invalidity": "compile", "measurements": [], "objectives": ["time"]},
    ],
}  # fmt: skip
SPACE = (ROOT / "search_spaces" / "cpu" / "matmul.toml").read_text(encoding="utf-8")
SHAPE = {"batch": 1, "M": 64, "N": 64, "K": 64, "weight": 1, "lanes": 8, "registers": 16, "tile_words": 0}
EVIL = (
    "__import__('os').system('touch owned')", "().__class__.__bases__[0].__subclasses__()", "open('owned', 'w')",
    "exec('1')",
    "!!python/object/apply:os.system ['touch owned']", "cos\nsystem\n(S'touch owned'\ntR.", "\x00", "\ud800",
    "9" * 5000,
    "[" * 5000, "{" * 5000, '{"a":' * 3000, "(" * 5000, "1e999", "-0", "NaN", "Infinity", "9**9**9**9", "x" * (1 << 20),
    "rows == rows.__class__", "lambda: 0", "[x for x in ()]", "rows if rows else 0", "'a' * 10 ** 9", "1 << 10 ** 9",
)  # fmt: skip


@contextlib.contextmanager
def nothing_is_executed(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Fail where a reader unpickles, evaluates text, starts a process or opens a connection."""

    def refuse(*_: Any, **__: Any) -> None:
        raise AssertionError("a reader has executed something")

    with monkeypatch.context() as patch:
        for place, name in (
            *((pickle, name) for name in ("load", "loads", "Unpickler")),
            (builtins, "eval"),
            (subprocess, "Popen"), (os, "system"), (socket.socket, "connect"),
        ):  # fmt: skip
            patch.setattr(place, name, refuse)
        yield


def read_database(path: Path) -> None:
    with open_store(path, write=False, busy_s=0.1) as store:
        list(store.records())
        store.tasks()
        task_statistics(*store.trial_table(), store.wins())
        make_document(store)
        store.best(matmul_task())
        store.check()


def good_folder(path: Path) -> None:
    """One writer's log in a folder."""
    write_lines(path, [record(i, winner=i == 2) for i in range(1, 9)])


def read_folder(path: Path) -> None:
    with open_store(path.parent, write=False) as store:
        list(store.records())
        store.tasks()
        store.best(matmul_task())


def read_lease(path: Path) -> None:
    """Another writer's lease that nobody can read has expired, and is nothing to stumble over."""
    name = f"{task_name(matmul_task())}-{config_name(record(1).config)}"
    leases = path.parent / "logs" / ".leases"
    leases.mkdir(parents=True, exist_ok=True)
    shutil.copy(path, leases / name)
    with open_store(leases.parent) as store:
        store.claim(matmul_task(), [record(1).config], 1.0)


def merge_database(path: Path) -> None:
    with open_store(path, write=False, busy_s=0.1) as store, open_store(path.parent / "mine.db") as mine:
        mine.merge(store)


def write_database(path: Path) -> None:
    with open_store(path, busy_s=0.1) as store:
        store.add([record(100)])
        store.claim(matmul_task(), [record(101).config], 1.0)


def read_space(path: Path) -> None:
    space = space_from_file(path, SHAPE)
    assert space.count() >= 0


def good_database(path: Path) -> None:
    with open_store(path) as store:
        store.add([record(i, winner=i == 7) for i in range(1, 30)])


def good_lock(path: Path) -> None:
    write_lock(path, {matmul_task().key: (record(4).config, "here")}, {"threads": 2})


def into(text: str) -> Callable[[Path], None]:
    return lambda path: path.write_text(text, encoding="utf-8") and None


def build_looks_up(path: Path) -> None:
    """What a build does with the project's database: it never fails for that."""
    (path.parent / "autosched.toml").write_text(f'[records]\ndb = "{path.name}"\n')
    default_reader(start=path.parent).best(matmul_task())


READERS: dict[str, tuple[Callable[[Path], Any], Callable[[Path], Any]]] = {
    "JSON lines": (
        lambda path: write_lines(path, [record(i, winner=i == 2) for i in range(1, 4)]),
        lambda path: list(read_lines(path, ReadReport(""))),
    ),
    "AutoTVM": (into(f"{AUTOTVM}\n{AUTOTVM}\n"), lambda path: list(read_log(path, ReadReport("")))),
    "Kernel Tuner": (into(json.dumps(KERNEL_TUNER)), lambda path: list(read_log(path, ReadReport("")))),
    "Kernel Tuner, unfinished": (
        into(json.dumps(KERNEL_TUNER)[:-2] + ","), lambda path: list(read_log(path, ReadReport(""))),
    ),
    "T4": (into(json.dumps(T4)), lambda path: list(read_log(path, ReadReport("")))),
    "package": (lambda path: write_lines(path, [record(1, winner=True)], head="a package"), read_package),
    "database": (good_database, read_database),
    "database, written to": (good_database, write_database),
    "database, merged": (good_database, merge_database),
    "folder": (good_folder, read_folder),
    "lease": (into('{"owner": "another-0-1", "until": 1e12}'), read_lease),
    "worker's own facts": (
        into(this_device(threads=1).to_json()),
        lambda path: Device.from_json(path.read_text(encoding="utf-8", errors="replace")),
    ),
    "database, upgraded": (lambda path: shutil.copy(ROOT / "tests/records/corpus/schema-1.db", path), upgrade_database),
    "lock": (good_lock, read_lock),
    "space": (into(SPACE), read_space),
    "project file": (into('[records]\ndb = "x.db"\n'), lambda path: project_database(path.parent)),
    "project's models": (
        into('[tune]\nmodels = ["m.onnx", {model = "d.onnx", shapes = "x:3x4"}]\n'),
        lambda path: project_models(path.parent),
    ),
}  # fmt: skip
NAMES = {"project file": "autosched.toml", "project's models": "autosched.toml", "folder": "host-1-aaaa.jsonl"}


@st.composite
def damage(draw: st.DrawFn) -> Callable[[bytes], bytes]:
    """A change of some bytes: other ones, some out, some in, the end cut off, or a text that would like to be run."""
    kind = draw(st.sampled_from(("flip", "cut", "drop", "insert", "evil", "double", "zero")))
    where, many = draw(st.floats(0, 1)), draw(st.integers(1, 40))
    piece = (
        draw(st.binary(max_size=40))
        if kind == "insert"
        else draw(st.sampled_from(EVIL)).encode("utf-8", "surrogatepass")
    )
    quoted = draw(st.booleans())

    def apply(data: bytes) -> bytes:
        at = int(where * max(0, len(data) - 1))
        match kind:
            case "flip":
                return data[:at] + bytes(b ^ (1 << many % 8) for b in data[at : at + many]) + data[at + many :]
            case "cut":
                return data[:at]
            case "drop":
                return data[:at] + data[at + many :]
            case "zero":
                return data[:at] + bytes(len(data[at : at + many])) + data[at + many :]
            case "double":
                return data[:at] + data[max(0, at - many) :]
            case "evil" if quoted and b'"' in data[at:]:  # as a string's content
                start = data.index(b'"', at) + 1
                return data[:start] + piece.replace(b'"', b"'") + data[start:]
        return data[:at] + piece + data[at:]

    return apply


@pytest.fixture(scope="module", params=READERS)
def reader(request: pytest.FixtureRequest) -> str:
    """A reader that has read a good file: what it imports is there before executing anything is forbidden."""
    make, read = READERS[request.param]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / NAMES.get(request.param, "input")
        make(path)
        read(path)
    return str(request.param)


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(changes=st.lists(damage(), min_size=1, max_size=3))
def test_damaged_input_is_an_error_of_ours_or_read(
    reader: str, monkeypatch: pytest.MonkeyPatch, changes: list[Callable[[bytes], bytes]]
) -> None:
    make, read = READERS[reader]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / NAMES.get(reader, "input")
        make(path)
        for leftover in Path(folder).glob("input-*"):
            leftover.unlink()
        data = path.read_bytes()
        for change in changes:
            data = change(data)
        path.write_bytes(data)
        with nothing_is_executed(monkeypatch), warnings.catch_warnings():
            warnings.simplefilter("error")
            try:
                read(path)
            except AutoschedError as error:
                assert str(error) and len(str(error)) < 2000
        assert not Path("owned").exists() and not (Path(folder) / "owned").exists()
        if "written" not in reader and "upgraded" not in reader:
            assert path.read_bytes() == data  # whatever it was, it is still there


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(changes=st.lists(damage(), min_size=1, max_size=3))
def test_a_damaged_database_of_the_project_fails_no_build(changes: list[Callable[[bytes], bytes]]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "r.db"
        good_database(path)
        data = path.read_bytes()
        for change in changes:
            data = change(data)
        path.write_bytes(data)
        build_looks_up(path)
        assert path.read_bytes() == data


WORDS = st.sampled_from(
    (*EVIL, "rows", "vectors", "and", "or", "not", "+", "-", "*", "//", "%", "**", "(", ")", "==", "<=", "1", "0", ",",
     "in", "0.5", "op", "=", "ms", ">", "conv2d", "~", "'", '"', "min", "max", "ceildiv", "target")
)  # fmt: skip


@settings(max_examples=400, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(words=st.lists(WORDS | st.text(max_size=8), max_size=9), glue=st.sampled_from(("", " ")))
def test_constraints_and_conditions(words: list[str], glue: str, monkeypatch: pytest.MonkeyPatch) -> None:
    text = glue.join(words)
    with nothing_is_executed(monkeypatch):
        with contextlib.suppress(AutoschedError):
            parse_where(text)
        with contextlib.suppress(AutoschedError):
            rule = constraint(text)
            values = {name: np.arange(1, 4) for name in rule.expression.names}
            holds([rule], values, 3)


@pytest.mark.parametrize("evil", EVIL)
def test_texts_that_would_like_to_be_run(evil: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    with nothing_is_executed(monkeypatch):
        for text in (evil, f"rows <= {evil}", f"rows == '{evil}'"):
            for parse in (parse_where, constraint):
                with contextlib.suppress(AutoschedError):
                    parse(text)
        changed = SPACE.replace("matrix", evil).replace('at_most = "M"', f"at_most = {json.dumps(evil)}")
        with contextlib.suppress(AutoschedError):
            parse_space(changed, Path("space.toml"))
    assert not (tmp_path / "owned").exists()
