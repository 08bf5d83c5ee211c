"""Artifacts whose checksums are right and whose manifest is hostile: refused in one line, before anything is used."""

from __future__ import annotations

import hashlib
import json
import os
import struct
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from autosched.errors import ArtifactError, InvalidTypeError
from autosched.runtime import CpuKernel, Executable, NeedsRebuildError, load_contents
from autosched.runtime.artifact import _HEADER, FORMAT_VERSION, MAGIC, _seal, _sealed_part
from autosched.runtime.artifact_check import check_tensor
from autosched.runtime.cpu.kernel import Sized
from autosched.runtime.graph import check_graph
from autosched.runtime.library import load
from tests.runtime.kernels import chain

Change = Callable[[dict[str, Any]], object]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "model.asx"
    chain(3, 2, constant=True).save(path)
    return path


def forge(path: Path, change: Change) -> None:
    """Change the manifest and make all sizes and checksums right again."""
    data = path.read_bytes()
    size, start = struct.unpack_from("<QQ", data, 16)
    manifest = json.loads(data[_HEADER.size : _HEADER.size + size])
    change(manifest)
    sections = resealed(manifest, data[start:])
    write(path, json.dumps(manifest).encode(), sections)


def resealed(manifest: dict[str, Any], sections: bytes) -> bytes:
    """The sections with the manifest's seal made anew, and its hash in the manifest, where they can be found there."""
    whole = bytearray(sections)
    try:
        first, *others = manifest["sections"]
        start, end = first["offset"], first["offset"] + first["size"]
        code = bytes(whole[start : end - 32])
        if start < 0 or len(code) != first["size"] - 32:
            return sections
        whole[end - 32 : end] = _seal(code, _sealed_part(manifest, [section["sha256"] for section in others]))
        first["sha256"] = hashlib.sha256(whole[start:end]).hexdigest()
    except (KeyError, TypeError, ValueError, IndexError):
        return sections
    return bytes(whole)


def write(path: Path, text: bytes, sections: bytes, **header: int) -> None:
    start = -(-(_HEADER.size + len(text)) // 64) * 64
    fields = {"version": FORMAT_VERSION, "size": len(text), "start": start, "total": start + len(sections)} | header
    digest = hashlib.sha256(text).digest()
    head = _HEADER.pack(MAGIC, fields["version"], 0, fields["size"], fields["start"], fields["total"], digest)
    path.write_bytes((head + text).ljust(start, b"\0") + sections)


def put(*keys: str | int, value: object) -> Change:
    def change(manifest: dict[str, Any]) -> None:
        place: Any = manifest
        for key in keys[:-1]:
            place = place[key]
        place[keys[-1]] = value

    return change


def drop(key: str) -> Change:
    return lambda manifest: manifest.pop(key)


HUGE = 1 << 62
CHANGES: dict[str, tuple[Change, str]] = {
    "offset before the file": (put("sections", 0, "offset", value=-64), "offset of section 0 is -64"),
    "offset behind the file": (put("sections", 1, "offset", value=1 << 40), "outside the file"),
    "offset beyond any file": (put("sections", 1, "offset", value=HUGE), "offset of section 1"),
    "offset between vectors": (put("sections", 3, "offset", value=8), "outside the file"),
    "size below nothing": (put("sections", 0, "size", value=-1), "size of section 0 is -1"),
    "size beyond the file": (put("sections", 3, "size", value=1 << 30), "outside the file"),
    "offset that is a text": (put("sections", 0, "offset", value="0"), "offset of section 0"),
    "offset that is a fraction": (put("sections", 0, "offset", value=0.5), "offset of section 0"),
    "sections that are none": (put("sections", value=7), "manifest does not fit"),
    "one section too few": (lambda m: m["sections"].pop(), "manifest does not fit"),
    "no kernels": (drop("kernels"), "'kernels' is missing"),
    "no machine": (drop("machine"), "'machine' is missing"),
    "no sections": (drop("sections"), "'sections' is missing"),
    "no maker's notes": (put("info", value={}), "'manifest' is missing"),
    "maker's notes that are a list": (put("info", value=[]), "manifest does not fit"),
    "unknown kind": (put("kind", value="../../etc/passwd"), "unknown kind '../../etc/passwd'"),
    "kernel that is not there": (put("kernel_order", 0, value="../../evil"), "is missing"),
    "Python objects": (put("constants", 0, 0, value="O"), "constant 0 has dtype 'O'"),
    "records": (put("constants", 0, 0, value="i4,O"), "constant 0 has dtype"),
    "no dtype at all": (put("constants", 0, 0, value="../float"), "constant 0 has dtype"),
    "constant of another size": (put("constants", 0, 1, value=[3, 65]), "manifest does not fit"),
    "constant of a huge size": (put("constants", 0, 1, value=[HUGE, HUGE]), "constant 0"),
    "constant of any size": (put("constants", 0, 1, value=[-1]), "extent of constant 0 is -1"),
    "scratch below nothing": (put("kernels", "double", "scratch_bytes", value=-64), "scratch_bytes of kernel"),
    "scratch that is huge": (put("kernels", "double", "scratch_bytes", value=HUGE), "scratch_bytes of kernel"),
    "scratch that is crooked": (put("kernels", "double", "scratch_bytes_per_worker", value=7), "no multiple of 64"),
    "pieces below nothing": (put("kernels", "double", "phases", 0, 1, value=-5), "pieces of kernel 'double'"),
    "pieces without end": (put("kernels", "double", "phases", 0, 1, value=HUGE), "pieces of kernel 'double'"),
    "argument of a huge size": (put("kernels", "double", "args", 0, 3, value=[1 << 32, 1 << 32]), "argument 'x0'"),
    "argument that is neither": (put("kernels", "double", "args", 0, 1, value="both"), "neither input nor output"),
    "arena below nothing": (put("graphs", "main", "arena_bytes", value=-64), "arena of graph 'main' is -64"),
    "arena that is huge": (put("graphs", "main", "arena_bytes", value=HUGE), "arena of graph 'main'"),
    "value of a huge size": (put("graphs", "main", "values", 0, 1, value=[1 << 32, 1 << 32]), "value 'x'"),
    "value outside the arena": (
        lambda m: m["graphs"]["main"]["values"][-1].__setitem__(slice(3, 5), ["arena", 1 << 20]),
        "lies outside the arena",
    ),
    "value that does not exist": (put("graphs", "main", "inputs", 0, value=99), "names value 99"),
    "value before the first": (put("graphs", "main", "outputs", 0, value=-1), "names value -1"),
    "node of a missing kernel": (put("graphs", "main", "nodes", 0, 1, value="/bin/sh"), "'/bin/sh', which is missing"),
    "no graph": (put("graphs", value={}), "no graph 'main'"),
    "features that are numbers": (put("features", value=[1, 2]), "for a CPU with 1, 2"),
}


@pytest.mark.parametrize("name", CHANGES)
def test_hostile_manifests(path: Path, name: str, recwarn: pytest.WarningsRecorder) -> None:
    change, message = CHANGES[name]
    forge(path, lambda manifest: None)
    load_contents(path)  # a forgery that changes nothing is fine: what is refused below is the change
    forge(path, change)
    with pytest.raises(ArtifactError) as caught:
        load_contents(path)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)
    assert "model.asx" in str(caught.value)
    assert isinstance(caught.value, NeedsRebuildError) == (name == "features that are numbers")
    assert [item.name for item in path.parent.iterdir()] == ["model.asx"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (b"", "does not fit"),
        (b"null", "it is no object"),
        (b"[]", "it is no object"),
        (b"{}", "'sections' is missing"),
        (b"{" * 100000, "does not fit"),
        (b"[" * 100000, "does not fit"),
        (b"\xff\xfe", "does not fit"),
        (b'{"sections": ' + b"9" * 10000 + b"}", "does not fit"),
    ],
)
def test_manifests_that_are_none(path: Path, text: bytes, message: str) -> None:
    write(path, text, b"")
    with pytest.raises(ArtifactError, match=message):
        load_contents(path)


@pytest.mark.parametrize(
    "header",
    [
        {"start": 0},
        {"start": 65},
        {"start": 1 << 60},
        {"size": 1 << 60},
        {"total": 1 << 60},
        {"total": 0},
        {"start": 64},
    ],
)
def test_headers_that_lie(path: Path, header: dict[str, int]) -> None:
    write(path, b'{"sections": []}', b"", **header)
    with pytest.raises(ArtifactError, match="model.asx is (damaged|cut short)"):
        load_contents(path)


def test_object_code_that_is_none(path: Path) -> None:
    """Its checksum may be right: what is not linked is not run."""
    data = bytearray(path.read_bytes())
    size, start = struct.unpack_from("<QQ", data, 16)
    manifest = json.loads(data[_HEADER.size : _HEADER.size + size])
    section = manifest["sections"][1]
    code = os.urandom(section["size"])
    data[start + section["offset"] : start + section["offset"] + section["size"]] = code
    section["sha256"] = hashlib.sha256(code).hexdigest()
    sections = resealed(manifest, bytes(data[start:]))
    write(path, json.dumps(manifest).encode(), sections)
    with pytest.raises(ArtifactError, match=r"does not fit \(kernel 'double' is not the one that it describes"):
        Executable.load(path)


KERNEL = ("kernels", "double")
LIES: dict[str, Change] = {
    "more pieces than the code was made for": put(*KERNEL, "phases", 0, 1, value=1 << 20),
    "fewer instruction sets than the code needs": put(*KERNEL, "features", value=[]),
    "no scratch": put("kernels", "add", "scratch_bytes", value=1 << 20),
    "smaller arguments, and values to match": lambda manifest: _shrink(manifest, 1),
    "larger arguments, and values to match": lambda manifest: _shrink(manifest, 300),
}


def _shrink(manifest: dict[str, Any], rows: int) -> None:
    for kernel in manifest["kernels"].values():
        for arg in kernel["args"]:
            arg[3] = [rows, 64]
    for value in manifest["graphs"]["main"]["values"]:
        value[1] = [rows, 64]
    manifest["graphs"]["main"]["arena_bytes"] = max(manifest["graphs"]["main"]["arena_bytes"], rows * 1024)


@pytest.mark.parametrize("name", LIES)
def test_lies_about_object_code_are_refused(path: Path, name: str) -> None:
    change = LIES[name]
    if name.startswith("fewer"):
        data = path.read_bytes()
        kernel = json.loads(data[_HEADER.size : _HEADER.size + struct.unpack_from("<Q", data, 16)[0]])["kernels"]
        change = put(*KERNEL, "features", value=[*kernel["double"]["features"], "sse2"])
    forge(path, change)
    with pytest.raises(ArtifactError, match="is not the one that it describes|needs constant|does not fit"):
        load_contents(path)


@pytest.mark.parametrize("keys", [("info", "manifest"), ("graphs", "main", "arena_bytes"), ("features",)])
def test_a_manifest_whose_hash_alone_is_made_anew_is_refused(path: Path, keys: tuple[str, ...]) -> None:
    data = path.read_bytes()
    size, start = struct.unpack_from("<QQ", data, 16)
    manifest = json.loads(data[_HEADER.size : _HEADER.size + size])
    put(*keys, value={"manifest": {"x": 1}, "arena_bytes": 0, "features": ["sse2"]}[keys[-1]])(manifest)
    write(path, json.dumps(manifest).encode(), data[start:])
    with pytest.raises(ArtifactError, match="the native loop is not the one that it describes"):
        load_contents(path)


def test_values_that_are_read_before_they_are_written_are_refused(path: Path) -> None:
    forge(path, lambda manifest: manifest["graphs"]["main"]["nodes"].reverse())
    with pytest.raises(ArtifactError, match="too early"):
        load_contents(path)
    forge(path, lambda manifest: manifest["graphs"]["main"]["nodes"].clear())
    with pytest.raises(ArtifactError, match="nothing of graph 'main' writes 'y'"):
        load_contents(path)


def test_a_kernel_over_symbols_is_not_called_without_their_values_or_for_nothing() -> None:
    executable = chain(3, 1)
    kernel = executable.kernels["double"]
    assert isinstance(kernel, CpuKernel)
    shape = ("n", 64)
    open_kernel = replace(kernel, sized=Sized(("n",), ("n",), 0, 0, (shape, shape), 0))
    with pytest.raises(ArtifactError, match="whose sizes are not known"):
        check_graph(executable.graph, {"double": open_kernel}, ())
    check_graph(executable.graph, {"double": open_kernel.at((3,))}, ())
    with pytest.raises(ArtifactError, match="called with the sizes 0"):
        open_kernel.at((0,))


def test_a_kernel_that_writes_to_a_constant_is_refused(path: Path) -> None:
    """The node's last value is taken for the constant, which has the same type."""

    def change(manifest: dict[str, Any]) -> None:
        values = manifest["graphs"]["main"]["values"]
        number = next(number for number, value in enumerate(values) if value[3] == "const")
        manifest["graphs"]["main"]["nodes"][0][3] = [number]

    forge(path, change)
    with pytest.raises(ArtifactError, match="which is a constant"):
        load_contents(path)


def test_more_memory_than_the_machine_has_is_refused(path: Path) -> None:
    def change(manifest: dict[str, Any]) -> None:
        manifest["graphs"]["main"]["values"].append(["unused", [1 << 40], "float32", "input", 1])
        manifest["graphs"]["main"]["inputs"].append(len(manifest["graphs"]["main"]["values"]) - 1)

    forge(path, change)
    with pytest.raises(ArtifactError, match="more than this machine has"):
        load_contents(path)


def test_strict_refuses_to_compile_at_run_time(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    forge(path, put("features", value=["imaginary"]))
    monkeypatch.setenv("AUTOSCHED_STRICT", "1")
    with pytest.raises(ArtifactError, match="imaginary, which this one lacks; unset AUTOSCHED_STRICT"):
        load(path)


def test_sizes_do_not_wrap() -> None:
    from autosched.runtime import ArgSpec, Storage, Value

    assert Value("x", (1 << 32, 1 << 32), "int8", Storage("input", 0)).size_bytes == 1 << 64
    assert ArgSpec("x", "input", "int8", (1 << 32, 1 << 32)).size_bytes == 1 << 64


def test_bfloat16_without_its_package_is_told_as_such(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ml_dtypes", None)
    with pytest.raises(InvalidTypeError, match="ml_dtypes"):
        check_tensor("input 'x'", "bfloat16", (2, 3))
