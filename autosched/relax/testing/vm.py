"""Functions that programs of TVM's tests call by name, and a check of `save_function`."""

from __future__ import annotations

from typing import Any

import numpy as np

from autosched.runtime import Device, NDArray
from autosched.runtime.ndarray import array
from autosched.runtime.registry import register_func


@register_func("test.vm.move")
def move(src: Any) -> Any:
    return src


@register_func("test.vm.add")
def add(a: NDArray, b: NDArray) -> NDArray:
    return array(a.numpy() + b.numpy())


@register_func("test.vm.mul")
def mul(a: NDArray, b: NDArray) -> NDArray:
    return array(a.numpy() * b.numpy())


@register_func("test.vm.equal_zero")
def equal_zero(a: NDArray) -> NDArray:
    return array(np.all(a.numpy() == 0))


@register_func("test.vm.subtract_one")
def subtract_one(a: NDArray) -> NDArray:
    return array(a.numpy() - 1)


@register_func("test.vm.identity")
def identity_packed(a: NDArray, b: NDArray) -> None:
    b.copyfrom(a.numpy())


@register_func("test.vm.tile")
def tile_packed(a: NDArray, b: NDArray) -> None:
    b.copyfrom(np.tile(a.numpy(), (1, 2)))


@register_func("test.vm.add_scalar")
def add_scalar(a: int, b: int) -> int:
    return a + b


@register_func("test.vm.get_device_id")
def get_device_id(device: Device) -> int:
    return device.device_id


@register_func("test.vm.check_if_defined")
def check_if_defined(obj: object) -> bool:
    return obj is not None


def check_saved_func(vm: Any, func_name: str, *inputs: Any) -> Any:
    """Save a function with its arguments, and compare it with the function. Gives the result.

    Raises AssertionError where they differ.
    """
    saved = f"{func_name}_saved"
    vm.save_function(func_name, saved, *inputs)
    result = vm[func_name](*inputs)
    np.testing.assert_allclose(vm[saved]().numpy(), result.numpy(), rtol=1e-7, atol=1e-7)
    return result
