"""A small Linux on an emulated CPU: a CD to boot from, a disk with Python and what it runs, Bochs to run it.

Bochs is slow (some 50 million instructions a second) and right: it has AVX-512 with all its masks and roundings.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import sysconfig
import time
from collections.abc import Iterable, Iterator
from compileall import compile_dir
from dataclasses import dataclass
from pathlib import Path
from py_compile import PycInvalidationMode

import ml_dtypes
import numpy as np

from tests.emulated.guest_files import copy_runtime

PACKAGES = "bochs bochsbios vgabios isolinux syslinux-common genisoimage cpio busybox-static e2fsprogs"
KERNEL_PACKAGE = "linux-image-cloud-amd64"
MODULES = ("scsi_common", "scsi_mod", "libata", "ata_piix", "sd_mod")  # in the order in which they need each other
NEEDED = (
    Path("/usr/share/bochs/BIOS-bochs-latest"),
    Path("/usr/share/vgabios/vgabios.bin"),
    Path("/usr/lib/ISOLINUX/isolinux.bin"),
    Path("/usr/lib/syslinux/modules/bios/ldlinux.c32"),
)
INIT = """#!/bin/busybox sh
b=/bin/busybox
$b mount -t devtmpfs dev /dev
for module in {modules}; do $b insmod /lib/modules/$module.ko; done
$b mount -t ext4 -o ro /dev/sda /mnt
$b mount -t proc proc /mnt/proc
$b mount -t sysfs sys /mnt/sys
$b mount -t tmpfs tmp /mnt/tmp
export PYTHONHOME=/python PYTHONPATH=/site LD_LIBRARY_PATH=/lib OPENBLAS_NUM_THREADS=1 PYTHONDONTWRITEBYTECODE=1
$b chroot /mnt /python/bin/python -S /site/guest.py /cases
$b sleep 2
$b poweroff -f
"""
# clearcpuid: XSAVEC and XSAVES. Bochs 2.7 states a wrong size of their compact form; Linux would then use no vectors.
BOOT = """default linux
prompt 0
timeout 0
label linux
  kernel vmlinuz
  initrd initrd
  append console=ttyS0 quiet nokaslr mitigations=off nosmp panic=-1 clearcpuid=321,323
"""
BOCHS = """config_interface: textconfig
display_library: rfb, options="timeout=0"
romimage: file={bios}
vgaromimage: file={vga}
cpu: model={cpu}, count=1, ips=100000000, ignore_bad_msrs=1
megs: 2048
clock: sync=none, time0=utc
pci: enabled=1, chipset=i440fx
ata0: enabled=1, ioaddr1=0x1f0, ioaddr2=0x3f0, irq=14
ata1: enabled=1, ioaddr1=0x170, ioaddr2=0x370, irq=15
ata0-master: type=disk, path=disk.img, mode=flat
ata1-master: type=cdrom, path=boot.iso, status=inserted
boot: cdrom
com1: enabled=1, mode=file, dev=console.txt
log: bochs.log
panic: action=fatal
"""


@dataclass(frozen=True, slots=True)
class Bochs:
    """The emulator of x86-64 machines; `folder` holds what it boots from."""

    folder: Path
    cpu: str = ""

    install = f"apt-get install --no-install-recommends {PACKAGES}"
    table = "avx512"

    @property
    def model(self) -> str:
        """Bochs's name of the CPU; see `bochs -help cpu`."""
        return self.cpu or "corei7_skylake_x"

    @property
    def name(self) -> str:
        return f"Bochs's {self.model}"

    def missing(self) -> list[str]:
        """Programs and files that are not installed here."""
        return what_is_missing()

    def prepare(self, cases: Path) -> None:
        """Write the CD and the disk."""
        make_cd(self.folder, fetch_kernel(self.folder / "kernel"))
        make_disk(self.folder, cases)

    def run(self, limit_s: float) -> Iterator[str]:
        """The lines of the machine's console as they come."""
        return run_machine(self.folder, self.model, limit_s)


@dataclass(frozen=True, slots=True)
class Kernel:
    """A Linux kernel and the folder of its modules."""

    image: Path
    modules: Path


def what_is_missing() -> list[str]:
    """Programs and files that are not installed here."""
    programs = ("bochs", "genisoimage", "cpio", "mke2fs", "busybox", "ldd")
    return [name for name in programs if not _program(name)] + [str(path) for path in NEEDED if not path.is_file()]


def _program(name: str) -> str | None:
    return shutil.which(name) or shutil.which(name, path="/usr/sbin:/sbin")


def _run(*words: str | Path, cwd: Path | None = None) -> str:
    return subprocess.run([str(w) for w in words], cwd=cwd, check=True, capture_output=True, text=True).stdout


def fetch_kernel(folder: Path) -> Kernel:
    """Unpack the distribution's kernel into `folder`, once; it is not installed."""
    if not (folder / "boot").is_dir():
        folder.mkdir(parents=True, exist_ok=True)
        depends = _run("apt-cache", "depends", KERNEL_PACKAGE)
        (name,) = re.findall(r"Depends: (linux-image-\S+)", depends)[:1]
        _run("apt-get", "download", name, cwd=folder)
        (package,) = folder.glob(f"{name}_*.deb")
        _run("dpkg", "-x", package, folder)
        package.unlink()
    (image,) = (folder / "boot").glob("vmlinuz-*")
    return Kernel(image, next((folder / "lib/modules").iterdir()))


def make_cd(folder: Path, kernel: Kernel) -> None:
    """Write boot.iso: the kernel, and what mounts the disk and starts Python on it."""
    cd, root = folder / "cd/isolinux", folder / "initrd"
    for made in (cd, *(root / name for name in ("bin", "dev", "mnt", "lib/modules"))):
        made.mkdir(parents=True, exist_ok=True)
    busybox = _program("busybox")
    assert busybox is not None, "looked for before"
    shutil.copy(busybox, root / "bin/busybox")
    for name in MODULES:
        shutil.copy(next(kernel.modules.rglob(f"{name}.ko")), root / "lib/modules")
    init = root / "init"
    init.write_text(INIT.format(modules=" ".join(MODULES)))
    init.chmod(0o755)
    names = "\n".join(str(path.relative_to(root)) for path in sorted(root.rglob("*")))
    packed = subprocess.run(
        ["cpio", "-o", "-H", "newc", "--quiet"], cwd=root, input=names.encode(), capture_output=True, check=True
    )
    (cd / "initrd").write_bytes(packed.stdout)
    shutil.copy(kernel.image, cd / "vmlinuz")
    (cd / "isolinux.cfg").write_text(BOOT)
    for path in NEEDED[2:]:
        shutil.copy(path, cd)
    _run(
        *("genisoimage", "-quiet", "-o", folder / "boot.iso", "-b", "isolinux/isolinux.bin", "-c", "isolinux/boot.cat"),
        *("-no-emul-boot", "-boot-load-size", "4", "-boot-info-table", folder / "cd"),
    )


def make_disk(folder: Path, cases: Path) -> None:
    """Write disk.img: this Python, NumPy and ml_dtypes, the runtime, and the cases."""
    root = folder / "disk"
    shutil.rmtree(root, ignore_errors=True)
    for name in ("proc", "sys", "dev", "tmp", "lib", "lib64", "python/bin", "python/lib", "site"):
        (root / name).mkdir(parents=True)
    shutil.copy(sys.executable, root / "python/bin/python")
    no_tests = shutil.ignore_patterns("test", "tests", "idlelib", "ensurepip", "site-packages", "tkinter", "config-*")
    version = f"python{sys.version_info[0]}.{sys.version_info[1]}"
    shutil.copytree(sysconfig.get_path("stdlib"), root / "python/lib" / version, ignore=no_tests)
    packages = [Path(module.__file__).parent for module in (np, ml_dtypes)]
    for path in (*packages, packages[0].with_name("numpy.libs")):
        if path.is_dir():
            shutil.copytree(path, root / "site" / path.name, ignore=no_tests)
    copy_runtime(root / "site")
    compile_dir(root / "site", quiet=2, invalidation_mode=PycInvalidationMode.UNCHECKED_HASH)
    _copy_libraries([root / "python/bin/python", *root.rglob("*.so*")], root)
    shutil.copytree(cases, root / "cases")
    megabytes = sum(p.stat().st_size for p in root.rglob("*") if p.is_file()) * 5 // 4 // 2**20 + 32
    (folder / "disk.img").unlink(missing_ok=True)
    words = ("-q", "-t", "ext4", "-O", "^has_journal", "-d", root, folder / "disk.img", f"{megabytes}M")
    mke2fs = _program("mke2fs")
    assert mke2fs is not None, "looked for before"
    _run(mke2fs, *words)


def _copy_libraries(binaries: Iterable[Path], root: Path) -> None:
    """The shared libraries that binaries need from this machine, and the loader."""
    for binary in binaries:
        for path in map(Path, re.findall(r"(/\S+) \(0x", _run("ldd", binary))):
            where = root / "lib64" if path.name.startswith("ld-linux") else root / "lib"
            if not path.is_relative_to(root) and not (where / path.name).exists():
                shutil.copy(path, where)


def run_machine(folder: Path, cpu: str, limit_s: float) -> Iterator[str]:
    """Run Bochs on a CPU model until the machine turns itself off; gives the lines of its console as they come."""
    console = folder / "console.txt"
    console.unlink(missing_ok=True)
    (folder / "bochsrc").write_text(BOCHS.format(cpu=cpu, bios=NEEDED[0], vga=NEEDED[1]))
    (folder / "commands").write_text("c\n")  # the debugger's, where Bochs has one
    deadline = time.monotonic() + limit_s
    with (folder / "bochs.out").open("w") as out:
        words = ["bochs", "-q", "-f", "bochsrc", "-rc", "commands"]
        process = subprocess.Popen(words, cwd=folder, stdin=subprocess.DEVNULL, stdout=out, stderr=out)
    try:
        n_bytes = 0
        while True:
            ended = process.poll() is not None or time.monotonic() > deadline
            written = console.read_bytes()[n_bytes:] if console.exists() else b""
            whole = written[: written.rfind(b"\n") + 1]
            n_bytes += len(whole)
            yield from whole.decode(errors="replace").splitlines()
            if ended:
                return
            time.sleep(0.5)
    finally:
        process.kill()
        process.wait()
