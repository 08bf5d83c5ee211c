"""Whole models through the runtime's own executor, on the emulator: built for an H200, run, saved, loaded, captured."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import autosched
from autosched import te
from autosched.errors import ArtifactError, DeviceError, InvalidTypeError, TVMError
from autosched.runtime import Executable, array, cpu, cuda
from autosched.runtime.cuda.devices import use_driver
from autosched.runtime.variants import Variants
from autosched.script import from_source

pytestmark = pytest.mark.usefixtures("emulated")
SCRIPT = """
@I.ir_module
class M:
    @R.function
    def main(x: R.Tensor((5, 12), "float32"), w: R.Tensor((12, 7), "float32")) -> R.Tensor((5, 7), "float32"):
        with R.dataflow():
            h = R.nn.relu(R.matmul(x, w))
            out = R.nn.softmax(h, axis=-1)
            R.output(out)
        return out
"""
OPEN = """
@I.ir_module
class M:
    @R.function
    def main(x: R.Tensor(("n", 4), "float32")) -> R.Tensor(("n", 4), "float32"):
        n = T.int64()
        with R.dataflow():
            out = R.nn.relu(x)
            R.output(out)
        return out
"""
RNG = np.random.default_rng(0)
W = RNG.normal(size=(12, 7)).astype("float32")


def expected(x: np.ndarray) -> np.ndarray:
    h = np.maximum(x.astype("float64") @ W.astype("float64"), 0)
    e = np.exp(h - h.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def inputs() -> np.ndarray:
    return RNG.normal(size=(5, 12)).astype("float32")


@pytest.fixture(scope="module")
def built() -> Executable:
    pytest.importorskip("numba_cuda", reason="the CUDA packages are an extra")
    return autosched.build(from_source(SCRIPT), target="nvidia/nvidia-h200", params={"w": W}, records=[])


@pytest.fixture
def model(built: Executable) -> Executable:
    """With no executors yet: those of other tests are on other devices."""
    return Executable.from_contents(built.contents())


def test_a_model_runs_on_the_device(model: Executable) -> None:
    x = inputs()
    out = model(x)
    assert str(out.device) == "cuda:0"
    np.testing.assert_allclose(out.numpy(), expected(x), rtol=1e-5)
    np.testing.assert_allclose(model(array(x, cuda(0))).numpy(), expected(x), rtol=1e-5)


def test_the_executor_captures_and_follows_its_inputs(model: Executable) -> None:
    executor = model.create_executor()
    assert str(executor.device) == "cuda:0"
    for _ in range(3):  # plain, captured, replayed
        x = inputs()
        executor.set_input("x", x)
        executor.run()
        np.testing.assert_allclose(executor.get_output(0).numpy(), expected(x), rtol=1e-5)
    x, out = inputs(), array(np.zeros((5, 7), "float32"), cuda(0))
    executor.set_input_zero_copy("x", array(x, cuda(0)))  # other addresses: it is captured anew
    executor.set_output_zero_copy(0, out)
    for _ in range(3):
        executor.run()
        np.testing.assert_allclose(out.numpy(), expected(x), rtol=1e-5)
    with pytest.raises(InvalidTypeError, match="not on cuda:0"):
        executor.set_input_zero_copy("x", x)
    w = executor.get_input("w") if executor.get_input_index("w") >= 0 else None
    assert w is None or w.shape


def test_it_is_timed_by_events_and_profiled(model: Executable) -> None:
    executor = model.create_executor()
    assert executor.time_evaluator("run", number=2)().mean > 0
    times = executor.profile(2)
    assert len(times) == len(model.graph.nodes) and all(t.seconds > 0 for t in times if t.node.kernel in model.kernels)


def test_a_saved_model_runs_in_a_process_without_compiler(model: Executable, tmp_path: Path) -> None:
    model.save(tmp_path / "m.asx")
    loaded = autosched.load(tmp_path / "m.asx")
    assert isinstance(loaded, Executable) and {k: v.code for k, v in loaded.kernels.items()} == {
        k: v.code for k, v in model.kernels.items()
    }
    x = inputs()
    np.testing.assert_array_equal(loaded(x).numpy(), model(x).numpy())
    code = (
        f"import sys, autosched\nm = autosched.load({str(tmp_path / 'm.asx')!r})\n"
        "try:\n    m(__import__('numpy').zeros((5, 12), 'float32'))\n"
        "except Exception as error:\n    print(type(error).__name__, error.exit_code, error)\n"
        "assert 'numba' not in sys.modules and 'autosched.codegen' not in sys.modules"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    if autosched.cuda(0).exist is False:
        assert done.stdout.startswith("DeviceError 2 cuda:0 does not exist")


@pytest.mark.emulated
def test_a_model_for_another_chip_is_refused(model: Executable) -> None:
    from autosched.codegen.cuda.emulate import EmulatorDriver

    with use_driver(lambda index: EmulatorDriver(index, compute_capability=(8, 0))):
        with pytest.raises(DeviceError, match=r"was built for sm_90a, and .* compute capability 8\.0"):
            model.create_executor()
    with pytest.raises(TVMError, match="built for cuda devices and cannot run on cpu:0"):
        model.create_executor(cpu(0))


@pytest.mark.emulated
def test_one_artifact_for_several_targets(model: Executable, tmp_path: Path) -> None:
    from autosched.codegen.cuda.emulate import EmulatorDriver

    module = from_source(SCRIPT)
    built = autosched.build(
        module, target=["cpu", "cuda -arch=sm_80", "nvidia/nvidia-h200"], params={"w": W}, records=[]
    )
    assert isinstance(built, Variants) and set(built.executables) >= {"sm_80", "sm_90a"}
    built.save(tmp_path / "several.asx")
    x = inputs()
    for capability, variant in (((9, 0), "sm_90a"), ((8, 6), "sm_80"), ((12, 0), "sm_80"), ((7, 5), "")):
        with use_driver(lambda index, c=capability: EmulatorDriver(index, compute_capability=c)):  # type: ignore[misc]
            loaded = autosched.load(tmp_path / "several.asx")
            kinds = {kernel.backend for kernel in loaded.kernels.values()}
            assert kinds == ({"cuda"} if variant else {"cpu"})
            assert loaded.variant == variant or not variant
            assert built.here is built.executables[loaded.variant]
            if capability == (9, 0):
                np.testing.assert_allclose(loaded(x).numpy(), expected(x), rtol=1e-5)


@pytest.mark.emulated
def test_functions_on_device_arrays() -> None:
    a = te.placeholder((300,), name="a")
    b = te.compute((300,), lambda i: a[i] * 2.0 + 1.0, name="b")
    module = autosched.build(te.create_prim_func([a, b]), target="nvidia/nvidia-h200", records=[])
    x, out = array(np.arange(300, dtype="float32"), cuda(0)), array(np.zeros(300, "float32"), cuda(0))
    module(x, out)
    np.testing.assert_array_equal(out.numpy(), np.arange(300) * 2.0 + 1.0)
    other = array(np.zeros(300, "float32"), cuda(0))
    module(x, other)  # other addresses each call
    np.testing.assert_array_equal(other.numpy(), out.numpy())
    assert module.time_evaluator(module.entry_func.name, cuda(0), number=2)(x, out).mean > 0
    for place, given in (
        ("the host", np.zeros(300, "float32")),
        ("cpu:0", array(np.zeros(300, "float32"))),
        ("cuda:1", array(np.zeros(300, "float32"), cuda(1))),
    ):
        with pytest.raises(ValueError, match=f"argument 0 'a' is on {place} instead of cuda:0"):
            module(given, out)


def test_kernels_of_two_back_ends_do_not_mix(model: Executable) -> None:
    with pytest.raises(ArtifactError, match="not for a CPU"):
        from autosched.runtime.loader import load_objects

        load_objects(model.kernels.values())


def test_the_vm_on_a_device() -> None:
    from autosched import relax

    built = relax.build(from_source(SCRIPT), "nvidia/nvidia-h200")
    machine = relax.VirtualMachine(built, cuda(0))
    x = inputs()
    out = machine["main"](array(x, cuda(0)), array(W, cuda(0)))
    assert str(out.device) == "cuda:0"
    np.testing.assert_allclose(out.numpy(), expected(x), rtol=1e-5)


@pytest.mark.emulated
def test_the_vm_wants_the_device_that_its_kernels_run_on() -> None:
    from autosched import relax

    built = relax.build(from_source(SCRIPT), "nvidia/nvidia-h200")
    x = inputs()
    out = built["main"](array(x, cuda(0)), array(W, cuda(0)))  # on its own device where none is named
    np.testing.assert_allclose(out.numpy(), expected(x), rtol=1e-5)
    for given, others in ((cpu(0), "cpu:0"), ([cpu(0)], "cpu:0"), (cuda(1), "cuda:1 and cpu:0")):
        with pytest.raises(TVMError, match=f"runs on cuda:0, and the VM has {others}"):
            relax.VirtualMachine(built, given)


def test_the_vm_wants_the_device_of_functions_that_are_built_when_they_are_called() -> None:
    from autosched import relax

    built = relax.build(from_source(OPEN), "nvidia/nvidia-h200")
    with pytest.raises(TVMError, match="runs on cuda:0, and the VM has cpu:0"):
        relax.VirtualMachine(built, cpu(0))
    x = array(np.full((3, 4), -2, "float32"), cuda(0))
    np.testing.assert_array_equal(relax.VirtualMachine(built, cuda(0))["main"](x).numpy(), np.zeros((3, 4)))
