"""The artifact `.asx`: one file with kernels, graphs and constants, that loads without any compiler.

    header     magic, format version, sizes, SHA-256 of the manifest
    manifest   JSON: kernels, graphs, constants, instruction sets, versions, and each section's place and SHA-256
    sections   object code and constants, uncompressed, each at a multiple of 64 bytes (mapped, not read)

An artifact for several instruction sets holds a manifest for each, and each section's content once, whoever uses it.
A hash proves that a file is whole, not that it comes from somebody you trust: an artifact is native code.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import platform
import struct
import uuid
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from autosched.errors import ArtifactError, InvalidTypeError
from autosched.runtime.artifact_check import check_contents, check_kernel, check_sections, check_tensor
from autosched.runtime.graph import Graph
from autosched.runtime.kernel import ABI_VERSION, Kernel
from autosched.runtime.native_abi import NATIVE_ABI_VERSION
from autosched.target import host_cpu
from autosched.version import __version__

FORMAT_VERSION = 2  # of files with several variants; one variant is written as in version 1, which older ones read
MAGIC = b"\x89ASX\r\n\x1a\n"  # as PNG's: a transfer that changes line ends is noticed
_HEADER = struct.Struct("<8sIIQQQ32s")  # magic, version, 0, manifest bytes, first section, file bytes, SHA-256
_ALIGNMENT = 64
_ABI = [ABI_VERSION, NATIVE_ABI_VERSION]


@dataclass(frozen=True, slots=True)
class Contents:
    """What an artifact holds.

    kind  "graph" (an Executable, its graph is graphs["main"]), "module", or "source" (the text of functions that are
          compiled when their sizes are known, in the manifest)
    info  JSON values of the maker: versions, the build report, what it takes to build the kernels again
    variant   which one this is of several in its file, "" where there is one;  variants  all of them
    """

    kind: str
    kernels: Mapping[str, Kernel]
    native: bytes = field(repr=False)
    graphs: Mapping[str, Graph]
    constants: tuple[np.ndarray, ...] = field(repr=False)
    info: Mapping[str, Any]
    variant: str = ""
    variants: tuple[str, ...] = ()


class NeedsRebuildError(ArtifactError):
    """An artifact whose machine code does not run here, though the file is whole.

    contents  what the file holds, from which its kernels can be built again
    reason    "features", "machine", "abi", or "source": it holds no machine code
    missing   instruction sets that this machine lacks
    """

    def __init__(self, message: str, reason: str, contents: Contents, missing: tuple[str, ...] = ()):
        super().__init__(message, hint="build its kernels again for this machine (autosched.load does so by itself)")
        self.reason, self.contents, self.missing = reason, contents, missing

    def __reduce__(self) -> tuple[Any, ...]:
        return NeedsRebuildError, (self.message, self.reason, self.contents, self.missing)


# Writing


EXTENSIONS = (".so", ".tar", ".asx", ".dylib", ".dll", ".o")


def export_path(path: str | Path) -> Path:
    """The file that `export_library` writes: all extensions mean the same artifact, and a name may have none.

    Raises TypeError for what is no path, ArtifactError for another extension and for a folder that does not exist.
    """
    if not isinstance(path, str | os.PathLike):
        raise InvalidTypeError(f"export_library: the path is a {type(path).__name__}, not a text")
    found = Path(path)
    if found.suffix not in ("", *EXTENSIONS):
        raise ArtifactError(
            f"export_library: '{found.name}' has the unknown extension '{found.suffix}'",
            hint=f"use {', '.join(EXTENSIONS)}",
        )
    if not found.parent.is_dir():
        raise ArtifactError(f"export_library: the folder {found.parent} does not exist")
    return found


def save_contents(contents: Contents, path: Path) -> None:
    """Write an artifact; the file appears whole or not at all.

    Raises ArtifactError if it cannot be written.
    """
    blobs = _blobs(contents)
    sections, data_bytes = _lay_out(blobs)
    _write(Path(path), 1, _manifest(contents, sections), blobs, sections, data_bytes)


def save_variants(variants: Mapping[str, Contents], path: Path) -> None:
    """Write what was built for several instruction sets as one artifact; equal contents are stored once.

    variants  by the names of what they were built for
    Raises    ArtifactError if it cannot be written.
    """
    blobs: list[bytes | np.ndarray] = []
    place: dict[tuple[str, int], int] = {}  # hash and size of a content -> its section
    manifests = []
    for name, contents in variants.items():
        own = _blobs(contents)
        keys = [(section["sha256"], section["size"]) for section in _lay_out(own)[0]]
        for key, blob in zip(keys, own, strict=True):
            if key not in place:
                place[key] = len(blobs)
                blobs.append(blob)
        manifests.append({"name": name, **_manifest(contents, [place[key] for key in keys])})
    sections, data_bytes = _lay_out(blobs)
    manifest = {"kind": "variants", "autosched": __version__, "variants": manifests, "sections": sections}
    _write(Path(path), FORMAT_VERSION, manifest, blobs, sections, data_bytes)


def _blobs(contents: Contents) -> list[bytes | np.ndarray]:
    code = [contents.native, *(kernel.code for kernel in contents.kernels.values())]
    return [*code, *(np.ascontiguousarray(constant) for constant in contents.constants)]


def _write(
    path: Path, version: int, document: Any, blobs: Sequence[Any], sections: Sequence[Any], data_bytes: int
) -> None:
    manifest = json.dumps(document, sort_keys=True, separators=(",", ":")).encode()
    start = _align(_HEADER.size + len(manifest))
    digest = hashlib.sha256(manifest).digest()
    header = _HEADER.pack(MAGIC, version, 0, len(manifest), start, start + data_bytes, digest)
    temporary = path.with_name(f".{path.name}.{uuid.uuid4().hex[:12]}.tmp")
    try:
        with open(temporary, "xb") as file:
            file.write(header + manifest)
            for blob, section in zip(blobs, sections, strict=True):
                _write_at(file, start + section["offset"], blob)
            file.truncate(start + data_bytes)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except OSError as error:
        raise ArtifactError(f"cannot write {path}: {error.strerror or error}") from error
    finally:
        with contextlib.suppress(OSError):
            temporary.unlink()


def save_source(path: Path, script: str, target: str, runs: str) -> None:
    """Write functions as text, for those whose sizes are known only when they are called.

    script  the module as `IRModule.script` prints it, constants included
    target  as JSON
    runs    "module" or "vm": what `autosched.load` makes of it
    Raises  ArtifactError if it cannot be written.
    """
    manifest = {"source": script, "target": target, "runs": runs}
    save_contents(Contents("source", {}, b"", {}, (), {"entry": "", "manifest": manifest}), path)


def _align(size: int) -> int:
    return -(-size // _ALIGNMENT) * _ALIGNMENT


def _lay_out(blobs: Sequence[bytes | np.ndarray]) -> tuple[list[dict[str, Any]], int]:
    """Give each blob's place after the first section's start, and the size of all."""
    sections, at = [], 0
    with ThreadPoolExecutor(4) as pool:  # hashing releases Python's lock
        digests = list(pool.map(_digest, blobs))
    for blob, digest in zip(blobs, digests, strict=True):
        size = blob.nbytes if isinstance(blob, np.ndarray) else len(blob)
        sections.append({"offset": at, "size": size, "sha256": digest})
        at = _align(at + size)
    return sections, at


def _digest(blob: bytes | np.ndarray) -> str:
    return hashlib.sha256(_bytes_of(blob)).hexdigest()


def _bytes_of(blob: bytes | np.ndarray) -> bytes | memoryview:
    return blob if isinstance(blob, bytes) else blob.reshape(-1).view(np.uint8).data


def _write_at(file: BinaryIO, offset: int, blob: bytes | np.ndarray) -> None:
    file.write(b"\0" * (offset - file.tell()))
    file.write(_bytes_of(blob))


def _manifest(contents: Contents, sections: Sequence[Any]) -> dict[str, Any]:
    features = sorted({feature for kernel in contents.kernels.values() for feature in kernel.features})
    return {
        "kind": contents.kind,
        "autosched": __version__,
        "abi": _ABI,
        "machine": platform.machine().lower(),
        "features": features,
        "kernels": {key: kernel.to_manifest() for key, kernel in contents.kernels.items()},
        "kernel_order": list(contents.kernels),
        "graphs": {name: graph.to_manifest() for name, graph in contents.graphs.items()},
        "constants": [[str(constant.dtype), list(constant.shape)] for constant in contents.constants],
        "sections": list(sections),
        "info": dict(contents.info),
    }


# Reading


def is_artifact(path: Path) -> bool:
    """Tell whether a file begins as an artifact does."""
    try:
        with open(path, "rb") as file:
            return file.read(len(MAGIC)) == MAGIC
    except OSError:
        return False


def load_contents(path: Path, *, check_constants: bool = True) -> Contents:
    """Read an artifact; constants stay in the file and are mapped.

    check_constants  compare the constants' hashes too, which reads the whole file (about 1 GB/s and core)
    Raises           ArtifactError if the file is missing, no artifact, cut short, damaged or of a newer version;
                     NeedsRebuildError if it is whole and its machine code does not run here.
    """
    path = Path(path)
    try:
        data = np.memmap(path, np.uint8, mode="r").view(np.ndarray)
    except OSError as error:
        raise ArtifactError(f"cannot read {path}: {error.strerror or error}") from error
    except ValueError:
        raise ArtifactError(f"{path} is empty") from None
    manifest, start = _read_manifest(path, data)
    try:
        manifest = _choose_variant(manifest)
        contents = _read_contents(path, data[start:], manifest, check_constants)
        requirement = _requirement(path, manifest, contents)
    except KeyError as error:
        raise _malformed(path, f"{error} is missing") from error
    except (TypeError, ValueError, IndexError, AttributeError, OverflowError) as error:
        raise _malformed(path, str(error)) from error
    if requirement is not None:
        raise requirement
    return contents


def _choose_variant(manifest: dict[str, Any]) -> dict[str, Any]:
    """Of several variants the best one that runs here, else the one that needs the least more; its manifest."""
    if manifest.get("kind") != "variants":
        return manifest
    sections, here = manifest["sections"], host_cpu().runnable
    variants = manifest["variants"]

    def rank(variant: Mapping[str, Any]) -> tuple[int, int]:
        needed = set(map(str, variant["features"]))
        return len(needed - here), -len(needed)

    chosen = min(variants, key=rank)
    if any(type(index) is not int or not 0 <= index < len(sections) for index in chosen["sections"]):
        raise ValueError("a variant's sections lie outside the file")
    names = [str(variant["name"]) for variant in variants]
    return {**chosen, "sections": [sections[index] for index in chosen["sections"]], "names": names}


def _malformed(path: Path, problem: str) -> ArtifactError:
    return ArtifactError(f"{path} is damaged: its manifest does not fit ({problem})", hint="copy or build it again")


def _read_manifest(path: Path, data: np.ndarray) -> tuple[dict[str, Any], int]:
    head = data[: _HEADER.size].tobytes()
    if not head.startswith(MAGIC[: len(head)]) or len(head) < len(MAGIC):
        raise ArtifactError(f"{path} is no autosched artifact")
    if len(head) < _HEADER.size:
        raise ArtifactError(f"{path} is cut short: {len(data)} bytes are left", hint="copy or build it again")
    _, version, _, manifest_bytes, start, file_bytes, digest = _HEADER.unpack(head)
    if version > FORMAT_VERSION:
        raise ArtifactError(
            f"{path} was written by a newer autosched (format {version}, this one reads up to {FORMAT_VERSION})",
            hint="upgrade autosched, or build the model again with this version",
        )
    if len(data) < file_bytes:
        raise ArtifactError(
            f"{path} is cut short: {len(data)} of {file_bytes} bytes are there", hint="copy or build it again"
        )
    text = data[_HEADER.size : _HEADER.size + manifest_bytes].tobytes()
    if len(data) != file_bytes or len(text) != manifest_bytes or hashlib.sha256(text).digest() != digest:
        raise _damaged(path, "its manifest")
    if start % _ALIGNMENT or not _HEADER.size + manifest_bytes <= start <= file_bytes:
        raise _malformed(path, f"sections begin at {start}")
    try:
        manifest = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise _malformed(path, str(error)) from None
    if not isinstance(manifest, dict):
        raise _malformed(path, "it is no object")
    return manifest, start


def _damaged(path: Path, what: str) -> ArtifactError:
    return ArtifactError(f"{path} is damaged: {what} does not match its checksum", hint="copy or build it again")


def _read_contents(path: Path, data: np.ndarray, manifest: Mapping[str, Any], check_constants: bool) -> Contents:
    sections = manifest["sections"]
    check_sections(sections, len(data), _ALIGNMENT)
    blobs = [data[section["offset"] : section["offset"] + section["size"]] for section in sections]
    keys = list(manifest["kernel_order"])
    names = ["the native loop", *(f"kernel '{key}'" for key in keys)]
    names += [f"constant {index}" for index in range(len(manifest["constants"]))]
    n_checked = len(blobs) if check_constants else 1 + len(keys)
    with ThreadPoolExecutor(4) as pool:
        digests = list(pool.map(_digest, blobs[:n_checked]))
    for name, section, digest in zip(names, sections, digests):
        if section["sha256"] != digest:
            raise _damaged(path, name)
    for key in keys:
        check_kernel(key, manifest["kernels"][key])
    for index, (dtype, shape) in enumerate(manifest["constants"]):
        check_tensor(f"constant {index}", dtype, shape)
    objects = [blob.tobytes() for blob in blobs[: 1 + len(keys)]]
    kernels = {
        key: Kernel.from_manifest(manifest["kernels"][key], code) for key, code in zip(keys, objects[1:], strict=True)
    }
    constants = tuple(
        blob.view(np.dtype(dtype)).reshape(shape)
        for blob, (dtype, shape) in zip(blobs[1 + len(keys) :], manifest["constants"], strict=True)
    )
    graphs = {name: Graph.from_manifest(entry) for name, entry in manifest["graphs"].items()}
    contents = Contents(
        manifest["kind"], kernels, objects[0], graphs, constants, manifest["info"], str(manifest.get("name", "")),
        tuple(manifest.get("names", ())),
    )  # fmt: skip
    check_contents(contents.kind, contents.info, kernels, graphs, constants)
    return contents


def _requirement(path: Path, manifest: Mapping[str, Any], contents: Contents) -> NeedsRebuildError | None:
    """What this machine lacks to run the code inside; None where nothing."""
    if contents.kind == "source":
        return NeedsRebuildError(f"{path} holds functions that are compiled when they are called", "source", contents)
    machine = platform.machine().lower()
    if manifest["machine"] != machine:
        message = f"{path} holds machine code for {manifest['machine']}, and this machine is {machine}"
        return NeedsRebuildError(message, "machine", contents)
    if manifest["abi"] != _ABI:
        message = f"{path} was built with kernel interface {manifest['abi']} by autosched {manifest['autosched']}"
        return NeedsRebuildError(f"{message}, and this one is {_ABI}", "abi", contents)
    needed = {*manifest["features"], *(name for kernel in contents.kernels.values() for name in kernel.features)}
    missing = tuple(sorted(map(str, needed - host_cpu().runnable)))
    if missing:
        message = f"{path} was built for a CPU with {', '.join(missing)}, which this one lacks"
        if contents.variants:
            several = f"{path} was built for {', '.join(contents.variants)}"
            message = f"{several}; even {contents.variant} needs {', '.join(missing)}, which this CPU lacks"
        return NeedsRebuildError(message, "features", contents, missing)
    return None
