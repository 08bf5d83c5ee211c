import threading

import numpy as np
import pytest

from autosched.codegen.native import native_object
from autosched.runtime import Module, array, cpu, empty, graph_of_kernel, load_module
from tests.runtime.kernels import add_kernel, double_kernel, normalize_kernel


@pytest.fixture
def arrays():
    a, b = np.random.default_rng(0).random((2, 3, 64), "float32")
    return array(a), array(b), empty((3, 64))


@pytest.fixture
def module():
    kernels = {"main": add_kernel(), "twice": double_kernel()}
    return Module(kernels, native_object(), threads=1, manifest={"note": "test"})


def test_call_by_name_by_entry_and_with_numpy(module, arrays):
    a, b, out = arrays
    expected = a.numpy() + b.numpy()
    for call in (module["main"], module, module.get_function("main"), module.entry_func, module["__tvm_main__"]):
        out[:] = 0
        call(a, b, out)
        np.testing.assert_array_equal(out.numpy(), expected)
    plain = np.zeros((3, 64), "float32")
    module(a.numpy(), b.numpy(), plain)
    np.testing.assert_array_equal(plain, expected)


def test_unaligned_arrays_work(module, arrays):
    a, b, _ = arrays
    memory = np.zeros(3 * 64 + 1, "float32")
    module(a, b, memory[1:].reshape(3, 64))
    np.testing.assert_array_equal(memory[1:].reshape(3, 64), a.numpy() + b.numpy())


def test_unknown_functions(module):
    with pytest.raises(AttributeError, match="no function 'nothing'; it has main, twice"):
        module["nothing"]
    with pytest.raises(ValueError, match="text"):
        module[3]
    assert module.implements_function("twice")
    assert not module.implements_function("nothing", True)


@pytest.mark.parametrize(
    ("change", "kind", "words"),
    [
        (lambda a, b, o: (a, b), TypeError, "2 arguments instead of 3"),
        (lambda a, b, o: (a, 1, o), TypeError, "argument 1 'x1' is a int, no array"),
        (lambda a, b, o: (a, b, array(o.numpy().astype("float64"))), TypeError, "dtype float64 instead of float32"),
        (lambda a, b, o: (a, array(np.zeros((3, 63), "float32")), o), ValueError, r"shape \[3, 63\] instead"),
        (lambda a, b, o: (a, np.zeros((64, 3), "float32").T, o), ValueError, "row-major"),
        (lambda a, b, o: (a, b, np.broadcast_to(np.float32(0), (3, 64))), ValueError, "row-major"),
    ],
)
def test_wrong_arguments_name_function_argument_and_signature(module, arrays, change, kind, words):
    with pytest.raises(kind, match=words) as caught:
        module["main"](*change(*arrays))
    assert r"main(x0: Tensor([3, 64], float32)" in str(caught.value)


def test_read_only_outputs_are_refused(module, arrays):
    out = np.zeros((3, 64), "float32")
    out.flags.writeable = False
    with pytest.raises(ValueError, match="'out' is read-only"):
        module(arrays[0], arrays[1], out)


@pytest.mark.parametrize("threads", [1, 2, 3])
def test_phases_have_a_barrier_and_scratch(threads, monkeypatch):
    monkeypatch.setattr("autosched.runtime.module.choose_threads", lambda threads: threads)
    x = np.random.default_rng(1).random((4, 64), "float32")
    module = Module({"main": normalize_kernel()}, native_object(), threads=threads)
    out = np.zeros_like(x)
    for _ in range(500):
        out[:] = -1
        module(x, out)
        np.testing.assert_allclose(out, x / x.sum(dtype=np.float64), rtol=1e-5)


def test_time_evaluator_runs_the_kernel(module, arrays):
    a, b, out = arrays
    out[:] = 0
    result = module.time_evaluator("main", cpu(), number=3, repeat=4)(a, b, out)
    assert len(result.results) == 4
    assert 0 < result.min <= result.median <= result.max
    np.testing.assert_array_equal(out.numpy(), a.numpy() + b.numpy())
    flushed = module.time_evaluator("main", cpu(), number=1, repeat=2, f_preproc="cache_flush_cpu_non_first_arg")
    assert flushed(a, b, out).min > 0
    with pytest.raises(ValueError, match="f_preproc"):
        module.time_evaluator("main", cpu(), f_preproc="nonsense")
    with pytest.raises(AttributeError):
        module.time_evaluator("nothing", cpu())


def test_imported_modules_are_searched(module):
    outer = Module({"other": double_kernel()}, native_object(), threads=1)
    outer.import_module(module)
    assert outer["main"] is module["main"]
    assert outer.imported_modules == [module]
    with pytest.raises(AttributeError):
        outer.get_function("main")
    with pytest.raises(TypeError):
        outer.import_module(3)


def test_source_names_every_kernel(module):
    assert "# add" in module.get_source()
    assert module.inspect_source() == module.get_source()


@pytest.mark.parametrize("name", ["m.asx", "m.so", "m.tar"])
def test_export_and_load_whatever_the_extension(module, arrays, tmp_path, name):
    module.export_library(tmp_path / name)
    loaded = load_module(tmp_path / name)
    assert loaded.manifest == {"note": "test"}
    a, b, out = arrays
    loaded(a, b, out)
    np.testing.assert_array_equal(out.numpy(), a.numpy() + b.numpy())
    loaded["twice"](a, out)
    np.testing.assert_array_equal(out.numpy(), a.numpy() * 2)
    with pytest.raises(ValueError, match="does not exist"):
        load_module(tmp_path / "missing.so")


def test_a_function_of_several_kernels():
    graph = graph_of_kernel(double_kernel(), "step")
    module = Module({"step": double_kernel()}, native_object(), functions={"go": graph}, threads=1)
    x, out = np.ones((3, 64), "float32"), np.zeros((3, 64), "float32")
    module["go"](x, out)
    assert out[0, 0] == 2
    assert not module.implements_function("step")


def test_concurrent_callers_get_their_own_results():
    kernel = double_kernel(64, flops=10**9)
    module = Module({"main": kernel}, native_object())
    wrong = []

    def work(value):
        x, out = np.full((64, 64), value, "float32"), np.zeros((64, 64), "float32")
        for _ in range(300):
            out[:] = 0
            module(x, out)
            if not (out == 2 * value).all():
                wrong.append(value)

    workers = [threading.Thread(target=work, args=(value,)) for value in range(4)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(60)
    assert not wrong
