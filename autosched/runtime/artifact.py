"""The artifact `.asx`: one file with kernels, graphs and constants, that loads without any compiler.

    header     magic, format version, sizes, SHA-256 of the manifest
    manifest   JSON: kernels, graphs, constants, instruction sets, versions, and each section's place and SHA-256
    sections   object code and constants, uncompressed, each at a multiple of 64 bytes

An artifact for several instruction sets holds a manifest for each, and each section's content once.
A section of object code ends with a seal: the hash of the code and of what the manifest says of it (sizes, pieces,
scratch), so that no other manifest can have it called with other memory. The seal of the first section, the native
loop, is of the whole manifest and of all constants: which kernel is for which calls stands there. What is used is read
into memory of this process's own and then checked: a file that is overwritten or cut later changes nothing.
A hash proves that a file is whole, not that it comes from somebody you trust: an artifact is native code.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import struct
import uuid
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

import numpy as np

from autosched.errors import ArtifactError, InvalidTypeError
from autosched.lazy_names import hook
from autosched.runtime.artifact_check import check_contents, check_kernel, check_sections, check_tensor
from autosched.runtime.cuda.devices import CANNOT_RUN, device_rank
from autosched.runtime.cuda.kernel import archs_of
from autosched.runtime.elf import read_symbols
from autosched.runtime.graph import Graph
from autosched.runtime.kernel import ABI_VERSION, Kernel
from autosched.runtime.memory import empty_block
from autosched.runtime.native_abi import NATIVE_ABI_VERSIONS
from autosched.target import Target, architecture_of, host_cpu
from autosched.version import __version__

if TYPE_CHECKING:
    from autosched.json_types import Json, JsonObject

FORMAT_VERSION = 4  # since 3 object code is sealed, since 4 the manifest
MAGIC = b"\x89ASX\r\n\x1a\n"  # as PNG's: a transfer that changes line ends is noticed
_HEADER = struct.Struct("<8sIIQQQ32s")  # magic, version, 0, manifest bytes, first section, file bytes, SHA-256
_ALIGNMENT = 64
_SEAL_BYTES = 32
_ABIS = [[ABI_VERSION, version] for version in NATIVE_ABI_VERSIONS]  # that can be run; the last one is written


@dataclass(frozen=True, slots=True)
class Contents:
    """What an artifact holds.

    kind  "graph" (an Executable, its graph is graphs["main"]), "dynamic" (a DynamicExecutable, its graph's form is in
          `info`), "module", or "source" (the text of functions that are compiled when their sizes are known, in the
          manifest)
    info  JSON values of the maker: versions, the build report, what it takes to build the kernels again
    variant   which one this is of several in its file, "" where there is one;  variants  all of them
    """

    kind: str
    kernels: Mapping[str, Kernel]
    native: bytes = field(repr=False)
    graphs: Mapping[str, Graph]
    constants: tuple[np.ndarray, ...] = field(repr=False)
    info: Mapping[str, Json]
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

    def __reduce__(self) -> tuple[object, ...]:
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
    blobs, digests = _blobs(contents)
    sections, data_bytes = _lay_out(blobs, digests)
    _write(Path(path), {**_manifest(contents), "sections": sections}, blobs, sections, data_bytes)


def save_variants(variants: Mapping[str, Contents], path: Path) -> None:
    """Write what was built for several instruction sets as one artifact; equal contents are stored once.

    variants  by the names of what they were built for
    Raises    ArtifactError if it cannot be written.
    """
    blobs: list[bytes | np.ndarray] = []
    place: dict[str, int] = {}  # hash of a content -> its section
    manifests = []
    for name, contents in variants.items():
        own, digests = _blobs(contents)
        for digest, blob in zip(digests, own, strict=True):
            if digest not in place:
                place[digest] = len(blobs)
                blobs.append(blob)
        manifests.append({"name": name, **_manifest(contents), "sections": [place[digest] for digest in digests]})
    sections, data_bytes = _lay_out(blobs, list(place))
    manifest = {"kind": "variants", "autosched": __version__, "variants": manifests, "sections": sections}
    _write(Path(path), manifest, blobs, sections, data_bytes)


def _blobs(contents: Contents) -> tuple[list[bytes | np.ndarray], list[str]]:
    """The sections, and the hash of each."""
    rest: list[bytes | np.ndarray] = [
        kernel.code + _seal(kernel.code, kernel.to_manifest()) for kernel in contents.kernels.values()
    ]
    rest += [np.ascontiguousarray(constant) for constant in contents.constants]
    with ThreadPoolExecutor(4) as pool:  # hashing releases Python's lock
        digests = list(pool.map(_digest, rest))
    native = contents.native + _seal(contents.native, _sealed_part(_manifest(contents), digests))
    return [native, *rest], [_digest(native), *digests]


def _sealed_part(manifest: Mapping[str, Json], digests: Sequence[str]) -> JsonObject:
    """What the seal of the native loop says: the manifest, with the hashes of the other sections."""
    kept = {key: value for key, value in manifest.items() if key not in ("name", "names", "sections")}
    return {**kept, "sha256": list(digests)}


def _seal(code: bytes, entry: Mapping[str, object]) -> bytes:
    """What ties object code to the manifest's entry of it."""
    read = json.loads(json.dumps(entry))  # as it stands in the file
    text = json.dumps(read, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(hashlib.sha256(code).digest() + text.encode()).digest()


def _write(
    path: Path, document: Json, blobs: Sequence[bytes | np.ndarray], sections: Sequence[JsonObject], data_bytes: int
) -> None:
    manifest = json.dumps(document, sort_keys=True, separators=(",", ":")).encode()
    start = _align(_HEADER.size + len(manifest))
    digest = hashlib.sha256(manifest).digest()
    header = _HEADER.pack(MAGIC, FORMAT_VERSION, 0, len(manifest), start, start + data_bytes, digest)
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


def source_contents(
    script: str, target: str, runs: str, bounds: Mapping[str, Sequence[int | None]] | None = None
) -> Contents:
    """What an artifact holds of functions whose sizes are known only when they are called: their text.

    script  the module as `IRModule.script` prints it, constants included
    target  as JSON
    runs    "module", "model" or "vm": what `autosched.load` makes of it
    bounds  the least and the largest value of sizes by name
    """
    manifest: JsonObject = {"source": script, "target": target, "runs": runs}
    if bounds:
        manifest["bounds"] = {name: list(pair) for name, pair in bounds.items()}
    return Contents("source", {}, b"", {}, (), {"entry": "", "manifest": manifest})


def from_source(script: str, target: str, runs: str) -> Any:
    """Functions that are compiled when they are called, from text; see `source_contents`."""
    return from_contents(source_contents(script, target, runs))


def from_contents(contents: Contents) -> Any:
    """What is compiled when it is called, from what its artifact would hold: pickles of it are that."""
    return hook("rebuild")(contents)


def _align(size: int) -> int:
    return -(-size // _ALIGNMENT) * _ALIGNMENT


def _lay_out(blobs: Sequence[bytes | np.ndarray], digests: Sequence[str]) -> tuple[list[JsonObject], int]:
    """Give each blob's place after the first section's start, and the size of all."""
    sections, at = [], 0
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


def _machine(contents: Contents) -> str:
    """The architecture of the machine code inside; this machine's where there is none."""
    codes = (contents.native, *(kernel.code for kernel in contents.kernels.values() if kernel.backend == "cpu"))
    return next((read_symbols(code).architecture for code in codes if code), host_cpu().architecture)


def _manifest(contents: Contents) -> JsonObject:
    """All that the manifest says but where sections are."""
    features = sorted({feature for kernel in contents.kernels.values() for feature in kernel.features})
    return {
        "kind": contents.kind,
        "autosched": __version__,
        "abi": _ABIS[-1],
        "machine": _machine(contents),
        "features": features,
        "kernels": {key: kernel.to_manifest() for key, kernel in contents.kernels.items()},
        "kernel_order": list(contents.kernels),
        "graphs": {name: graph.to_manifest() for name, graph in contents.graphs.items()},
        "constants": [[str(constant.dtype), list(constant.shape)] for constant in contents.constants],
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


def load_contents(path: Path, *, mapped: bool = False, variant: str = "") -> Contents:
    """Read an artifact and compare all hashes (about 1 GB/s and core).

    mapped   leave constants in the file, mapped: processes share them, and nobody may write to the file meanwhile
    variant  the one that is read of several, by its name; "": the best that runs here
    Raises   ArtifactError if the file is missing, no artifact, cut short, damaged or of a newer version, or has no such
             variant; NeedsRebuildError if it is whole and its machine code does not run here.
    """
    path = Path(path)
    try:
        with open(path, "rb") as file:
            size = os.fstat(file.fileno()).st_size
            if size == 0:
                raise ArtifactError(f"{path} is empty")
            version, manifest, start = _read_manifest(path, file, size)
            try:
                manifest = _choose_variant(manifest, variant)
                check_sections(manifest["sections"], size - start, _ALIGNMENT)
                blobs = _read_sections(path, file, start, manifest, mapped)
                contents = _read_contents(path, blobs, manifest, version)
                requirement = _requirement(path, version, manifest, contents)
            except ArtifactError:
                raise
            except KeyError as error:
                raise _malformed(path, f"{error} is missing") from error
            except (TypeError, ValueError, IndexError, AttributeError, OverflowError) as error:
                raise _malformed(path, str(error)) from error
    except OSError as error:
        raise ArtifactError(f"cannot read {path}: {error.strerror or error}") from error
    if requirement is not None:
        raise requirement
    return contents


def _choose_variant(manifest: JsonObject, wanted: str) -> JsonObject:
    """Of several variants the one of that name; of "" the best that runs here, else the one that needs the least more.

    One for a GPU goes before those for CPUs where there is such a GPU, and comes last where there is none.
    """
    if manifest.get("kind") != "variants":
        if wanted:
            raise ArtifactError(f"no variant '{wanted}': the artifact was built for one target")
        return manifest
    sections, variants = manifest["sections"], manifest["variants"]
    names = [str(variant["name"]) for variant in variants]
    if wanted and wanted not in names:
        raise ArtifactError(f"the artifact has no variant '{wanted}'", hint=f"there are {', '.join(names)}")

    def rank(variant: Mapping[str, Json]) -> tuple[int, int]:
        kernels = variant["kernels"].values()
        if any(entry.get("backend", "cpu") == "cuda" for entry in kernels):
            return device_rank([_archs(entry) for entry in kernels])
        if variant["kind"] == "source":
            return source_rank(str(variant["info"]["manifest"]["target"]))
        needed = set(map(str, variant["features"]))
        is_foreign = architecture_of(str(variant["machine"])) != host_cpu().architecture
        return CANNOT_RUN if is_foreign else len(host_cpu().lacks(needed)), -len(needed)

    chosen = variants[names.index(wanted)] if wanted else min(variants, key=rank)
    if any(type(index) is not int or not 0 <= index < len(sections) for index in chosen["sections"]):
        raise ValueError("a variant's sections lie outside the file")
    return {**chosen, "sections": [sections[index] for index in chosen["sections"]], "names": names}


def source_rank(target: str) -> tuple[int, int]:
    """How well what is compiled when it is called, for a target as JSON, suits this machine; as `variants.rank`."""
    made_for = Target(target)
    if not made_for.is_cpu:
        return device_rank([archs_of((made_for.gpu.arch,), target, True)])
    return len(host_cpu().lacks(made_for.features)) if made_for.is_native else CANNOT_RUN, -len(made_for.features)


def _archs(entry: Mapping[str, Json]) -> tuple[str, ...]:
    return archs_of((str(arch) for arch, *_ in entry["images"]), str(entry.get("target", "")), bool(entry.get("ptx")))


def _malformed(path: Path, problem: str) -> ArtifactError:
    return ArtifactError(f"{path} is damaged: its manifest does not fit ({problem})", hint="copy or build it again")


def _read_manifest(path: Path, file: BinaryIO, file_size: int) -> tuple[int, JsonObject, int]:
    """(the format's version, the manifest, where sections begin)."""
    head = file.read(_HEADER.size)
    if not head.startswith(MAGIC[: len(head)]) or len(head) < len(MAGIC):
        raise ArtifactError(f"{path} is no autosched artifact")
    if len(head) < _HEADER.size:
        raise ArtifactError(f"{path} is cut short: {file_size} bytes are left", hint="copy or build it again")
    _, version, _, manifest_bytes, start, file_bytes, digest = _HEADER.unpack(head)
    if version > FORMAT_VERSION:
        raise ArtifactError(
            f"{path} was written by a newer autosched (format {version}, this one reads up to {FORMAT_VERSION})",
            hint="upgrade autosched, or build the model again with this version",
        )
    if file_size < file_bytes:
        raise ArtifactError(
            f"{path} is cut short: {file_size} of {file_bytes} bytes are there", hint="copy or build it again"
        )
    text = file.read(min(manifest_bytes, file_size))
    if file_size != file_bytes or len(text) != manifest_bytes or hashlib.sha256(text).digest() != digest:
        raise _damaged(path, "its manifest")
    if start % _ALIGNMENT or not _HEADER.size + manifest_bytes <= start <= file_bytes:
        raise _malformed(path, f"sections begin at {start}")
    try:
        manifest = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise _malformed(path, str(error)) from None
    if not isinstance(manifest, dict):
        raise _malformed(path, "it is no object")
    return version, manifest, start


def _damaged(path: Path, what: str) -> ArtifactError:
    return ArtifactError(f"{path} is damaged: {what} does not match its checksum", hint="copy or build it again")


def _read_sections(
    path: Path, file: BinaryIO, start: int, manifest: Mapping[str, Json], mapped: bool
) -> list[np.ndarray]:
    """The bytes of each section, whose hashes are right; equal places are read once."""
    sections, n_code = manifest["sections"], 1 + len(manifest["kernel_order"])
    places = dict.fromkeys((section["offset"], section["size"]) for section in sections)
    kept = {(section["offset"], section["size"]) for section in sections[n_code:]} if mapped else set()
    own = [place for place in places if place not in kept]
    memory = empty_block(sum(_align(size) for _, size in own))
    found: dict[tuple[int, int], np.ndarray] = {}
    at = 0
    for place in own:
        found[place] = memory[at : at + place[1]]
        at += _align(place[1])
    if kept:
        data = np.memmap(path, np.uint8, mode="r").view(np.ndarray)
        found |= {(offset, size): data[start + offset : start + offset + size] for offset, size in kept}

    def fill(place: tuple[int, int]) -> str:
        if place not in kept:
            _fill(found[place], file.fileno(), start + place[0])
        return _digest(found[place])

    with ThreadPoolExecutor(4) as pool:  # reading and hashing release Python's lock
        digests = dict(zip(places, pool.map(fill, places), strict=True))
    names = ["the native loop", *(f"kernel '{key}'" for key in manifest["kernel_order"])]
    names += [f"constant {index}" for index in range(len(manifest["constants"]))]
    for name, section in zip(names, sections):
        if section["sha256"] != digests[section["offset"], section["size"]]:
            raise _damaged(path, name)
    return [found[section["offset"], section["size"]] for section in sections]


def _fill(memory: np.ndarray, file: int, offset: int) -> None:
    """Read bytes of a file; those that it lost meanwhile stay as they are, which the hash tells."""
    done = 0
    while done < memory.nbytes:
        count = os.preadv(file, [memory[done:].data], offset + done)
        if count == 0:
            return
        done += count


def _read_contents(path: Path, blobs: Sequence[np.ndarray], manifest: Mapping[str, Json], version: int) -> Contents:
    keys = list(manifest["kernel_order"])
    for key in keys:
        check_kernel(key, manifest["kernels"][key])
    for index, (dtype, shape) in enumerate(manifest["constants"]):
        check_tensor(f"constant {index}", dtype, shape)
    objects = [blob.tobytes() for blob in blobs[: 1 + len(keys)]]
    if version >= 3:
        digests = [section["sha256"] for section in manifest["sections"][1:]]
        whole = _sealed_part(manifest, digests) if version >= 4 else None
        entries = [whole, *(manifest["kernels"][key] for key in keys)]
        names = ["the native loop", *(f"kernel '{key}'" for key in keys)]
        objects = [_unsealed(path, *each) for each in zip(names, objects, entries, strict=True)]
    kernels = {
        key: Kernel.from_manifest(manifest["kernels"][key], code) for key, code in zip(keys, objects[1:], strict=True)
    }
    constants = tuple(
        _read_only(blob.view(np.dtype(dtype)).reshape(shape))
        for blob, (dtype, shape) in zip(blobs[1 + len(keys) :], manifest["constants"], strict=True)
    )
    graphs = {name: Graph.from_manifest(entry) for name, entry in manifest["graphs"].items()}
    contents = Contents(
        manifest["kind"], kernels, objects[0], graphs, constants, manifest["info"], str(manifest.get("name", "")),
        tuple(manifest.get("names", ())),
    )  # fmt: skip
    check_contents(contents.kind, contents.info, kernels, graphs, constants)
    return contents


def _read_only(array: np.ndarray) -> np.ndarray:
    array.flags.writeable = False
    return array


def _unsealed(path: Path, name: str, code: bytes, entry: Mapping[str, object] | None) -> bytes:
    """Object code without its seal, which is compared with the manifest's entry; None: there is none to compare."""
    code, seal = code[:-_SEAL_BYTES], code[-_SEAL_BYTES:]
    if entry is not None and seal != _seal(code, entry):
        raise _malformed(path, f"{name} is not the one that it describes")
    return code


def _requirement(
    path: Path, version: int, manifest: Mapping[str, Json], contents: Contents
) -> NeedsRebuildError | None:
    """What this machine lacks to run the code inside; None where nothing."""
    if contents.kind == "source":
        return NeedsRebuildError(f"{path} holds functions that are compiled when they are called", "source", contents)
    machine = host_cpu().architecture
    for_host = not contents.kernels or any(kernel.backend == "cpu" for kernel in contents.kernels.values())
    if for_host and architecture_of(str(manifest["machine"])) != machine:
        message = f"{path} holds machine code for {manifest['machine']}, and this machine is {machine}"
        return NeedsRebuildError(message, "machine", contents)
    if manifest["abi"] not in _ABIS:
        message = f"{path} was built with kernel interface {manifest['abi']} by autosched {manifest['autosched']}"
        return NeedsRebuildError(f"{message}, and this one is {_ABIS[-1]}", "abi", contents)
    if version < 4:
        message = f"{path} was written by an older autosched, whose artifacts are not sealed"
        return NeedsRebuildError(message, "abi", contents)
    needed = {*manifest["features"], *(name for kernel in contents.kernels.values() for name in kernel.features)}
    missing = tuple(sorted(host_cpu().lacks(map(str, needed))))
    if missing:
        message = f"{path} was built for a CPU with {', '.join(missing)}, which this one lacks"
        if contents.variants:
            several = f"{path} was built for {', '.join(contents.variants)}"
            message = f"{several}; even {contents.variant} needs {', '.join(missing)}, which this CPU lacks"
        return NeedsRebuildError(message, "features", contents, missing)
    return None
