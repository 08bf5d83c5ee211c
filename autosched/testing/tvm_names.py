"""TVM's helpers of tests under their names."""

from __future__ import annotations

import copy
import functools
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

from autosched.errors import InvalidTypeError, InvalidValueError
from autosched.runtime import Device, device, enabled
from autosched.target import Target

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


def _mark(kind: str, reason: str) -> Callable[..., Marked]:
    """A decorator of tests that are skipped where a kind of device is missing."""

    def mark(*functions: object) -> Marked:
        import pytest

        marker = pytest.mark.skipif(not device_enabled(kind), reason=reason)
        return marker(functions[0]) if functions else [marker]

    return mark


requires_llvm = _mark("llvm", "needs LLVM")
requires_cuda = requires_gpu = _mark("cuda", "needs a CUDA device")
requires_opencl = _mark("opencl", "needs OpenCL")
requires_vulkan = _mark("vulkan", "needs Vulkan")
requires_metal = _mark("metal", "needs Metal")


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
    import sys

    import pytest

    frame = inspect.stack()[1]
    sys.exit(pytest.main([frame.filename, *sys.argv[1:]]))
