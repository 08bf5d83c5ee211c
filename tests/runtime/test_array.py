import pickle

import numpy as np
import pytest

from autosched.errors import AutoschedError, TVMError
from autosched.runtime import GraphModule, NDArray, array, cpu, cuda, empty, from_dlpack
from tests.runtime.kernels import chain


@pytest.mark.parametrize("source", [[1.0, 2.0], np.arange(6).reshape(2, 3).T, 3, np.float32(2), np.zeros((0, 4))])
def test_array_copies_what_numpy_reads(source):
    made = array(source)
    assert made.dtype == str(np.asarray(source).dtype)
    np.testing.assert_array_equal(made.numpy(), np.asarray(source))
    assert made.device == cpu(0)
    assert made.address % 64 == 0


def test_array_and_numpy_are_copies():
    source = np.zeros(3, "float32")
    made = array(source)
    source[0] = 1
    made.numpy()[1] = 1
    assert made.numpy().tolist() == [0, 0, 0]
    assert array(made).address != made.address


def test_empty_has_shape_and_dtype():
    made = empty((2, 3), "int8")
    assert (made.shape, made.dtype, made.ndim) == ((2, 3), "int8", 2)
    assert empty(4).shape == (4,)
    with pytest.raises(TypeError, match="dtype 'nonsense'"):
        empty((1,), "nonsense")


def test_copyfrom_converts_dtype_and_checks_shape():
    made = empty((2,), "float32")
    assert made.copyfrom(np.array([1, 2])) is made
    assert made.numpy().tolist() == [1, 2]
    with pytest.raises(ValueError, match="shape"):
        made.copyfrom(np.zeros(3))
    with pytest.raises(TypeError, match="no array"):
        made.copyfrom("text")


def test_copyto_gives_the_target():
    source, target = array([1.0, 2.0]), empty((2,), "float32")
    assert source.copyto(target) is target
    assert target.numpy().tolist() == [1, 2]
    copy = source.copyto(cpu(0))
    assert copy is not source
    with pytest.raises(TypeError):
        source.copyto(np.zeros(2))


def test_only_the_full_slice_is_set():
    made = empty((2,), "float32")
    made[:] = [3, 4]
    assert made.numpy().tolist() == [3, 4]
    made[:] = 0
    assert made.numpy().tolist() == [0, 0]
    with pytest.raises(ValueError, match="whole"):
        made[0] = 1


def test_identity_repr_and_pickle():
    made = array(np.ones((1, 2), "float32"))
    assert made != array(made)
    assert "(1, 2)" in repr(made)
    assert "cpu:0" in repr(made)
    assert pickle.loads(pickle.dumps(made)).numpy().tolist() == [[1, 1]]


def test_dlpack_shares_memory_both_ways():
    made = array(np.zeros(3, "float32"))
    np.from_dlpack(made)[0] = 5
    assert made.numpy()[0] == 5
    source = np.zeros(3, "float32")
    shared = from_dlpack(source)
    assert isinstance(shared, NDArray)
    source[2] = 7
    assert shared.numpy()[2] == 7
    with pytest.raises(ValueError, match="row-major"):
        from_dlpack(np.zeros((4, 3)).T)


def test_no_array_on_another_device():
    with pytest.raises(TVMError, match="cuda:0"):
        empty((1,), device=cuda(0))


def test_tensors_that_require_gradients_are_taken_and_others_refused_in_one_line():
    torch = pytest.importorskip("torch")
    executable = chain(3, 1)
    x = torch.ones(3, 64, requires_grad=True)
    double = executable.get_lib()["double"]
    out = np.zeros((3, 64), "f")
    double(x, out)
    module = GraphModule(executable)
    module.run(x=x)
    for result in (executable(x).numpy(), out, module.get_output(0).numpy(), 2 * from_dlpack(x).numpy()):
        np.testing.assert_array_equal(result, np.full((3, 64), 2))
    for wrong in (
        torch.ones(3, 64).to_sparse(),
        torch.ones(3, 64, device="meta"),
        torch.ones(3, 64, device="meta", dtype=torch.bfloat16),
    ):
        for use in (executable, array, from_dlpack, lambda tensor: double(tensor, out)):
            with pytest.raises(TypeError) as caught:
                use(wrong)
            assert isinstance(caught.value, AutoschedError)
            assert "\n" not in str(caught.value)


def test_bfloat16_of_pytorch_comes_in_and_goes_out() -> None:
    torch = pytest.importorskip("torch")
    pytest.importorskip("ml_dtypes")
    given = torch.arange(6, dtype=torch.bfloat16).reshape(2, 3)
    copy, shared = array(given), from_dlpack(given)
    assert copy.dtype == shared.dtype == "bfloat16" and shared.address == given.data_ptr()
    given[0, 0] = 9
    assert float(shared.numpy()[0, 0]) == 9 and float(copy.numpy()[0, 0]) == 0
    back = torch.from_dlpack(copy)
    assert back.dtype is torch.bfloat16 and back.data_ptr() == copy.address
    assert back.tolist() == [[0, 1, 2], [3, 4, 5]]
