"""TVM's helpers of tests under their names."""

from __future__ import annotations

import copy
import functools
import importlib.util
import platform
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

from autosched.errors import InvalidTypeError, InvalidValueError
from autosched.runtime import Device, device, enabled
from autosched.target import Target
from autosched.testing import env

if TYPE_CHECKING:
    import pytest

T = TypeVar("T")
Fixture: TypeAlias = Any  # what pytest makes of a function: it stands in the test module under its name
Marked: TypeAlias = Any  # a test function or a list of marks, as the decorator is used


def device_enabled(target: str | Target) -> bool:
    """Whether code for a target runs here."""
    name = str(getattr(target, "kind", target)).split()[0] if isinstance(target, str) else target.kind.name
    return bool(enabled(name)) and device(name).exist


def enabled_targets() -> list[tuple[str, Device]]:
    """The targets that run here, with their devices."""
    return [(name, device(name)) for name in ("llvm", "cuda") if device_enabled(name)]


class Feature:
    """A decorator of tests that are skipped where something is missing; TVM's tests ask for its `marks()` too."""

    def __init__(self, present: Callable[[], bool], reason: str):
        self.present, self.reason = present, reason

    def __call__(self, *functions: object) -> Marked:
        return self.marks()[0](functions[0]) if functions else self.marks()

    def marks(self) -> list[Marked]:
        import pytest

        return [pytest.mark.skipif(not self.present(), reason=self.reason)]


uses_gpu = Feature(lambda: True, "")  # of tests that run on whatever device there is
requires_llvm = Feature(env.has_llvm, "needs LLVM")
requires_cuda = Feature(env.has_cuda, "needs a CUDA device")
requires_gpu = Feature(env.has_gpu, "needs a GPU")
requires_tensorcore = Feature(lambda: env.has_cuda_compute(7), "needs tensor cores")
requires_x86 = Feature(lambda: platform.machine() in ("x86_64", "AMD64"), "needs an x86 CPU")
requires_x86_vnni = requires_cascadelake = Feature(env.has_x86_vnni, "needs AVX-512 VNNI")
requires_x86_avx512 = requires_skylake_avx512 = Feature(env.has_x86_avx512, "needs AVX-512")
requires_rpc = Feature(lambda: True, "")
(
    requires_opencl, requires_vulkan, requires_metal, requires_rocm, requires_nvptx, requires_hexagon, requires_cudnn,
    requires_cublas, requires_cutlass, requires_micro, requires_ethosn, requires_webgpu, requires_cudagraph,
    requires_matrixcore, requires_arm_dot, requires_aarch64_sve,
) = (
    Feature(lambda: False, f"there is no {name}")
    for name in (
        "OpenCL", "Vulkan", "Metal", "ROCm", "NVPTX target", "Hexagon", "call of cuDNN", "call of cuBLAS",
        "call of CUTLASS", "microTVM", "Ethos-N", "WebGPU", "CUDA graph of its own", "matrix core", "Arm dot product",
        "SVE",
    )
)  # fmt: skip


def requires_cuda_compute_version(major_version: int, minor_version: int = 0) -> Feature:
    """A decorator of tests that need a compute capability."""
    return Feature(
        lambda: env.has_cuda_compute(major_version, minor_version), f"needs sm_{major_version}{minor_version}"
    )


def requires_nvcc_version(major_version: int, minor_version: int = 0, release_version: int = 0) -> Feature:
    """A decorator of tests that need CUDA's compiler of a version, which are skipped: none is called here."""
    return Feature(lambda: False, f"needs nvcc {major_version}.{minor_version}.{release_version}")


def requires_package(*packages: str) -> Feature:
    """A decorator of tests that need packages to be installed."""
    absent = [name for name in packages if importlib.util.find_spec(name) is None]
    return Feature(lambda: not absent, f"needs {' '.join(absent)}")


def slow(function: object) -> Marked:
    """Mark a test as slow; `-m "not slow"` leaves it out."""
    import pytest

    return pytest.mark.slow(function)


def skip_if_32bit(reason: str) -> Callable[..., Marked]:
    """A decorator of tests that are skipped where pointers have 32 bits."""
    return Feature(lambda: sys.maxsize > 2**32, f"skipped on 32 bits: {reason}")


def is_ampere_or_newer() -> bool:
    """Whether the first CUDA device is at least of the Ampere family."""
    return env.has_cuda_compute(8)


def strtobool(val: str) -> int:
    """1 for y, yes, t, true, on and 1; 0 for their opposites. Raises InvalidValueError for other texts."""
    word = val.lower()
    if word in ("y", "yes", "t", "true", "on", "1"):
        return 1
    if word in ("n", "no", "f", "false", "off", "0"):
        return 0
    raise InvalidValueError(f"invalid truth value {val!r}")


def identity_after(x: T, sleep: float) -> T:
    """Sleep, then give `x` back: for tests of timeouts."""
    time.sleep(sleep)
    return x


def terminate_self() -> None:
    """End this process with an error: for tests of workers that crash."""
    sys.exit(-1)


def parameter(
    *values: object, ids: Sequence[str] | None = None, by_dict: Mapping[str, object] | None = None
) -> Fixture:
    """A fixture with these values; `by_dict` gives them with their names in reports.

    Raises InvalidTypeError for both kinds of values, and for names beside `by_dict`.
    """
    import pytest

    if by_dict is not None:
        if values or ids:
            raise InvalidTypeError("parameter takes values and ids, or by_dict")
        values, ids = tuple(by_dict.values()), list(by_dict)

    @pytest.fixture(params=list(values), ids=ids)
    def fixture(request: pytest.FixtureRequest) -> object:
        return request.param

    return fixture


def parameters(*rows: Sequence[object], ids: Sequence[str] | None = None) -> tuple[Fixture, ...]:
    """One fixture for each column of the rows; a test that takes several gets the rows, not all combinations.

    `pytest_plugins = ["autosched.testing.plugin"]` in conftest.py brings them together; using them without it fails.
    """
    import pytest

    group = object()

    def column(index: int) -> Fixture:
        def fixture(request: object) -> object:
            if not hasattr(request, "param"):
                pytest.fail('testing.parameters needs pytest_plugins = ["autosched.testing.plugin"] in conftest.py')
            return request.param

        fixture.row_group, fixture.row_values, fixture.row_ids = (  # type: ignore[attr-defined]
            group, [row[index] for row in rows], ids,
        )  # fmt: skip
        return pytest.fixture(fixture)

    widths = {len(row) for row in rows}
    if len(widths) != 1:
        raise InvalidValueError(f"parameters: rows of {sorted(widths)} values", hint="give rows of one length")
    return tuple(column(index) for index in range(widths.pop()))


def fixture(func: Callable[..., object] | None = None, *, cache_return_value: bool = False) -> Fixture:
    """A fixture; with `cache_return_value` it runs once for equal arguments, and each test gets a copy."""
    import pytest

    def decorate(function: Callable[..., object]) -> Fixture:
        return pytest.fixture(_cached(function) if cache_return_value else function)

    return decorate if func is None else decorate(func)


def _cached(function: Callable[..., T]) -> Callable[..., T]:
    known: dict[str, T] = {}

    @functools.wraps(function)
    def call(*args: object, **kwargs: object) -> T:
        key = repr((args, sorted(kwargs.items())))
        if key not in known:
            known[key] = function(*args, **kwargs)
        return copy.deepcopy(known[key])

    return call


def parametrize_targets(*targets: object) -> Marked:
    """Run a test function for targets and their devices; without arguments for all that run here."""
    import pytest

    def decorate(function: object, names: Sequence[Any]) -> Marked:
        rows = [(name, device(name if isinstance(name, str) else name.kind.name)) for name in names]
        return pytest.mark.parametrize(("target", "dev"), rows)(function)

    if len(targets) == 1 and callable(targets[0]) and not isinstance(targets[0], str):
        return decorate(targets[0], [name for name, _ in enabled_targets()])
    return lambda function: decorate(function, targets)


def main() -> None:
    """Run the tests of the calling file and exit."""
    import inspect

    import pytest

    frame = inspect.stack()[1]
    sys.exit(pytest.main([frame.filename, *sys.argv[1:]]))
