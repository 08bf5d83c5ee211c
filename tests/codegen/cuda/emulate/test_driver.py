"""Generated kernels, and whole programs through the executor of GPUs, on the emulated device."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from autosched import build, cuda, te, topi
from autosched.codegen import compile_func
from autosched.codegen.cuda.emulate import EmulationError, EmulatorDriver, Trace, run_kernel
from autosched.errors import DeviceError, InvalidValueError
from autosched.frontend import nn
from autosched.ir import IRModule
from autosched.runtime.cuda.devices import use_driver
from autosched.runtime.graph_module import GraphModule
from autosched.target import Target
from autosched.te import create_prim_func
from autosched.templates import apply_config, default_config

from .kernels import BOTH, integers

pytest.importorskip("cuda.bindings.nvjitlink", reason="cuda-bindings is not installed")

TARGET = Target("cuda -arch=sm_90a")


def kernel_of(tensors):
    func = create_prim_func(tensors)
    return compile_func(apply_config(func, default_config(func, TARGET), TARGET).func, TARGET, name="main").kernel


def product(m, k, n):
    a, b = te.placeholder((m, k), name="A"), te.placeholder((k, n), name="B")
    return kernel_of([a, b, topi.relu(topi.matmul(a, b))])


@pytest.mark.parametrize("order", BOTH)
def test_a_generated_product(order):
    a, b, out = integers(37, 29), integers(29, 41, seed=1), np.zeros((37, 41), np.float32)
    trace = Trace()
    run_kernel(product(37, 29, 41), [a, b, out], order=order, traces=[trace])
    np.testing.assert_array_equal(out, np.maximum(a @ b, 0))
    assert {access.space for access in trace.accesses()} == {"global", "shared"}


def test_arrays_have_to_be_as_many_and_as_large_as_the_kernel_says():
    kernel = product(37, 29, 41)
    a, b, out = integers(37, 29), integers(29, 41, seed=1), np.zeros((37, 40), np.float32)
    with pytest.raises(InvalidValueError, match="takes 3 arrays"):
        run_kernel(kernel, [a, b])
    with pytest.raises(EmulationError, match="out of bounds"):
        run_kernel(kernel, [a, b, out])


class Network(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(33, 48), nn.Linear(48, 10)

    def forward(self, x):
        return nn.op.softmax(self.second(nn.op.relu(self.first(x))))


@pytest.mark.parametrize("order", BOTH)
def test_a_network_through_the_executor(order):
    module, parameters = Network().export_tvm({"forward": {"x": nn.spec.Tensor((5, 33), "float32")}})
    rng = np.random.default_rng(0)
    weights = {name: rng.normal(size=p.shape).astype(np.float32) * 0.2 for name, p in parameters}
    executable = build(IRModule({"main": module["forward"]}), target=TARGET, params=weights)
    x = rng.normal(size=(5, 33)).astype(np.float32)
    driver = EmulatorDriver(order=order)
    with use_driver(lambda index: driver):
        graph = GraphModule(executable, cuda(0))
        graph.set_input(x=x)
        for _ in range(2):
            graph.run()
        result = graph.get_output(0).numpy()
    w1, b1, w2, b2 = (weights[name].astype(np.float64) for name in sorted(weights, key=_layer))
    logits = np.maximum(x @ w1.T + b1, 0) @ w2.T + b2
    expected = np.exp(logits) / np.exp(logits).sum(1, keepdims=True)
    np.testing.assert_allclose(result, expected, rtol=1e-5)
    assert driver.n_launches >= 6


def _layer(name):
    return "second" in name, "bias" in name


def test_memory_of_the_device():
    driver = EmulatorDriver(memory_bytes=1000)
    block = driver.allocate(64)
    assert driver.free_bytes() == (936, 1000)
    data, back = np.arange(8, dtype=np.float64), np.zeros(4)
    driver.copy_in(block.address, data)
    driver.copy_on(block.address, block.address + 32, 32)
    driver.copy_out(back, block.address)
    np.testing.assert_array_equal(back, data[4:])
    driver.fill(block.address, 0, 64)
    driver.copy_out(back, block.address + 8)
    assert not back.any()
    with pytest.raises(DeviceError, match="no room for 937"):
        driver.allocate(937)
    with pytest.raises(DeviceError, match="lie in no memory"):
        driver.copy_in(block.address + 8, data)
    del block
    assert driver.free_bytes() == (1000, 1000)


def test_an_argument_ends_where_its_array_ends_though_more_memory_follows():
    driver = EmulatorDriver()
    kernel = product(37, 29, 41)
    shorter = replace(kernel, args=(*kernel.args[:2], replace(kernel.args[2], shape=(37, 40))))
    block = driver.allocate(1 << 20)
    addresses = [block.address, block.address + 8192, block.address + 16384, 0]
    driver.launch(*driver.load(kernel), kernel.launches[0], addresses)
    with pytest.raises(EmulationError, match="out of bounds"):
        driver.launch(*driver.load(shorter), kernel.launches[0], addresses)


def test_code_of_other_devices_is_refused():
    with pytest.raises(DeviceError, match="built for sm_90a"):
        EmulatorDriver(compute_capability=(8, 0)).load(product(37, 29, 41))
