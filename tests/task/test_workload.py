import pickle

import numpy as np
import pytest

from autosched.errors import InvalidValueError
from autosched.target import Target
from autosched.task import Task, Workload


def conv(**attrs: object) -> Workload:
    return Workload("conv2d", ("float32",) * 3, ((1, 3, 8, 8), (4, 3, 3, 3), (1, 4, 8, 8)), attrs, "bias+relu")  # type: ignore[arg-type]


def test_key_is_canonical() -> None:
    a, b = conv(strides=(1, 1), groups=1), conv(groups=np.int64(1), strides=[1, 1])
    assert a == b and a.key == b.key and hash(a) == hash(b)
    assert a != conv(strides=(2, 2), groups=1)
    assert Workload.from_json(a.to_json()) == a == pickle.loads(pickle.dumps(a))
    assert str(a) == "conv2d 1x3x8x8 4x3x3x3 1x4x8x8 + bias+relu"


NO_WORKLOADS = ["", "[]", "{}", '{"op": 1, "dtypes": [], "shapes": []}', '{"op": "x", "dtypes": [], "shapes": [["a"]]}']


@pytest.mark.parametrize("text", NO_WORKLOADS)
def test_refuses_what_is_no_workload(text: str) -> None:
    with pytest.raises(InvalidValueError):
        Workload.from_json(text)
    with pytest.raises(InvalidValueError):
        conv(window=object())


def test_task_is_filed_under_its_workload() -> None:
    task = Task(conv(), Target("llvm -mcpu=x86-64-v3"), weight=4, threads=2)
    assert task.key == conv().key and task.title == str(conv())
    with pytest.raises(InvalidValueError):
        Task(conv(), Target("llvm -mcpu=x86-64-v3"), threads=0)
