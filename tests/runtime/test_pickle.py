"""What a build gives can be sent to other processes."""

import multiprocessing
import pickle

import numpy as np
import pytest

import autosched
from autosched import te
from autosched.runtime import GraphModule
from autosched.runtime.relax_vm import VirtualMachine, VMExecutable, program_of
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
