"""Every environment variable that autosched reads, in one typed table.

There are three kinds. LOOK only shows or checks more and never changes a result. SETTING chooses a default that an
argument or a flag overrides. FOREIGN belongs to another program and is honoured here. A value is read when it is
asked for (`AUTOSCHED_DB.get()`), so a change during the life of a process counts. No other module reads `os.environ`.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Generic, TypeVar

from autosched.errors import InvalidValueError

T = TypeVar("T")
V = TypeVar("V")


class Kind(StrEnum):
    """What a variable may do: show more, choose a default, or serve another program that we listen to."""

    LOOK = "look"
    SETTING = "setting"
    FOREIGN = "foreign"


@dataclass(frozen=True, slots=True)
class Switch(Generic[T]):
    """One environment variable: its default, what it does, and how its text becomes a value."""

    name: str
    default: T
    help: str
    kind: Kind
    parse: Callable[[str], T]
    allowed: str = field(default="", compare=False)  # what may stand there, for messages and documents

    def hand_on(self, text: str) -> None:
        """Set the variable for this process and those that it starts."""
        os.environ[self.name] = text

    def get(self) -> T:
        """Give the value that holds now; the default where the variable is unset or empty.

        Raises InvalidValueError if the text cannot be read as this variable's type.
        """
        text = os.environ.get(self.name, "").strip()
        if not text:
            return self.default
        try:
            return self.parse(text)
        except ValueError as error:
            if self.kind is Kind.FOREIGN:  # another program's taste in syntax is no reason to stop
                return self.default
            raise InvalidValueError(
                f"environment variable {self.name}={text!r} is not {self.allowed}",
                hint=f"unset it, or give {self.allowed}",
            ) from error

    def is_set(self) -> bool:
        """Tell whether the variable holds any text."""
        return bool(os.environ.get(self.name, "").strip())


SWITCHES: dict[str, Switch[object]] = {}


def switch(name: str, default: V, help: str, kind: Kind, *, parse: Callable[[str], V], allowed: str) -> Switch[V]:
    """Declare a variable and enter it into the table that `doctor` and the documents show."""
    if name in SWITCHES:
        raise InvalidValueError(f"environment variable {name} is declared twice")
    entry = Switch(name, default, help, kind, parse, allowed)
    SWITCHES[name] = entry  # type: ignore[assignment]  # the table forgets each entry's own type
    return entry


def _boolean(text: str) -> bool:
    words = {"1": True, "true": True, "on": True, "yes": True, "0": False, "false": False, "off": False, "no": False}
    try:
        return words[text.lower()]
    except KeyError:
        raise ValueError(text) from None


def _positive(text: str) -> int:
    number = int(text)
    if number <= 0:
        raise ValueError(text)
    return number


def _not_negative(text: str) -> int:
    number = int(text)
    if number < 0:
        raise ValueError(text)
    return number


def _first_of_list(text: str) -> int:
    """Read OpenMP's `4,2`, one number for each nesting level; the outermost level counts."""
    return _positive(text.split(",")[0].strip())


def _three_sizes(text: str) -> tuple[int, int, int] | None:
    """Read `32K,512K,32M` as bytes."""
    matches = [re.fullmatch(r"\s*([1-9]\d*)([KMG]?)\s*", word) for word in text.split(",")]
    sizes = [int(m[1]) << {"": 0, "K": 10, "M": 20, "G": 30}[m[2]] for m in matches if m is not None]
    if len(matches) != 3 or len(sizes) != 3:
        raise ValueError(text)
    return sizes[0], sizes[1], sizes[2]


def _one_of(*words: str) -> Callable[[str], str]:
    def parse(text: str) -> str:
        if text.lower() not in words:
            raise ValueError(text)
        return text.lower()

    return parse


def _affinity(text: str) -> str | tuple[int, ...]:
    """Read `auto`, `off`, or a list of CPUs as in `0,2,4-7`."""
    if text.lower() in ("auto", "off"):
        return text.lower()
    cpus: list[int] = []
    for part in text.split(","):
        first, _, last = part.partition("-")
        start, end = _not_negative(first), _not_negative(last or first)
        if not start <= end < 1024:
            raise ValueError(text)
        cpus += range(start, end + 1)
    return tuple(cpus)


TUNE_MODES = ("off", "lookup", "tune", "force")

AUTOSCHED_DB = switch(
    "AUTOSCHED_DB",
    "",
    "tuning database that is read and written where no --db or records= is given",
    Kind.SETTING,
    parse=str,
    allowed="a file path or a database URL",
)
AUTOSCHED_CACHE_DIR = switch(
    "AUTOSCHED_CACHE_DIR",
    "",
    "folder for compiled kernels, instead of the user's cache folder",
    Kind.SETTING,
    parse=str,
    allowed="a folder path",
)


def _names(text: str) -> tuple[str, ...]:
    return tuple(name.strip() for name in text.split(",") if name.strip())


AUTOSCHED_EXTENSIONS = switch(
    "AUTOSCHED_EXTENSIONS",
    _names(""),
    "modules that register templates, strategies, operators or converters, beside those of installed packages",
    Kind.SETTING,
    parse=_names,
    allowed="names of modules, separated by commas",
)
AUTOSCHED_CACHE_LIMIT_MB = switch(
    "AUTOSCHED_CACHE_LIMIT_MB",
    1024,
    "size that the kernel cache is kept below, oldest entries leave first",
    Kind.SETTING,
    parse=_not_negative,
    allowed="a number of megabytes, 0 for no cache",
)
AUTOSCHED_NUM_THREADS = switch(
    "AUTOSCHED_NUM_THREADS",
    0,
    "threads that a model runs on; 0: as many as affinity, quota and OMP_NUM_THREADS allow",
    Kind.SETTING,
    parse=_not_negative,
    allowed="a number, 0 for automatic",
)
AUTOSCHED_ASSEMBLER_SECONDS = switch(
    "AUTOSCHED_ASSEMBLER_SECONDS",
    120,
    "how long NVIDIA's assembler may take for a kernel before the kernel is given up",
    Kind.SETTING,
    parse=_positive,
    allowed="a positive number",
)

AUTOSCHED_AFFINITY: Switch[str | tuple[int, ...]] = switch(
    "AUTOSCHED_AFFINITY",
    "auto",
    "CPUs that the thread pool's workers are pinned to: auto gives each one that no other process's worker has; off "
    "pins none",
    Kind.SETTING,
    parse=_affinity,
    allowed="auto, off, or a list of CPUs such as 0,2,4-7",
)
AUTOSCHED_HOST_CPU = switch(
    "AUTOSCHED_HOST_CPU",
    "",
    "CPU that this machine is taken for instead of the detected one, to see what is made for another; code that needs "
    "more than this machine has is built and never run",
    Kind.SETTING,
    parse=str,
    allowed="a name as in -mcpu, such as x86-64-v3",
)
AUTOSCHED_HOST_CORES = switch(
    "AUTOSCHED_HOST_CORES",
    0,
    "cores that this machine is taken to have, all of them allowed; 0: as detected",
    Kind.SETTING,
    parse=_not_negative,
    allowed="a number, 0 for automatic",
)
AUTOSCHED_HOST_CACHES = switch(
    "AUTOSCHED_HOST_CACHES",
    None,
    "data caches that this machine is taken to have, from the first level to the last",
    Kind.SETTING,
    parse=_three_sizes,
    allowed="three sizes, such as 32K,512K,32M",
)
AUTOSCHED_TUNE = switch(
    "AUTOSCHED_TUNE",
    "lookup",
    "lookup: a build reads the usual databases; off: it reads none, every kernel has its default and nothing is tuned; "
    "tune: the commands that build a model tune its kernels without a trusted record first; force: all of them",
    Kind.SETTING,
    parse=_one_of(*TUNE_MODES),
    allowed=f"one of {', '.join(TUNE_MODES)}",
)
AUTOSCHED_TARGET_AS = switch(
    "AUTOSCHED_TARGET_AS",
    "",
    "devices whose records a build may use where it has none of its own, as with --like",
    Kind.SETTING,
    parse=str,
    allowed="a family (x86-64-v4), a part of a device's name, or a target",
)
AUTOSCHED_RPC_SECRET = switch(
    "AUTOSCHED_RPC_SECRET",
    "",
    "secret that a remote device, its tracker and its users share; needed between machines",
    Kind.SETTING,
    parse=str,
    allowed="a text of 8 bytes at least",
)

AUTOSCHED_STRICT = switch(
    "AUTOSCHED_STRICT",
    False,
    "make whatever would compile at run time an error: loading an artifact whose kernels would have to be built again "
    "for this machine, and calling a function of symbolic sizes with new ones",
    Kind.SETTING,
    parse=_boolean,
    allowed="a boolean (1 or 0)",
)
AUTOSCHED_SYMBOLIC_SIZES = switch(
    "AUTOSCHED_SYMBOLIC_SIZES",
    64,
    "most sizes for which a function of symbolic sizes keeps what was built; those used longest ago are built again",
    Kind.SETTING,
    parse=_positive,
    allowed="a positive number",
)
AUTOSCHED_TRUST_PICKLE = switch(
    "AUTOSCHED_TRUST_PICKLE",
    False,
    "run what .pt2 files hold besides tensors and graphs (pickles of Python objects, native code) instead of refusing "
    "them",
    Kind.SETTING,
    parse=_boolean,
    allowed="a boolean (1 or 0)",
)
AUTOSCHED_LOG = switch(
    "AUTOSCHED_LOG",
    "",
    "log level of the command line, or one for each package: 'info,autosched.tuner=debug'",
    Kind.LOOK,
    parse=str,
    allowed="log levels",
)
AUTOSCHED_VERIFY = switch(
    "AUTOSCHED_VERIFY",
    True,
    "verify the IR after every pass",
    Kind.LOOK,
    parse=_boolean,
    allowed="a boolean (1 or 0)",
)
AUTOSCHED_PRINT_AFTER = switch(
    "AUTOSCHED_PRINT_AFTER",
    "",
    "passes whose result is printed, separated by commas, or 'all'",
    Kind.LOOK,
    parse=str,
    allowed="names of passes",
)
OMP_NUM_THREADS = switch(
    "OMP_NUM_THREADS",
    0,
    "OpenMP's thread limit; no more threads than this are used; 0: no limit",
    Kind.FOREIGN,
    parse=_first_of_list,
    allowed="a positive number",
)
NUMBA_DISABLE_JIT = switch(
    "NUMBA_DISABLE_JIT",
    0,
    "Numba's switch that compiles nothing: no functions of your own while it is 1",
    Kind.FOREIGN,
    parse=_not_negative,
    allowed="0 or 1",
)
TOPHUB_LOCATION = switch(
    "TOPHUB_LOCATION",
    "",
    "TVM's variable for where shipped logs are; 'NONE' turns ours off, a folder is read instead of ours, and AutoTVM's "
    "logs are downloaded from an address (never without one)",
    Kind.FOREIGN,
    parse=str,
    allowed="a folder path, an address or NONE",
)


def child_environment(changes: Mapping[str, str | None] | None = None) -> dict[str, str]:
    """Copy this process's environment for a child process, with `changes` made; None removes a variable."""
    result = dict(os.environ)
    for name, value in (changes or {}).items():
        if value is None:
            result.pop(name, None)
        else:
            result[name] = value
    return result
