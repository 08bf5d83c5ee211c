import numpy as np
import pytest

from autosched.codegen.native import native_object
from autosched.errors import TVMError
from autosched.runtime import (
    NOP,
    Executable,
    Graph,
    GraphModule,
    Node,
    Storage,
    Value,
    array,
    cpu,
    cuda,
    empty,
    save_param_dict,
)
from autosched.runtime.memory import empty_aligned
from tests.runtime.kernels import add_kernel, chain, double_kernel


@pytest.fixture
def x():
    return np.random.default_rng(0).random((3, 64), "float32")


@pytest.fixture
def executable():
    return chain(3, 2, constant=True)


@pytest.fixture
def module(executable):
    return GraphModule(executable, threads=1)


def test_set_run_get(module, executable, x):
    module.set_input("x", x)
    assert module.run() is None
    expected = x * 4 + executable.constants[0]
    np.testing.assert_array_equal(module.get_output(0).numpy(), expected)
    module.set_input(0, array(x.astype("float64")))  # the dtype is converted
    module.run()
    np.testing.assert_array_equal(module.get_output(0).numpy(), expected)
    out = empty((3, 64))
    assert module.get_output(0, out) is out
    np.testing.assert_array_equal(out.numpy(), expected)


def test_the_next_run_overwrites_an_output(module, x):
    module.run(x=x)
    output = module.get_output(0)
    before = output.numpy()
    module.run(x=x + 1)
    assert (output.numpy() != before).all()


def test_unknown_inputs(module, x):
    with pytest.raises(RuntimeError, match="could not find 'nothing'"):
        module.set_input("nothing", x)
    with pytest.raises(IndexError):
        module.set_input(5, x)
    module.set_input(nothing=x)  # keywords that name no input are ignored
    module["set_input"]("nothing", x)
    module.run(nothing=x, x=x)
    assert module.get_input("nothing") is None
    assert module.get_input_index("nothing") == -1


def test_wrong_shapes(module):
    with pytest.raises(ValueError, match="'x'"):
        module.set_input("x", np.zeros((3, 63)))
    with pytest.raises(ValueError, match="shape"):
        module.get_output(0, empty((2, 2)))
    with pytest.raises(TypeError, match="no array"):
        module.set_input("x", "text")
    with pytest.raises(IndexError):
        module.get_output(1)


def test_inputs_count_weights(module, executable, x):
    assert (module.get_num_inputs(), module.get_num_outputs()) == (2, 1)
    assert (module.get_input_index("x"), module.get_input_index("bias")) == (0, 1)
    assert module.get_input_info() == ({"x": (3, 64)}, {"x": "float32"})
    np.testing.assert_array_equal(module.get_input("bias").numpy(), executable.constants[0])
    module.set_input("x", x)
    np.testing.assert_array_equal(module.get_input("x").numpy(), x)
    copy = empty((3, 64))
    assert module.get_input(0, copy) is copy


def test_a_constant_can_be_replaced_in_one_executor_only(module, executable, x):
    other, before = GraphModule(executable, threads=1), executable.constants[0].copy()
    for value in (0.0, 1.0):
        module.set_input("bias", np.full((3, 64), value, "float32"))
        module.run(x=x)
        np.testing.assert_array_equal(module.get_output(0).numpy(), x * 4 + np.float32(value))
    other.run(x=x)
    np.testing.assert_array_equal(other.get_output(0).numpy(), x * 4 + before)
    np.testing.assert_array_equal(executable.constants[0], before)


def test_load_params(module, x):
    module.load_params(save_param_dict({"x": x, "unknown": x}))
    module.run()
    np.testing.assert_array_equal(module.get_input("x").numpy(), x)
    assert module.get_input_info() == ({}, {})


def test_share_params(module, executable, x):
    other = GraphModule(executable, threads=1)
    other.set_input("x", x)
    module.share_params(other, save_param_dict({"x": np.zeros((3, 64), "float32")}))
    module.run()
    np.testing.assert_array_equal(module.get_output(0).numpy(), x * 4 + executable.constants[0])
    other.set_input("x", x + 1)
    module.run()
    np.testing.assert_array_equal(module.get_output(0).numpy(), (x + 1) * 4 + executable.constants[0])


def test_zero_copy(module, executable, x):
    own_in, own_out = array(x), empty((3, 64))
    module.set_input_zero_copy("x", own_in)
    module.set_output_zero_copy(0, own_out)
    module.run()
    np.testing.assert_array_equal(own_out.numpy(), x * 4 + executable.constants[0])
    own_in[:] = 0
    module.run()
    np.testing.assert_array_equal(own_out.numpy(), executable.constants[0])


@pytest.mark.parametrize(
    ("value", "kind"),
    [
        (empty((3, 63)), ValueError),
        (empty((3, 64), "float64"), TypeError),
        (np.zeros(3 * 64 + 1, "float32")[1:].reshape(3, 64)[:, ::-1], ValueError),
        (3, TypeError),
    ],
)
def test_zero_copy_needs_a_fitting_array(module, value, kind):
    with pytest.raises(kind, match="zero copy of 'x'"):
        module.set_input_zero_copy("x", value)


def test_raw_functions(module, x):
    module["set_input"]("x", x)
    module["run"]()
    assert module["get_num_outputs"]() == 1
    (output,) = module["run_from_inputs"](1, 0, "x", x)
    np.testing.assert_array_equal(output.numpy(), module.get_output(0).numpy())
    with pytest.raises(AttributeError, match="no function 'nothing'"):
        module["nothing"]
    with pytest.raises(NotImplementedError):
        module.debug_get_output(0, output)


def test_benchmark(module, executable, x):
    result = module.benchmark(cpu(), repeat=3, number=2, x=x, nothing=x)
    assert len(result.results) == 3
    np.testing.assert_array_equal(module.get_output(0).numpy(), x * 4 + executable.constants[0])
    assert len(module.benchmark(cpu(), repeat=2, number=1, end_to_end=True, x=x).results) == 2
    assert module.benchmark(cpu(), func_name="get_num_inputs", repeat=1, number=1).mean > 0
    with pytest.raises(TVMError, match="'nothing'"):
        module.benchmark(cpu(), end_to_end=True, nothing=x)


def test_profile(module):
    times = module.profile(3)
    assert [item.node.name for item in times] == ["double0", "double1", "add"]
    assert all(item.seconds > 0 for item in times)


def test_module_of_an_executor_shares_it(executable, x):
    executor = executable["default"](cpu(0))
    GraphModule(executor).run(x=x)
    np.testing.assert_array_equal(GraphModule(executor).get_input("x").numpy(), x)
    with pytest.raises(TypeError, match="takes an executor"):
        GraphModule(3)
    with pytest.raises(TVMError, match="cannot run on cuda:0"):
        GraphModule(executable, cuda(0))


def test_aliases_and_outputs_that_are_inputs(x):
    """x -> double (arena) -> reshape -> output; x itself and a constant are outputs too."""
    values = (
        Value("x", (3, 64), "float32", Storage("input", 0)),
        Value("v", (3, 64), "float32", Storage("arena", 0)),
        Value("flat", (192,), "float32", Storage("alias", 1)),
        Value("c", (2,), "float32", Storage("const", 0)),
        Value("w", (3, 64), "float32", Storage("output", 3)),
    )
    nodes = (
        Node("double", "double", (0,), (1,)),
        Node("reshape", NOP, (1,), (2,)),
        Node("add", "add", (0, 1), (4,)),
    )
    graph = Graph(values, nodes, (0,), (2, 0, 3, 4), 3 * 64 * 4)
    kernels = {"double": double_kernel(), "add": add_kernel()}
    executable = Executable(kernels, graph, (np.array([1, 2], "float32"),), native_object())
    flat, same, constant, total = executable(x)
    np.testing.assert_array_equal(flat.numpy(), (x * 2).reshape(-1))
    np.testing.assert_array_equal(same.numpy(), x)
    assert constant.numpy().tolist() == [1, 2]
    np.testing.assert_array_equal(total.numpy(), x + x * 2)
    module = GraphModule(executable, threads=1)
    out = empty((192,))
    module.set_output_zero_copy("flat", out)
    module.run(x=x)
    np.testing.assert_array_equal(out.numpy(), (x * 2).reshape(-1))
    with pytest.raises(ValueError, match="no memory of its own"):
        module.set_output_zero_copy(1, empty((3, 64)))


def test_an_output_is_written_into_no_read_only_memory(module, executable, x):
    for out in (empty_aligned((3, 64), "float32"), array(empty_aligned((3, 64), "float32")).view()):
        out.flags.writeable = False
        with pytest.raises(ValueError, match="the array for output 0 is read-only"):
            module.module.set_output_zero_copy(0, out)
    wide = empty_aligned((3, 128), "float32")
    with pytest.raises(ValueError, match="not row-major or not aligned"):
        module.module.set_output_zero_copy(0, wide[:, ::2])
    shifted = empty_aligned((3 * 64 + 1,), "float32")[1:].reshape(3, 64)
    with pytest.raises(ValueError, match="not row-major or not aligned"):
        module.module.set_output_zero_copy(0, shifted)
    out = empty_aligned((3, 64), "float32")
    module.module.set_output_zero_copy(0, out)
    module.set_input("x", x)
    module.run()
    np.testing.assert_array_equal(out, x * 4 + executable.constants[0])
