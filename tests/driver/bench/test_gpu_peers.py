"""Other runtimes on a GPU are refused in words where there is none; where there is one, they run."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

from autosched.driver.bench.peers import PEERS, peer_program
from autosched.errors import UsageError
from autosched.target.cuda_host import has_cuda_driver

GPU_PEERS = ("onnxruntime-cuda", "torch-cuda", "torch-compile")


@pytest.fixture
def model(tmp_path: Path) -> Path:
    weight = numpy_helper.from_array(np.ones((4, 3), np.float32), "w")
    x, y = (helper.make_tensor_value_info(n, TensorProto.FLOAT, s) for n, s in (("x", (2, 4)), ("y", (2, 3))))
    graph = helper.make_graph([helper.make_node("MatMul", ["x", "w"], ["y"])], "product", [x], [y], [weight])
    path = tmp_path / "product.onnx"
    path.write_bytes(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]).SerializeToString())
    return path


@pytest.mark.skipif(has_cuda_driver(), reason="a CUDA driver is here")
@pytest.mark.parametrize("name", GPU_PEERS)
def test_without_a_gpu_they_say_so(name: str, model: Path) -> None:
    pytest.importorskip("onnxruntime" if "onnx" in name else "torch")
    with pytest.raises(UsageError, match="no CUDA provider|sees no CUDA device"):
        peer_program(name, model, 1)


@pytest.mark.gpu
@pytest.mark.skipif(not has_cuda_driver(), reason="no CUDA driver is here")
@pytest.mark.parametrize("name", GPU_PEERS)
def test_with_a_gpu_they_run(name: str, model: Path) -> None:
    pytest.importorskip("onnxruntime" if "onnx" in name else "torch")
    peer_program(name, model, 1).run()


def test_the_command_offers_all() -> None:
    from autosched.cli.bench import RUNTIMES

    assert set(RUNTIMES) == set(PEERS)


def test_an_unknown_one(model: Path) -> None:
    with pytest.raises(UsageError, match="tensorrt cannot run") as caught:
        peer_program("tensorrt", model, 1)
    assert all(name in str(caught.value) for name in PEERS)


def test_constants_are_where_the_network_is(model: Path) -> None:
    torch = pytest.importorskip("torch")
    from autosched.driver.model_files import load_model
    from autosched.frontend.torch.network import TorchNetwork

    network = TorchNetwork(load_model(model), device="meta")  # a device without memory, which every machine has
    assert network(torch.zeros((2, 4), device="meta")).device.type == "meta"
