"""TVM's helpers of tests under their names."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from autosched.runtime import Device, device, enabled


def device_enabled(target: Any) -> bool:
    """Whether code for a target runs here."""
    name = str(getattr(target, "kind", target)).split()[0] if isinstance(target, str) else target.kind.name
    return bool(enabled(name)) and device(name).exist


def enabled_targets() -> list[tuple[str, Device]]:
    """The targets that run here, with their devices."""
    return [(name, device(name)) for name in ("llvm", "cuda") if device_enabled(name)]


def _mark(condition: bool, reason: str) -> Callable[..., Any]:
    def mark(*functions: Any) -> Any:
        import pytest

        marker = pytest.mark.skipif(not condition, reason=reason)
        return marker(functions[0]) if functions else [marker]

    return mark


requires_llvm = _mark(True, "needs LLVM")
requires_cuda = _mark(False, "needs CUDA")
requires_gpu = _mark(False, "needs a GPU")
requires_opencl = _mark(False, "needs OpenCL")
requires_vulkan = _mark(False, "needs Vulkan")
requires_metal = _mark(False, "needs Metal")


def parameter(*values: Any, ids: Sequence[str] | None = None, by_dict: Any = None) -> Any:
    """A fixture with these values."""
    import pytest

    @pytest.fixture(params=list(by_dict.values()) if by_dict else list(values), ids=ids)
    def fixture(request: Any) -> Any:
        return request.param

    return fixture


def parameters(*rows: Sequence[Any], ids: Sequence[str] | None = None) -> Any:
    """One fixture for each column of the rows."""
    return tuple(parameter(*column, ids=ids) for column in zip(*rows, strict=True))


def fixture(func: Any = None, *, cache_return_value: bool = False) -> Any:
    """A fixture."""
    import pytest

    return pytest.fixture(func) if func is not None else lambda f: pytest.fixture(f)


def parametrize_targets(*targets: Any) -> Any:
    """Run a test function for targets and their devices; without arguments for all that run here."""
    import pytest

    def decorate(function: Any, names: Sequence[Any]) -> Any:
        rows = [(name, device(name if isinstance(name, str) else name.kind.name)) for name in names]
        return pytest.mark.parametrize(("target", "dev"), rows)(function)

    if len(targets) == 1 and callable(targets[0]) and not isinstance(targets[0], str):
        return decorate(targets[0], [name for name, _ in enabled_targets()])
    return lambda function: decorate(function, targets)


def main() -> None:
    """Run the tests of the calling file and exit."""
    import inspect
    import sys

    import pytest

    frame = inspect.stack()[1]
    sys.exit(pytest.main([frame.filename, *sys.argv[1:]]))
