"""Arrays on a device: copies, other libraries' views, DLPack both ways."""

from __future__ import annotations

import gc
import pickle

import numpy as np
import pytest

from autosched.errors import DeviceError, InvalidTypeError, InvalidValueError, ShapeError, TVMError
from autosched.runtime import array, cpu, cuda, empty, from_dlpack
from autosched.runtime.cuda.array import DeviceArray, from_interface
from autosched.runtime.cuda.devices import driver_of

pytestmark = pytest.mark.usefixtures("emulated")
X = np.arange(12, dtype="float32").reshape(3, 4)


def test_to_the_device_and_back() -> None:
    a = array(X, cuda(0))
    assert isinstance(a, DeviceArray) and (a.shape, a.dtype, a.ndim) == ((3, 4), "float32", 2)
    assert str(a.device) == "cuda:0" and "cuda:0" in repr(a)
    np.testing.assert_array_equal(a.numpy(), X)
    np.testing.assert_array_equal(np.asarray(a), X)
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(a)).numpy(), X)


def test_copies_between_devices() -> None:
    a = array(X, cuda(0))
    for target in (cpu(0), cuda(0), empty((3, 4), device=cuda(0)), empty((3, 4)), empty((3, 4), "float64", cuda(0))):
        b = a.copyto(target)
        assert b.address != a.address
        np.testing.assert_array_equal(b.numpy(), X)
    c = array(X).copyto(cuda(0))
    assert str(c.device) == "cuda:0"
    c[:] = 7
    np.testing.assert_array_equal(c.numpy(), 7)
    with pytest.raises(ShapeError):
        c.copyfrom(X[:2])


def test_empty_and_scalar_arrays() -> None:
    for shape in ((), (0, 3)):
        a = array(np.ones(shape, "int64"), cuda(0))
        assert a.numpy().shape == shape and a.dtype == "int64"


def test_the_host_does_not_look_into_a_device() -> None:
    a = array(X, cuda(0))
    with pytest.raises(InvalidTypeError, match="no view on the host"):
        a.view()
    with pytest.raises(InvalidValueError, match="only copied"):
        np.array(a, copy=False)


def test_no_room_says_what_was_asked_and_what_is_free() -> None:
    free, total = driver_of(0).free_bytes()
    assert free == total
    with pytest.raises(DeviceError, match=rf"no room for {4 << 40} bytes more: {free} of {total} are free"):
        empty((1 << 40,), device=cuda(0))
    a = empty((1000,), device=cuda(0))
    assert driver_of(0).free_bytes()[0] == total - 4000
    del a
    gc.collect()
    assert driver_of(0).free_bytes()[0] == total


def test_the_array_interface_shares_the_memory() -> None:
    a = array(X, cuda(0))
    found = a.__cuda_array_interface__
    assert (found["shape"], found["typestr"], found["version"]) == ((3, 4), "<f4", 3)
    b = from_interface(a, cuda(0))
    b[:] = 5
    np.testing.assert_array_equal(a.numpy(), 5)

    class Columns:
        __cuda_array_interface__ = {**found, "strides": (4, 12)}

    with pytest.raises(InvalidValueError, match="row-major"):
        from_interface(Columns(), cuda(0))


def test_dlpack_both_ways_shares_the_memory() -> None:
    a = array(X, cuda(0))
    for source in (a, a.to_dlpack()):
        b = from_dlpack(source)
        assert isinstance(b, DeviceArray) and b.address == a.address
        assert (b.shape, b.dtype, b.device) == (a.shape, a.dtype, a.device)
    b[:] = 3
    np.testing.assert_array_equal(a.numpy(), 3)
    address = a.address
    del a, source
    gc.collect()
    assert b.address == address
    np.testing.assert_array_equal(b.numpy(), 3)  # it keeps the memory alive


def test_capsules_that_nobody_takes_give_the_memory_back() -> None:
    total = driver_of(0).free_bytes()[1]
    a = array(X, cuda(0))
    capsule = a.to_dlpack()
    del a
    gc.collect()
    assert driver_of(0).free_bytes()[0] < total
    del capsule
    gc.collect()
    assert driver_of(0).free_bytes()[0] == total


def test_a_capsule_is_used_once() -> None:
    capsule = array(X, cuda(0)).to_dlpack()
    from_dlpack(capsule)
    with pytest.raises((InvalidTypeError, ValueError, TypeError, BufferError)):
        from_dlpack(capsule)


def test_a_capsule_is_shared_where_it_lies() -> None:
    a = array(X, cuda(0))
    for options in ({"copy": True}, {"dl_device": (1, 0)}):
        with pytest.raises(InvalidValueError, match="shared where it lies"):
            a.__dlpack__(**options)
    assert a.__dlpack_device__() == (2, 0)


def test_a_callers_stream() -> None:
    with cuda(0).on_stream(0):
        a = array(X, cuda(0))
    np.testing.assert_array_equal(a.numpy(), X)
    assert a.__cuda_array_interface__["stream"] == driver_of(0).stream_handle() == 1
    cuda(0).sync()
    cuda(0).sync(0)
    with pytest.raises(TVMError, match="has no streams"):
        cpu(0).on_stream(0)


def test_bfloat16_on_the_device() -> None:
    dtypes = pytest.importorskip("ml_dtypes")
    values = np.arange(6).astype(dtypes.bfloat16).reshape(2, 3)
    a = array(values, cuda(0))
    assert a.dtype == "bfloat16" and (a.numpy() == values).all()
    b = from_dlpack(a)
    assert b.dtype == "bfloat16" and b.address == a.address and (b.numpy() == values).all()
    assert not hasattr(a, "__cuda_array_interface__"), "it has no name for bfloat16"
    assert empty((3,), "bfloat16", cuda(0)).dtype == "bfloat16"


def test_a_kernel_of_bfloat16_runs_on_arrays() -> None:
    import autosched
    from autosched import te, topi

    dtypes = pytest.importorskip("ml_dtypes")
    x = te.placeholder((5, 7), dtype="bfloat16", name="x")
    module = autosched.build(te.create_prim_func([x, topi.relu(x)]), target="cuda -arch=sm_90a")
    values = np.random.default_rng(0).normal(size=(5, 7)).astype(dtypes.bfloat16)
    out = empty((5, 7), "bfloat16", cuda(0))
    module.entry_func(array(values, cuda(0)), out)
    assert (out.numpy() == np.maximum(values, 0)).all()
