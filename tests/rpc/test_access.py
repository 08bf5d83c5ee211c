"""Addresses, secrets, versions, TLS."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest

import autosched as tvm
from autosched import rpc
from autosched.errors import RPCError, TVMError, UsageError
from autosched.rpc.access import Access, check_key, described, fits, is_loopback, raised, safe_name
from tests.rpc.parts import add_one, make_certificates


@pytest.mark.parametrize(
    ("client", "server", "is_ok"),
    [("0.1.0", "0.1.9", True), ("0.1.0", "0.2.0", True), ("0.2.0", "0.1.0", False), ("0.1.0", "0.3.0", False),
     ("1.0.0", "2.0.0", False), ("x", "0.1.0", False), ("1", "1", False), ("1.2.3.4", "1.3", True)],
)  # fmt: skip
def test_which_versions_fit(client: str, server: str, is_ok: bool) -> None:
    assert fits(client, server) is is_ok


def test_another_version_is_refused_with_both_named(tmp_path: Path) -> None:
    """The server runs as another version in a process of its own."""
    from tests.rpc.parts import SERVER, is_refused, start

    for version, is_ok in (("0.2.5", True), ("0.3.0", False), ("0.0.9", False)):
        process, port = start(f"import autosched.version as v; v.__version__ = {version!r}\n{SERVER}")
        try:
            text = is_refused(port)
            assert (not text) if is_ok else f"client is autosched {tvm.__version__}, the server {version}" in text
        finally:
            process.kill()
            process.wait()


def test_addresses() -> None:
    assert is_loopback("127.0.0.1") and is_loopback("localhost") and is_loopback("[::1]") and is_loopback("127.9.9.9")
    assert not is_loopback("0.0.0.0") and not is_loopback("10.0.0.1") and not is_loopback("localhost.example.org")
    with pytest.raises(UsageError, match="need a secret"):
        Access(ca=Path("ca.pem")).check_host("10.0.0.1", "connecting to")
    Access("a long secret", ca=Path("ca.pem")).check_host("10.0.0.1", "connecting to")
    with pytest.raises(UsageError, match="shorter"):
        Access("short").secret_bytes()
    for wrong in ("a b", "a\nb", "ä" * 300, "a/b"):
        with pytest.raises(UsageError, match="no key"):
            check_key(wrong)
    assert safe_name("lib.tar") == "lib.tar"


def test_errors_cross_by_name_alone() -> None:
    found = raised(described(UsageError("no", hint="yes")))
    assert type(found) is UsageError and str(found) == "no; yes"
    assert type(raised({"type": "printable", "message": "x"})) is RPCError
    assert type(raised({"type": "__builtins__"})) is RPCError and type(raised(3)) is RPCError
    assert isinstance(raised(described(ZeroDivisionError("by zero"))), TVMError)


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if shutil.which("openssl") is None:
        pytest.skip("openssl makes the certificates")
    folder = tmp_path_factory.mktemp("tls")
    make_certificates(folder, "server", "client")
    return folder


def test_mutual_tls(certificates: Path, library: Path) -> None:
    ca, secret = certificates / "ca.pem", "a long secret"
    at_server = Access(secret, ca, certificates / "server.pem", certificates / "server.key")
    at_client = Access(secret, ca, certificates / "client.pem", certificates / "client.key")
    with rpc.Server("127.0.0.1", 0, silent=True, access=at_server) as server:
        with rpc.connect("127.0.0.1", server.port, access=at_client) as session:
            add_one(session, library)
            big = np.random.default_rng(0).random(1 << 20)  # many times what is passed on at once
            np.testing.assert_array_equal(tvm.nd.array(big, session.cpu()).numpy(), big)
        for wrong in (Access(secret), Access(secret, ca), Access(secret, certificates / "other.pem")):
            with pytest.raises(RPCError):
                rpc.connect("127.0.0.1", server.port, access=wrong, connect_timeout=1)
        with pytest.raises(RPCError, match="wrong secret"):
            rpc.connect("127.0.0.1", server.port, access=Access("other secret", ca, at_client.cert, at_client.tls_key))


def test_files_for_tls_that_cannot_be_used(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="needs a certificate"):
        Access(ca=tmp_path / "ca.pem").server_context()
    with pytest.raises(UsageError, match="cannot be used"):
        Access(ca=tmp_path / "ca.pem").client_context()
