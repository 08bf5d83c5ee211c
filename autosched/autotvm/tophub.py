"""TopHub: AutoTVM's published logs, one file per kind of device.

Nothing is downloaded unless TOPHUB_LOCATION is an address (TVM's own is AUTOTVM_TOPHUB_DEFAULT_LOC) or
`download_package` is called.
"""

from __future__ import annotations

import contextlib
import logging
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from autosched.autotvm.record import load_from_file
from autosched.autotvm.task.dispatcher import ApplyHistoryBest, EmptyContext
from autosched.env import AUTOSCHED_TUNE, TOPHUB_LOCATION
from autosched.records import Found, LayeredReader, default_reader
from autosched.records.found import Validator, miss
from autosched.target import Target
from autosched.task import Task

if TYPE_CHECKING:
    from autosched.autotvm.measure.types import MeasureInput, MeasureResult
    from autosched.autotvm.task.context import DispatchContext

AUTOTVM_TOPHUB_NONE_LOC = "NONE"
AUTOTVM_TOPHUB_DEFAULT_LOC = "https://raw.githubusercontent.com/tlc-pack/tophub/main/tophub"
PACKAGE_VERSION = {
    "arm_cpu": "v0.08", "llvm": "v0.04", "cuda": "v0.10", "rocm": "v0.05", "opencl": "v0.04", "mali": "v0.06",
    "intel_graphics": "v0.02", "vta": "v0.10", "amd_apu": "v0.01",
}  # fmt: skip
ALIASES = {"webgpu": "opencl", "vulkan": "opencl", "nvptx": "cuda", "vtacpu": "vta"}
_TIMEOUT_S = 3
_LARGEST_BYTES = 64 << 20  # the largest package has 11 MB
_RETRY_AFTER_S = 24 * 3600  # a download that failed is tried again after a day
logger = logging.getLogger("autotvm")
_unavailable: set[str] = set()  # packages that could not be downloaded: asked for once in a process


def package_folder() -> Path:
    """Where downloaded packages are kept."""
    return Path.home() / ".tvm" / "tophub"


def _alias(name: str) -> str:
    return ALIASES.get(name, name)


def context(target: object, extra_files: Sequence[str] | None = None) -> DispatchContext:
    """A context with the packages of a target, or of several.

    Builds inside get what the project's and the user's databases know, then our own packages: the shipped ones, or
    those of the folder that TOPHUB_LOCATION names. AutoTVM's packages that are not there are downloaded where
    TOPHUB_LOCATION is an address; one that cannot be is a warning. With TOPHUB_LOCATION=NONE nothing is looked up.
    """
    targets = Target.canon_multi_target(target)
    if TOPHUB_LOCATION.get() == AUTOTVM_TOPHUB_NONE_LOC:
        return EmptyContext()
    best = ApplyHistoryBest([])
    best.load_own(UsualPlaces())
    for found in targets:
        names = [found.device_name, found.kind.name] if found.device_name else [found.kind.name]
        for name in map(_alias, names):
            if name in PACKAGE_VERSION and (path := check_backend(name)) is not None:
                best.load(path)
                break
    for extra in extra_files or ():
        best.load(extra)
    return best


class UsualPlaces:
    """The databases and packages that a build asks when nobody says anything; opened on the first look-up."""

    def __init__(self) -> None:
        self._reader: LayeredReader | None = None

    def best(self, task: Task, valid: Validator | None = None) -> Found:
        """See `RecordReader`."""
        if AUTOSCHED_TUNE.get() == "off":
            return miss("", "no record")
        if self._reader is None:
            self._reader = default_reader()
        return self._reader.best(task, valid)


def check_backend(backend: str) -> Path | None:
    """The file of a backend's package; where there is none it is downloaded if TOPHUB_LOCATION is an address."""
    backend = _alias(backend)
    package = f"{backend}_{PACKAGE_VERSION[backend]}.log"
    for path in (Path(TOPHUB_LOCATION.get()) / package, package_folder() / package):
        if path.is_file():
            return path
    if not _is_address(TOPHUB_LOCATION.get()) or package in _unavailable or _failed_lately(package):
        return None
    if (problem := _try_download(package)) is None:
        return path
    _unavailable.add(package)
    with contextlib.suppress(OSError):
        _mark(package).parent.mkdir(parents=True, exist_ok=True)
        _mark(package).touch()
    logger.warning("Failed to download tophub package for %s: %s", backend, problem)
    return None


def _is_address(location: str) -> bool:
    return location.startswith(("http://", "https://"))


def _mark(package: str) -> Path:
    """The file whose time says when a download failed."""
    return package_folder() / f".{package}.failed"


def _failed_lately(package: str) -> bool:
    try:
        return time.time() - _mark(package).stat().st_mtime < _RETRY_AFTER_S
    except OSError:
        return False


def _try_download(package: str) -> str | None:
    """What went wrong, None if nothing. A name server that does not answer is waited for no longer than the server."""
    problem: list[str | None] = [f"no answer within {_TIMEOUT_S} s"]

    def download() -> None:
        try:
            download_package(package)
            problem[0] = None
        except (OSError, urllib.error.URLError, ValueError) as error:
            problem[0] = str(error)

    worker = threading.Thread(target=download, daemon=True)
    worker.start()
    worker.join(_TIMEOUT_S + 1)
    return problem[0]


def download_package(package: str) -> None:
    """Fetch a package into the user's folder. Raises OSError where that fails or the answer is too large for a log."""
    folder, location = package_folder(), TOPHUB_LOCATION.get()
    url = f"{location if _is_address(location) else AUTOTVM_TOPHUB_DEFAULT_LOC}/{package}"
    with urllib.request.urlopen(url, timeout=_TIMEOUT_S) as answer:
        data = answer.read(_LARGEST_BYTES + 1)
    if len(data) > _LARGEST_BYTES:
        raise OSError(f"{url} gives more than {_LARGEST_BYTES >> 20} MiB")
    folder.mkdir(parents=True, exist_ok=True)
    temporary = folder / f".{package}.tmp"
    temporary.write_bytes(data)
    temporary.replace(folder / package)


def load_reference_log(backend: str, model: str, workload_name: str) -> list[tuple[MeasureInput, MeasureResult]]:
    """A backend's records of a template: of the model, or where it has none, of the model that has most."""
    backend = _alias(backend)
    if backend not in PACKAGE_VERSION:
        return []
    path = package_folder() / f"{backend}_{PACKAGE_VERSION[backend]}.log"
    if not path.is_file() and (TOPHUB_LOCATION.get() == AUTOTVM_TOPHUB_NONE_LOC or check_backend(backend) is None):
        return []
    pairs = [(inp, res) for inp, res in load_from_file(path) if inp.task.workload[0] == workload_name]
    counts: dict[str, int] = {}
    for inp, _ in pairs:
        counts[Target(inp.target).model] = counts.get(Target(inp.target).model, 0) + 1
    if not counts:
        return []
    chosen = model if model in counts else max(counts, key=lambda name: counts[name])
    return [(inp, res) for inp, res in pairs if Target(inp.target).model == chosen]
