"""The kinds of files: what is mutated, how, and who reads the result."""

from __future__ import annotations

import io
import json
import sqlite3
import zipfile
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

import numpy as np

import autosched
from autosched.errors import RecordError
from autosched.records import open_store
from tests.fuzz import onnx_files
from tests.fuzz.mutate import mutate_bytes, mutate_document, mutate_text

ROOT = Path(__file__).parents[2]


@dataclass(frozen=True)
class Kind:
    """One kind of file.

    seeds   files that are good, made in a folder
    mutate  a mutant of one of them
    read    what a user would do with a file that he was given; raises what the reader raises
    """

    name: str
    suffix: str
    seeds: Callable[[Path], list[bytes]]
    mutate: Callable[[bytes, Random], bytes]
    read: Callable[[Path], Any]


def _text(data: bytes, rng: Random) -> bytes:
    if rng.random() < 0.2:
        return mutate_bytes(data, rng)
    return mutate_text(data.decode(), rng).encode("utf-8", "surrogatepass")


def _json_lines(data: bytes, rng: Random) -> bytes:
    if rng.random() < 0.3:
        return mutate_bytes(data, rng)
    lines = data.decode().splitlines()
    at = rng.randrange(len(lines))
    try:
        lines[at] = json.dumps(mutate_document(json.loads(lines[at]), rng))
    except ValueError:  # a comment, or a format of its own
        lines[at] = mutate_text(lines[at], rng).replace("\n", " ")
    return "\n".join(lines).encode("utf-8", "surrogatepass") + b"\n"


# --- records ---------------------------------------------------------------------------------------------------------


def _record_lines(folder: Path) -> list[bytes]:
    logs = sorted((ROOT / "tuning_logs").rglob("*.jsonl"))
    return [b"\n".join(log.read_bytes().splitlines()[:6]) + b"\n" for log in logs[:4]]


def _read_records(path: Path) -> None:
    from autosched.cli import main

    database = path.with_suffix(".target.db")
    database.unlink(missing_ok=True)
    if _command(main, "logs", "import", str(path), "--db", str(database)):
        raise RecordError("refused")


def _databases(folder: Path) -> list[bytes]:
    from autosched.records.importing import read_log
    from autosched.records.jsonl import ReadReport

    found = []
    for n, lines in enumerate(_record_lines(folder)[:2]):
        log, path = folder / f"{n}.jsonl", folder / f"{n}.db"
        log.write_bytes(lines)
        with open_store(path) as store:
            store.add(list(read_log(log, ReadReport(str(log)))))
        found.append(path.read_bytes())
    return found


def _mutate_database(data: bytes, rng: Random) -> bytes:
    """Bytes of the file, or values in its tables."""
    if rng.random() < 0.6:
        return mutate_bytes(data, rng)
    with closing(sqlite3.connect(":memory:")) as base:
        base.deserialize(data[:18] + b"\1\1" + data[20:])  # without a write-ahead log, which memory has none of
        tables = [row[0] for row in base.execute("select name from sqlite_master where type = 'table'")]
        table = rng.choice(tables)
        columns = [row[1] for row in base.execute(f"pragma table_info('{table}')")]
        column = rng.choice(columns)
        (value,) = base.execute(f"select {column} from {table} limit 1").fetchone() or (None,)
        found = mutate_document([value], rng)
        odd = found[0] if isinstance(found, list) and found else None
        try:
            base.execute("pragma ignore_check_constraints = 1")
            odd = json.dumps(odd) if isinstance(odd, list | dict) else odd
            base.execute(f"update {table} set {column} = ?", (odd,))
            base.commit()
        except (sqlite3.Error, OverflowError):
            return mutate_bytes(data, rng)
        return base.serialize()


def _read_database(path: Path) -> None:
    from autosched.cli import main

    if any([_command(main, "logs", word, "--db", str(path)) for word in ("list", "show", "verify")]):
        raise RecordError("refused")


def _command(main: Callable[[list[str]], int], *words: str) -> bool:
    """Run a command in this process: whether it refused what it was given. Raises an internal error again."""
    import contextlib

    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = main([*words, "-f", "json"])
    text = err.getvalue()
    if "internal error" in text or "Traceback" in text:
        raise AssertionError(text.strip()[:500])
    if code not in (0, 1, 2, 4):
        raise AssertionError(f"exit code {code}: {text.strip()[:500]}")
    return code != 0


# --- text ------------------------------------------------------------------------------------------------------------


PROJECT = b"""[records]
db = "tuned.db"

[tune]
models = ["m.onnx", {model = "d.onnx", shapes = "x:1x3x224x224"}]
budget = "30m"
threads = 4

[build]
strict = true

[logs.list]
since = "7d"
"""


def _spaces(folder: Path) -> list[bytes]:
    return [PROJECT, *(path.read_bytes() for path in sorted((ROOT / "search_spaces" / "cpu").glob("*.toml")))]


def _read_toml(path: Path) -> None:
    from autosched.cli.project_flags import read_flags
    from autosched.cli.tune import command
    from autosched.space.toml import parse_space, space_from_file

    values = dict.fromkeys(("M", "N", "K", "batch", "lanes", "registers", "threads", "inner", "elements"), 16)
    errors = []
    for reader in (
        lambda: read_flags(command, ("tune",), path),
        lambda: space_from_file(path, {**values, **{n: 4 for n in _names(path, parse_space)}}),
    ):
        try:
            reader()
        except autosched.errors.AutoschedError as error:
            errors.append(error)
    if len(errors) == 2:
        raise errors[0]


def _names(path: Path, parse: Callable[[str, Path], Any]) -> list[str]:
    head = parse(path.read_text(encoding="utf-8", errors="replace"), path).document["space"]
    return [name for name in head.get("values", []) if isinstance(name, str)]


def _scripts(folder: Path) -> list[bytes]:
    paths = sorted((ROOT / "tests" / "tvm_scripts").rglob("*.py"))[:30]
    small = [p.read_bytes() for p in paths if p.stat().st_size < 6000]
    return [SCRIPT, *small[:6]]


SCRIPT = b"""from tvm.script import ir as I, tir as T, relax as R

@I.ir_module
class Module:
    @T.prim_func
    def matmul(A: T.Buffer((8, 16), "float32"), B: T.Buffer((16, 8), "float32"), C: T.Buffer((8, 8), "float32")):
        for i, j, k in T.grid(8, 8, 16):
            with T.block("C"):
                vi, vj, vk = T.axis.remap("SSR", [i, j, k])
                with T.init():
                    C[vi, vj] = T.float32(0)
                C[vi, vj] = C[vi, vj] + A[vi, vk] * T.if_then_else(vk < 15, B[vk, vj], T.float32(1.5))

    @R.function
    def main(x: R.Tensor((8, 16), "float32"), w: R.Tensor((16, 8), "float32")) -> R.Tensor((8, 8), "float32"):
        cls = Module
        with R.dataflow():
            lv = R.call_tir(cls.matmul, (x, w), out_sinfo=R.Tensor((8, 8), "float32"))
            gv = R.add(lv, R.const(1.0, "float32"))
            R.output(gv)
        return gv
"""


def _read_script(path: Path) -> None:
    from autosched.driver.model_files import load_model

    load_model(path)


# --- arrays, artifacts, programs -------------------------------------------------------------------------------------


def _arrays(folder: Path) -> list[bytes]:
    found = []
    for save in (np.savez, np.savez_compressed):
        file = io.BytesIO()
        save(file, x=np.arange(12, dtype="f").reshape(3, 4), ids=np.arange(5))
        found.append(file.getvalue())
    return found


def _mutate_arrays(data: bytes, rng: Random) -> bytes:
    """Bytes of the archive, or of one of the arrays in it."""
    if rng.random() < 0.4:
        return mutate_bytes(data, rng)
    out = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(data)) as old, zipfile.ZipFile(out, "w") as new:
        chosen = rng.choice(old.namelist())
        for name in old.namelist():
            content = old.read(name)
            if name == chosen:
                head = content[:128]  # where type and shape stand
                content = rng.choice(
                    (mutate_bytes(content, rng), mutate_bytes(head, rng) + content[128:], _header(head, rng))
                )
            new.writestr(name, content)
    return out.getvalue()


def _header(head: bytes, rng: Random) -> bytes:
    """An array file with another text for its header, of the right length."""
    text = mutate_text(head[10:].decode("latin-1").rstrip(), rng).encode("utf-8", "replace")[:60000] + b"\n"
    return head[:8] + len(text).to_bytes(2, "little") + text + bytes(48)


def _read_arrays(path: Path) -> None:
    from autosched.cli.inputs import check_arrays, read_arrays

    check_arrays(read_arrays(path, {"x": None, "ids": None}), {"x": ((3, 4), "float32"), "ids": ((5,), "int64")})


def _artifacts(folder: Path) -> list[bytes]:
    from tests.driver.programs import matmul

    built = autosched.build(autosched.IRModule({"main": matmul()}), "cpu", records=[], threads=1)
    built.export_library(folder / "m.asx")
    return [(folder / "m.asx").read_bytes()]


def _read_artifact(path: Path) -> None:
    autosched.runtime.load_module(str(path))


def _programs(folder: Path) -> list[bytes]:
    import torch

    class Net(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv, self.fc = torch.nn.Conv2d(2, 3, 3, padding=1), torch.nn.Linear(12, 4)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            y = torch.nn.functional.max_pool2d(self.conv(x).relu(), 2)
            return torch.softmax(self.fc(y.flatten(1)) * 2 + 1, -1)

    program = torch.export.export(Net().eval(), (torch.randn(1, 2, 4, 4),))
    torch.export.save(program, folder / "net.pt2")
    return [(folder / "net.pt2").read_bytes()]


def _mutate_program(data: bytes, rng: Random) -> bytes:
    """Bytes of the archive, or a value of the JSON documents in it."""
    if rng.random() < 0.3:
        return mutate_bytes(data, rng)
    out = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(data)) as old, zipfile.ZipFile(out, "w") as new:
        names = [n for n in old.namelist() if n.endswith(".json")]
        chosen = rng.choice(names)
        for name in old.namelist():
            content = old.read(name)
            if name == chosen:
                content = json.dumps(mutate_document(json.loads(content), rng)).encode()
            new.writestr(name, content)
    return out.getvalue()


def _read_program(path: Path) -> None:
    from autosched.frontend.torch import load_program_file

    load_program_file(path)


KINDS = {
    kind.name: kind
    for kind in (
        Kind("onnx", ".onnx", onnx_files.seeds, onnx_files.mutate, onnx_files.read),
        Kind("pt2", ".pt2", _programs, _mutate_program, _read_program),
        Kind("asx", ".asx", _artifacts, mutate_bytes, _read_artifact),
        Kind("jsonl", ".jsonl", _record_lines, _json_lines, _read_records),
        Kind("sqlite", ".db", _databases, _mutate_database, _read_database),
        Kind("toml", ".toml", _spaces, _text, _read_toml),
        Kind("script", ".py", _scripts, _text, _read_script),
        Kind("npz", ".npz", _arrays, _mutate_arrays, _read_arrays),
    )
}
