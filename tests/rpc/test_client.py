"""A session's files, arrays, modules and executors, as TVM's users use them."""

from __future__ import annotations

import json
import runpy
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import autosched as tvm
from autosched import relax, rpc
from autosched.contrib import graph_executor
from autosched.errors import InvalidTypeError, InvalidValueError, NameNotFoundError, ShapeError
from tests.rpc.parts import SERVER, N, add_one, start


@pytest.fixture(scope="module")
def remote(server: rpc.Server) -> Iterator[rpc.RPCSession]:
    with rpc.connect("127.0.0.1", server.port, "board") as session:
        yield session


def test_the_session_is_another_process(remote: rpc.RPCSession) -> None:
    import os

    assert remote.info["pid"] != os.getpid() and tvm.target.Target(remote.info["target"]).is_cpu


def test_files(remote: rpc.RPCSession, tmp_path: Path) -> None:
    data = bytes(range(256)) * 9000  # more than a block
    (tmp_path / "a.bin").write_bytes(data)
    remote.upload(str(tmp_path / "a.bin"))
    remote.upload(bytearray(b"xyz"), "b.bin")
    assert {"a.bin", "b.bin"} <= set(remote.listdir().split(","))
    assert remote.download("a.bin") == data and remote.download("b.bin") == b"xyz"
    remote.remove("a.bin")
    with pytest.raises(InvalidValueError, match="no file 'a.bin'"):
        remote.download("a.bin")
    with pytest.raises(ValueError, match="target"):
        remote.upload(b"no name")


@pytest.mark.parametrize("name", ["../x", "/etc/passwd", "..", ".hidden", "a/b", "", "a\0b", "x" * 300])
def test_names_cannot_leave_the_folder(remote: rpc.RPCSession, name: str) -> None:
    for op in ("open", "append", "download", "remove", "load"):
        if op != "append":
            with pytest.raises(InvalidValueError, match="no name of a file"):
                remote.ask(op, name=name, size=1, offset=0)


def test_a_function(remote: rpc.RPCSession, library: Path) -> None:
    add_one(remote, library)
    module, dev = remote.load_module(library.name), remote.cpu()
    a, b = tvm.nd.array(np.ones(N, "float32"), dev), tvm.nd.array(np.zeros(N, "float32"), dev)
    timed = module.time_evaluator(module.entry_name, dev, number=3, repeat=4)(a, b)
    assert len(timed.results) == 4 and timed.min > 0
    module["add_one"](a, b)
    with pytest.raises(NameNotFoundError, match="no function 'nobody'"):
        module["nobody"]
    with pytest.raises(InvalidTypeError, match="3 arguments instead of 2"):
        module(a, b, b)
    with pytest.raises(ShapeError):
        module(a, tvm.nd.empty((3,), "float32", dev))
    module(a, np.zeros(N, "float32"))  # an array of this process is copied there; its session lives on


def test_arrays(remote: rpc.RPCSession) -> None:
    dev = remote.cpu()
    x = np.arange(24, dtype="float32").reshape(6, 4)
    a = tvm.nd.array(x, dev)
    assert a.shape == (6, 4) and a.dtype == "float32" and "remote[" in str(a.device) and dev.exist
    np.testing.assert_array_equal(a[2:4].numpy(), x[2:4])
    a[1:3] = np.full((2, 4), 7.0)
    a[5:] = 9
    x[1:3], x[5:] = 7, 9
    np.testing.assert_array_equal(a.numpy(), x)
    np.testing.assert_array_equal(a.copyto(tvm.cpu()).numpy(), x)
    b = tvm.nd.empty((6, 4), "float32", dev)
    a.copyto(b)
    b[:] = b.numpy() + 1
    np.testing.assert_array_equal(b.copyto(dev).numpy(), x + 1)
    assert tvm.nd.array(np.zeros((0, 3), "int64"), dev).numpy().shape == (0, 3)
    for what in ("float16", "int8", "uint8", "bool", "float64"):
        np.testing.assert_array_equal(tvm.nd.array(x.astype(what), dev).numpy(), x.astype(what))
    with pytest.raises(ShapeError):
        a.copyfrom(np.zeros(3))
    with pytest.raises(InvalidTypeError):
        a.view()


def test_arrays_are_freed_there(remote: rpc.RPCSession) -> None:
    first = tvm.nd.empty((1 << 25,), "float32", remote.cpu()).number
    for _ in range(40):  # 5 GB in all, of 1 GB that the session may take
        made = tvm.nd.empty((1 << 25,), "float32", remote.cpu())
        made[0:1] = 1.0
    assert made.number > first


def test_too_large_an_array_is_an_error_and_no_end(remote: rpc.RPCSession) -> None:
    with pytest.raises(tvm.TVMError, match="4398046511104 bytes of memory are needed"):
        tvm.nd.empty((1 << 40,), "float32", remote.cpu())
    assert remote.listdir() is not None


def test_errors_are_those_of_the_function(remote: rpc.RPCSession) -> None:
    with pytest.raises(InvalidValueError, match="Cannot find global function"):
        remote.get_function("nobody")
    sort = remote.get_function("tvm.contrib.sort.sort")
    a = tvm.nd.array(np.array([3.0, 1.0, 2.0], "float32"), remote.cpu())
    out = tvm.nd.empty((3,), "float32", remote.cpu())
    sort(a, out)
    assert out.numpy().tolist() == [1, 2, 3]


def _dense(rows: Any = 4) -> tuple[tvm.IRModule, dict[str, np.ndarray]]:
    bb = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorStructInfo((rows, 8), "float32"))
    weight = np.random.default_rng(0).standard_normal((8, 16)).astype("float32")
    with bb.function("main", [x]):
        with bb.dataflow():
            y = bb.emit_output(relax.op.nn.relu(relax.op.matmul(x, relax.const(weight))))
        bb.emit_func_output(y)
    return bb.get(), {"weight": weight}


@pytest.mark.parametrize("rows", [4, tvm.tir.Var("n", "int64")])
def test_the_graph_executor(rows: Any, remote: rpc.RPCSession, tmp_path: Path) -> None:
    module, params = _dense(rows)
    lib = tvm.build(module)
    lib.export_library(tmp_path / "net.tar")
    remote.upload(str(tmp_path / "net.tar"))
    rlib, dev = remote.load_module("net.tar"), remote.cpu()
    data = np.random.default_rng(1).standard_normal((4, 8)).astype("float32")
    expected = np.maximum(data @ params["weight"], 0)
    g = graph_executor.GraphModule(rlib["default"](dev))
    g.set_input("x", tvm.nd.array(data, dev))
    g.run()
    np.testing.assert_allclose(g.get_output(0).numpy(), expected, rtol=1e-5, atol=1e-5)
    assert g.get_num_inputs() >= 1 and g.get_input_info()[0]["x"] == (4 if isinstance(rows, int) else -1, 8)
    g.set_input("x", np.zeros((4, 8), "float32"))
    g.run()
    assert not g.get_output(0).numpy().any()
    out = g.get_output(0, tvm.nd.empty((4, 16), "float32", dev))
    assert out.shape == (4, 16)
    assert g.benchmark(dev, number=2, repeat=3).min > 0
    assert g.benchmark(dev, number=2, repeat=3, end_to_end=True, x=tvm.nd.array(data, dev)).min > 0
    assert [t.node.name for t in g.profile(2)] and all(t.seconds > 0 for t in g.profile(2))
    np.testing.assert_allclose(rlib(data).numpy(), expected, rtol=1e-5, atol=1e-5)
    with pytest.raises(tvm.TVMError, match="could not find 'nobody'"):
        g.set_input("nobody", data)


def test_a_graph_over_a_remote_library(remote: rpc.RPCSession, tmp_path: Path) -> None:
    """TVM's deployment: graph, library and parameters apart, as the graph-executor tutorial has it."""
    module, weights = _dense()
    built = tvm.build(module)
    graph, lib, params = built.get_graph_json(), built.get_lib(), built.get_params()
    lib.export_library(tmp_path / "lib.tar")
    remote.upload(str(tmp_path / "lib.tar"))
    rlib = remote.load_module("lib.tar")
    g = graph_executor.create(graph, rlib, remote.cpu())
    g.load_params(tvm.runtime.save_param_dict(params))
    data = np.random.default_rng(2).standard_normal((4, 8)).astype("float32")
    g.run(x=data)
    np.testing.assert_allclose(g.get_output(0).numpy(), np.maximum(data @ weights["weight"], 0), rtol=1e-5, atol=1e-5)
    assert json.loads(graph)
    with pytest.raises(AssertionError, match="same session"):
        graph_executor.create(graph, lib, remote.cpu())
    with pytest.raises(InvalidValueError, match="all or no"):
        graph_executor.create(graph, rlib, [remote.cpu(), tvm.cpu()])


def test_the_virtual_machine(remote: rpc.RPCSession, tmp_path: Path) -> None:
    module, weights = _dense()
    relax.build(module, "llvm").export_library(tmp_path / "vm.so")
    remote.upload(str(tmp_path / "vm.so"))
    vm = relax.VirtualMachine(remote.load_module("vm.so"), remote.cpu())
    data = np.random.default_rng(3).standard_normal((4, 8)).astype("float32")
    expected = np.maximum(data @ weights["weight"], 0)
    np.testing.assert_allclose(vm["main"](tvm.nd.array(data, remote.cpu())).numpy(), expected, rtol=1e-5, atol=1e-5)
    vm.set_input("main", tvm.nd.array(data, remote.cpu()))
    vm.invoke_stateful("main")
    np.testing.assert_allclose(vm.get_outputs("main").numpy(), expected, rtol=1e-5, atol=1e-5)
    assert vm.time_evaluator("main", remote.cpu(), number=2)(tvm.nd.array(data, remote.cpu())).mean > 0
    assert vm.profile("main", tvm.nd.array(data, remote.cpu())).calls


def test_two_sessions_do_not_share(server: rpc.Server, remote: rpc.RPCSession, library: Path) -> None:
    with rpc.connect("127.0.0.1", server.port, "board") as other:
        remote.upload(library)
        assert library.name not in other.listdir()
        module = remote.load_module(library.name)
        foreign = tvm.nd.empty((N,), "float32", other.cpu())
        with pytest.raises(InvalidValueError, match="another session"):
            module(foreign, foreign)
        np.testing.assert_array_equal(tvm.nd.array(np.ones(N), other.cpu()).copyto(remote.cpu()).numpy(), np.ones(N))
    with pytest.raises(rpc.RPCError, match="was closed"):
        other.listdir()


def test_a_session_without_a_server(library: Path) -> None:
    with rpc.PopenSession() as session:
        add_one(session, library)
    local = rpc.LocalSession()
    local.upload(str(library))
    assert local.listdir() == library.name and local.cpu() == tvm.cpu(0)
    with pytest.raises(ValueError):
        local.load_module("nobody.so")


def test_the_other_side_loads_no_compiler(library: Path) -> None:
    """What a session's process has loaded after it has run a library: the runtime, and llvmlite for its linker."""
    with rpc.PopenSession() as session:
        add_one(session, library)
        maps = Path(f"/proc/{session.info['pid']}/maps").read_text()
        assert "llvmlite" in maps and "numpy" in maps
        assert not [line for line in maps.splitlines() if "/numba/" in line or "/scipy/" in line or "/sklearn/" in line]


def test_the_tutorials_script_against_a_server_in_another_process(monkeypatch: pytest.MonkeyPatch) -> None:
    process, port = start(SERVER)
    monkeypatch.setattr("sys.argv", ["tutorial", str(port)])
    try:
        with pytest.warns(DeprecationWarning, match="unpacking"):
            runpy.run_path(str(Path(__file__).parent / "tutorial.txt"))
    finally:
        process.kill()
        process.wait()
