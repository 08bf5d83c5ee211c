"""Processes of another architecture on this machine: QEMU translates their instructions, this Linux serves them.

Debian's Python of that architecture and NumPy are unpacked into a folder; nothing of them is installed.
"""

from __future__ import annotations

import platform
import shutil
import subprocess
import sys
import time
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

from tests.emulated.guest_files import copy_runtime

PROGRAM = "qemu-aarch64-static"
PYTHON = f"python{sys.version_info[0]}.{sys.version_info[1]}"
DEBIAN = (
    *(f"{PYTHON}-minimal", f"lib{PYTHON}-stdlib", f"lib{PYTHON}-minimal", "libc6", "libgcc-s1", "libstdc++6"),
    *("zlib1g", "libexpat1", "libffi8", "libssl3", "libbz2-1.0", "liblzma5", "libsqlite3-0", "libuuid1"),
)
WHEELS = ("numpy", "ml_dtypes")
PLATFORMS = ("manylinux2014_aarch64", "manylinux_2_27_aarch64", "manylinux_2_28_aarch64")


@dataclass(frozen=True, slots=True)
class Qemu:
    """The emulator of AArch64 processes; `folder` holds their Python and packages."""

    folder: Path
    cpu: str = ""

    install = (
        "dpkg --add-architecture arm64; apt-get update; apt-get install --no-install-recommends qemu-user-static\n"
        f"(Debian's {PYTHON} for arm64 has to be among its packages)"
    )
    table = "aarch64"

    @property
    def model(self) -> str:
        """QEMU's name of the CPU: "max" has all that it knows."""
        return self.cpu or "max"

    @property
    def name(self) -> str:
        return f"QEMU's {self.model}"

    def missing(self) -> list[str]:
        """The emulator and the Python that are not to be had here."""
        found = [] if shutil.which(PROGRAM) else [PROGRAM]
        known = subprocess.run(["apt-cache", "show", f"{DEBIAN[0]}:arm64"], capture_output=True, check=False)
        return found if known.returncode == 0 else [*found, f"{DEBIAN[0]}:arm64"]

    def prepare(self, cases: Path) -> None:
        """Unpack Python and the packages, once, and copy the runtime."""
        root, site = self.folder / "root", self.folder / "site"
        if not root.is_dir():
            _unpack_debian(self.folder / "debian", root)
        shutil.rmtree(site, ignore_errors=True)
        site.mkdir(parents=True)
        for wheel in _wheels(self.folder / "wheels"):
            with zipfile.ZipFile(wheel) as archive:
                archive.extractall(site)
        copy_runtime(site)
        assert cases == self.folder / "cases", "the cases lie where the processes look for them"

    def run(self, limit_s: float) -> Iterator[str]:
        """The lines that the cases write, as they come."""
        root, site = self.folder.resolve() / "root", self.folder.resolve() / "site"
        words = [PROGRAM, "-cpu", self.model, "-L", root, root / "usr/bin" / PYTHON, "-S", site / "guest.py"]
        environment = {"PYTHONPATH": str(site), "PYTHONHOME": str(root / "usr"), "OPENBLAS_NUM_THREADS": "1"}
        deadline = time.monotonic() + limit_s
        process = subprocess.Popen(
            [str(word) for word in (*words, self.folder.resolve() / "cases")],
            env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
        assert process.stdout is not None, "it is a pipe"
        try:
            for line in process.stdout:
                yield line.rstrip("\n")
                if time.monotonic() > deadline:
                    return
        finally:
            process.kill()
            process.wait()


def _unpack_debian(packages: Path, root: Path) -> None:
    packages.mkdir(parents=True, exist_ok=True)
    subprocess.run(["apt-get", "download", *(f"{name}:arm64" for name in DEBIAN)], cwd=packages, check=True)
    for package in packages.glob("*.deb"):
        subprocess.run(["dpkg", "-x", package, root], check=True)


def _wheels(folder: Path) -> list[Path]:
    """The packages in this environment's versions, for the other architecture."""
    if not folder.is_dir():
        wanted = [f"{name}=={version(name)}" for name in WHEELS]
        platforms = [word for name in PLATFORMS for word in ("--platform", name)]
        words = ["-m", "pip", "download", "--quiet", "--no-deps", "--only-binary=:all:", *platforms]
        words += ["--python-version", ".".join(platform.python_version_tuple()[:2]), "--dest", str(folder), *wanted]
        subprocess.run([sys.executable, *words], check=True)
    return sorted(folder.glob("*.whl"))
