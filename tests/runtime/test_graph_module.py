"""`GraphModule` on things that are no executor of ours."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

import autosched
from autosched.errors import InvalidTypeError, ShapeError, TVMError
from autosched.runtime import GraphModule, cpu
from tests.driver.build.test_dynamic import mlp, model, n
from tests.runtime.kernels import chain


class Recorder:
    """Has an executor's functions by name, and notes their calls."""

    def __init__(self) -> None:
        self.calls: list[tuple[Any, ...]] = []

    def __getitem__(self, name: str) -> Any:
        answers = {"get_input_index": 0, "get_num_outputs": 1, "get_num_inputs": 2, "get_input_info": ({}, {})}

        def call(*args: Any) -> Any:
            self.calls.append((name, *args))
            return answers.get(name)

        return call


def test_any_module_with_the_functions_will_do() -> None:
    inner = Recorder()
    module = GraphModule(inner)
    assert module.module is inner
    module.set_input("x", 1)
    module.set_input(small=np.zeros(2), large=np.zeros(5))
    module.run()
    module.get_output(0)
    names = [(call[0], call[1] if len(call) > 1 else None) for call in inner.calls if call[0] != "get_input_index"]
    expected = [("set_input", "x"), ("set_input", "large"), ("set_input", "small"), ("run", None), ("get_output", 0)]
    assert names == expected
    assert module.get_num_inputs() == 2 and callable(module["run"])


def test_an_input_that_the_caller_got_is_not_shared() -> None:
    executable = chain(3, 1, constant=True)
    one, other = GraphModule(executable), GraphModule(executable)
    bias = one.get_input("bias")
    assert bias is not None
    bias.copyfrom(np.zeros((3, 64)))
    x = np.ones((3, 64), np.float32)
    one.run(x=x)
    other.run(x=x)
    np.testing.assert_array_equal(one.get_output(0).numpy(), 2 * x)
    np.testing.assert_array_equal(other.get_output(0).numpy(), 2 * x + executable.constants[0])


@pytest.mark.parametrize("mode", [{}, {"end_to_end": True}, {"func_name": "run", "min_repeat_ms": 1}])
def test_benchmark(mode: dict[str, Any]) -> None:
    module = GraphModule(chain(3, 1))
    result = module.benchmark(cpu(), repeat=3, number=2, x=np.ones((3, 64)), **mode)
    assert len(result.results) == 3 and result.min > 0
    module.benchmark(cpu(), number=1, repeat=1, nobody=3)
    with pytest.raises(RuntimeError, match="could not find 'nobody'"):
        module.benchmark(cpu(), number=1, repeat=1, end_to_end=True, nobody=3)


def test_wrong_keys() -> None:
    module = GraphModule(chain(3, 1))
    with pytest.raises(TypeError, match="name or position"):
        module.set_input(1.5, np.ones((3, 64)))  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="by position"):
        module.get_output("y")  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="bytes"):
        module.load_params("text")  # type: ignore[arg-type]
    with pytest.raises(NotImplementedError):
        module.debug_get_output(0, None)  # type: ignore[arg-type]
    with pytest.raises(AttributeError, match="no function 'fly'"):
        module["fly"]


def test_a_model_of_open_sizes_takes_inputs_of_any_size() -> None:
    built = autosched.build(model((n(), 50), mlp))
    module = GraphModule(built["default"](cpu()))
    with pytest.raises(TVMError, match="before a run"):
        module.get_output(0)
    with pytest.raises(TVMError, match="input 'x' is not set"):
        module.run()
    assert module.get_input_info() == ({"x": (-1, 50)}, {"x": "float32"}) and module.get_input_index("x") == 0
    for size in (3, 70, 3, 1):
        x = np.random.default_rng(size).standard_normal((size, 50))
        module.run(x=x)
        np.testing.assert_array_equal(module.get_output(0).numpy(), built(x.astype("float32")).numpy())
        np.testing.assert_array_equal(module.get_input("x").numpy(), x.astype("float32"))  # type: ignore[union-attr]
    assert len(module.benchmark(cpu(), repeat=2, number=1, end_to_end=True, x=np.ones((5, 50))).results) == 2
    assert module.get_output(0, autosched.runtime.empty((5, 10))).shape == (5, 10)
    assert module.benchmark(cpu(), repeat=1, number=1).min > 0 and len(module.profile(1)) > 1
    for wrong in (np.ones(50), np.ones((2, 49))):
        with pytest.raises(ShapeError, match="instead of"):
            module.set_input("x", wrong)
    with pytest.raises(AttributeError, match="no function 'fly'"):
        module["fly"]
    with pytest.raises(InvalidTypeError, match="float64 on cpu"):
        module.set_input_zero_copy("x", autosched.runtime.empty((2, 50), "float64"))
    with pytest.raises(TVMError, match="cannot run on cuda"):
        built["default"](autosched.cuda())


def test_threads_have_inputs_of_their_own_over_open_sizes() -> None:
    built = autosched.build(model((n(), 50), mlp))
    module, x = GraphModule(built), np.ones((4, 50), "float32")
    module.set_input("x", x)

    def other() -> tuple[int, ...]:
        module.set_input("x", x[:2])
        module.run()
        return module.get_output(0).shape

    with ThreadPoolExecutor(1) as threads:
        assert threads.submit(other).result() == (2, 10)
    module.run()
    assert module.get_output(0).shape == (4, 10)
    data = autosched.runtime.save_param_dict({"x": x[:1], "unknown": x})
    module.load_params(data)
    assert module.get_input_info() == ({}, {})
    second = GraphModule(built)
    second.share_params(module, data)
    second.run()
    np.testing.assert_array_equal(second.get_output(0).numpy(), built(x[:1]).numpy())
