"""What the tests of remote devices share: a library, processes that can be killed, raw connections."""

from __future__ import annotations

import socket
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np

import autosched
from autosched import te
from autosched.env import child_environment
from autosched.errors import RPCError
from autosched.rpc.access import Access, greet, open_socket
from autosched.rpc.frames import Frames

N = 64


def save_add_one(path: Path) -> Path:
    """A library whose `add_one` adds one to N numbers."""
    a = te.placeholder((N,), name="a")
    b = te.compute((N,), lambda i: a[i] + 1.0, name="b")
    autosched.build(te.create_prim_func([a, b]).with_attr("global_symbol", "add_one")).export_library(path)
    return path


def save_model(path: Path) -> Path:
    """An .onnx file that computes y [4, 48] = relu(x [4, 48] @ w)."""
    import onnx
    from onnx import TensorProto, helper

    w = np.random.default_rng(0).standard_normal((48, 48)).astype("f4")
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["x", "w"], ["z"]), helper.make_node("Relu", ["z"], ["y"])], "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, (4, 48))],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, (4, 48))],
        [onnx.numpy_helper.from_array(w, "w")],
    )  # fmt: skip
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), path)
    return path


def add_one(session: autosched.rpc.RPCSession, path: Path) -> None:
    """Upload the library, run it there, and compare."""
    session.upload(path)
    function = session.load_module(path.name)
    x = np.arange(N, dtype="float32")
    a, b = autosched.nd.array(x, session.cpu()), autosched.nd.empty((N,), "float32", session.cpu())
    function(a, b)
    np.testing.assert_array_equal(b.numpy(), x + 1)


def make_certificates(folder: Path, *names: str) -> None:
    """Certificates with their keys for 127.0.0.1, signed by ca.pem; other.pem is another authority. Needs openssl."""

    def openssl(*arguments: str) -> None:
        subprocess.run(["openssl", *arguments], cwd=folder, check=True, capture_output=True)

    for name in ("ca", "other"):
        openssl("req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "3650",
                "-subj", f"/CN={name}", "-keyout", f"{name}.key", "-out", f"{name}.pem")  # fmt: skip
    (folder / "names").write_text("subjectAltName=IP:127.0.0.1")
    for name in names:
        openssl("req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-subj", f"/CN={name}",
                "-keyout", f"{name}.key", "-out", f"{name}.csr")  # fmt: skip
        openssl("x509", "-req", "-in", f"{name}.csr", "-CA", "ca.pem", "-CAkey", "ca.key", "-CAcreateserial",
                "-days", "3650", "-extfile", "names", "-out", f"{name}.pem")  # fmt: skip


def start(
    code: str, *arguments: str, environment: Mapping[str, str] | None = None
) -> tuple[subprocess.Popen[str], int]:
    """A process that prints a port as its first line."""
    words = [sys.executable, "-c", code, *arguments]
    process = subprocess.Popen(words, stdout=subprocess.PIPE, text=True, env=environment or child_environment())
    assert process.stdout is not None
    line = process.stdout.readline()
    return process, int(line)


SERVER = """
import sys
from autosched import rpc
tracker = ("127.0.0.1", int(sys.argv[1])) if len(sys.argv) > 1 else None
server = rpc.Server("127.0.0.1", 0, key="board", tracker_addr=tracker, silent=True)
print(server.port, flush=True)
server.wait()
"""
TRACKER = """
import sys
from autosched import rpc
port = int(sys.argv[1]) if len(sys.argv) > 1 else 0
tracker = rpc.Tracker("127.0.0.1", port, silent=True)
print(tracker.port, flush=True)
tracker.wait()
"""


def wait_until(holds: Callable[[], bool], within_s: float = 20.0) -> None:
    """Wait until something holds; fails after a time that no machine needs."""
    end = time.monotonic() + within_s
    while not holds():
        assert time.monotonic() < end, "it never came to hold"
        time.sleep(0.01)


def raw_session(port: int) -> Frames:
    """A connection of a session of which the test writes every byte itself."""
    access = Access()
    frames = Frames(open_socket("127.0.0.1", port, access, 10))
    greet(frames, access, "session", "board", timeout=0)
    frames.socket.settimeout(20)
    return frames


def is_free(port: int) -> bool:
    """Whether a port can be listened at."""
    with socket.socket() as sock:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            sock.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


def is_refused(port: int) -> str:
    """The error of connecting; "" where that succeeds."""
    try:
        autosched.rpc.connect("127.0.0.1", port, "board").close()
    except RPCError as error:
        return str(error)
    return ""
