import threading

import numpy as np
import pytest

from autosched.errors import ArtifactError
from autosched.runtime import Executable, GraphExecutor, NDArray
from tests.runtime.kernels import chain, double_kernel


@pytest.fixture
def executable():
    return chain(3, 2, constant=True)


def test_call_gives_new_arrays(executable):
    x = np.random.default_rng(0).random((3, 64), "float32")
    first, second = executable(x), executable(x=x + 1)
    assert isinstance(first, NDArray)
    np.testing.assert_array_equal(first.numpy(), x * 4 + executable.constants[0])
    np.testing.assert_array_equal(second.numpy(), (x + 1) * 4 + executable.constants[0])


@pytest.mark.parametrize(
    ("args", "named", "kind", "words"),
    [
        ((), {}, TypeError, r"input 'x' is missing; inputs are x: float32\[3, 64\]"),
        ((1, 2), {}, TypeError, "2 inputs instead of 1"),
        ((), {"y": 1}, TypeError, "input 'y' is unknown"),
        ((np.zeros((3, 64), "float32"),), {"x": 1}, TypeError, "input 'x' is given twice"),
        ((np.zeros((3, 64)),), {}, TypeError, "dtype float64 instead of float32"),
        ((np.zeros((3, 63), "float32"),), {}, ValueError, r"shape \[3, 63\] instead of \[3, 64\]"),
        (("text",), {}, TypeError, "no array"),
    ],
)
def test_wrong_inputs(executable, args, named, kind, words):
    with pytest.raises(kind, match=words):
        executable(*args, **named)


def test_calls_from_several_threads(executable):
    wrong = []

    def work(value):
        x = np.full((3, 64), value, "float32")
        for _ in range(100):
            if not (executable(x).numpy() == 4 * value + executable.constants[0]).all():
                wrong.append(value)

    workers = [threading.Thread(target=work, args=(value,)) for value in range(4)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(60)
    assert not wrong


def test_the_factory_makes_executors(executable):
    assert isinstance(executable["default"](), GraphExecutor)
    with pytest.raises(AttributeError, match="default"):
        executable["other"]


def test_parts_that_do_not_fit_are_refused(executable):
    with pytest.raises(ArtifactError, match="missing"):
        Executable({"double": double_kernel()}, executable.graph, executable.constants, executable.native)


def test_what_it_says_of_itself(executable):
    assert [value.name for value in executable.inputs] == ["x"]
    assert [value.name for value in executable.outputs] == ["y"]
    assert repr(executable) == "<autosched.runtime.Executable: 2 kernels, 3 nodes, 1 constants>"
    assert "# double" in executable.source
