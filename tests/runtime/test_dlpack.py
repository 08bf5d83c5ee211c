"""Capsules of memory that NumPy does not know: their tensors, and giving them back."""

import gc
import weakref

import numpy as np
import pytest

from autosched.runtime import array, cuda
from autosched.runtime.bfloat16 import know_dtype
from autosched.runtime.dlpack import take_capsule, to_capsule


class Memory:
    """What a capsule takes of an array, at any address."""

    def __init__(self, shape, dtype):
        self.shape, self.ndim, self.dtype, self.address = shape, len(shape), dtype, 0x7F0000000100


@pytest.mark.parametrize("shape", [(), (3,), (2, 3, 4), (0, 5), (1, 7, 1)])
@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16", "int8", "uint8", "int64", "bool"])
def test_what_goes_out_comes_in(shape, dtype):
    know_dtype("bfloat16")
    given = Memory(shape, dtype)
    memory, found, kind, device = take_capsule(to_capsule(given, cuda(1)))
    assert (memory.address, found, kind, device) == (given.address, shape, dtype, cuda(1))
    assert memory.size_bytes == int(np.prod(shape)) * np.dtype(kind).itemsize


@pytest.mark.parametrize("taken", [False, True])
def test_it_is_given_back_once(taken):
    given = Memory((4,), "float32")
    gone, held = weakref.ref(given), to_capsule(given, cuda(0))
    del given
    gc.collect()
    assert gone() is not None
    held = take_capsule(held) if taken else held
    assert gone() is not None
    del held
    gc.collect()
    assert gone() is None


def test_giving_back_while_an_exception_is_on_its_way():
    """A temporary tensor is given back while what another argument has raised passes: no Python function runs then."""
    torch = pytest.importorskip("torch")
    know_dtype("bfloat16")
    data = array(np.arange(4).astype("bfloat16"))
    for _ in range(3):
        with pytest.raises(ZeroDivisionError):
            print(torch.from_dlpack(data), 1 // 0)
    assert torch.from_dlpack(data).dtype == torch.bfloat16
