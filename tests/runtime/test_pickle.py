"""What a build gives can be sent to other processes."""

import multiprocessing
import pickle

import numpy as np
import pytest

import autosched
from autosched import relax, te, tir
from autosched.runtime import GraphModule
from autosched.runtime.relax_vm import VirtualMachine, VMExecutable, program_of
from tests.frontend.onnx_models import make, node
from tests.runtime.kernels import chain

_X = np.ones((3, 64), np.float32)


def test_an_executable_in_use():
    executable = chain(3, 2, constant=True)
    expected = executable(_X).numpy()
    again = pickle.loads(pickle.dumps(executable))
    np.testing.assert_array_equal(again(_X).numpy(), expected)
    assert again.manifest == executable.manifest


def test_a_module_in_use_with_what_it_imports():
    module, out = chain(3, 2).get_lib(), np.zeros_like(_X)
    module.import_module(chain(3, 2, constant=True).get_lib())
    module["double"](_X, out)
    again = pickle.loads(pickle.dumps(module))
    again["double"](_X, out)
    np.testing.assert_array_equal(out, 2 * _X)
    again["add"](_X, _X, out)
    np.testing.assert_array_equal(out, 2 * _X)


def test_a_vm_executable():
    executable = VMExecutable(program_of(chain(3, 2)))
    again = pickle.loads(pickle.dumps(executable))
    np.testing.assert_array_equal(VirtualMachine(again)["main"](_X).numpy(), 4 * _X)


def test_functions_of_symbolic_sizes():
    n = te.var("n")
    a = te.placeholder((n,), name="A")
    module = autosched.build(te.create_prim_func([a, te.compute((n,), lambda i: a[i] * 3.0, name="B")]), target="llvm")
    again, x, out = pickle.loads(pickle.dumps(module)), np.ones(5, np.float32), np.zeros(5, np.float32)
    again(x, out)
    np.testing.assert_array_equal(out, 3 * x)


def _same_after(model, *inputs):
    again = pickle.loads(pickle.dumps(model))
    np.testing.assert_array_equal(again(*inputs).numpy(), model(*inputs).numpy())
    return again


def test_models_that_are_compiled_when_called():
    late = autosched.build(make([node("NonZero", "x", "y")], {"x": (4,)}, ["y"]))
    assert isinstance(_same_after(late, np.array([0, 2, 0, 1], np.float32)), type(late))
    x = relax.Var("x", relax.TensorStructInfo((tir.SizeVar("n", "int64"), 4)))
    bb = relax.BlockBuilder()
    with bb.function("main", [x]):
        with bb.dataflow():
            flipped = bb.emit_output(relax.op.flip(x, 0))
        bb.emit_func_output(flipped)
    sized = autosched.build(bb.get())
    assert isinstance(_same_after(sized, np.arange(12, dtype=np.float32).reshape(3, 4)), type(sized))


def test_programs_of_pytorch():
    torch = pytest.importorskip("torch")

    class Sums(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("total", torch.zeros(3))

        def forward(self, x):
            self.total.add_(x)
            return self.total * 2

    stateful, x = autosched.build(torch.export.export(Sums(), (torch.ones(3),))), np.ones(3, np.float32)
    stateful(x)
    assert _same_after(stateful, x)(x).numpy().tolist() == [6, 6, 6]


def test_executors_say_what_to_pickle_instead():
    module = GraphModule(chain(3, 1))
    for what in (module, module.module):
        with pytest.raises(TypeError, match="pickle its executable"):
            pickle.dumps(what)


def _run(executable, answers):
    answers.put(executable(_X).numpy())


def test_an_executable_is_sent_to_a_process_that_was_spawned():
    context = multiprocessing.get_context("spawn")
    executable, answers = chain(3, 2), context.Queue()
    expected = executable(_X).numpy()
    child = context.Process(target=_run, args=(executable, answers))
    child.start()
    np.testing.assert_array_equal(answers.get(timeout=60), expected)
    child.join(30)
