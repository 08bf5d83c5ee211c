"""A PostgreSQL server of the tests' own: started once a run, on a Unix socket, as a user without rights."""

from __future__ import annotations

import glob
import itertools
import os
import pwd
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

PLACES = ("/usr/lib/postgresql/*/bin", "/usr/pgsql-*/bin", "/usr/local/pgsql/bin", "/opt/homebrew/opt/postgresql*/bin")
_numbers = itertools.count()


def find_binaries() -> Path | None:
    """The folder of the newest server's programs."""
    found = [folder for place in PLACES for folder in glob.glob(place) if os.path.isfile(f"{folder}/initdb")]
    if found:
        return Path(max(found, key=lambda folder: [int(n) for n in folder.replace("-", "/").split("/") if n.isdigit()]))
    on_path = shutil.which("initdb")
    return Path(on_path).parent if on_path else None


def server_user() -> str | None:
    """Whom the server runs as: PostgreSQL refuses root. None: as ourselves. Skips where there is nobody."""
    if os.geteuid() != 0:
        return None
    for name in ("postgres", "nobody"):
        try:
            pwd.getpwnam(name)
        except KeyError:
            continue
        return name
    pytest.skip("PostgreSQL does not run as root, and there is no other user")


class Server:
    """A running server.

    stop, start  end it at once, as a crash does, and let it come back
    """

    def __init__(self, binaries: Path, folder: Path):
        self.binaries, self.folder, self.user = binaries, folder, server_user()
        if self.user is not None:
            os.chmod(folder, 0o755)
            shutil.chown(folder, self.user)
        self._run("initdb", "-D", str(folder / "data"), "-U", "tester", "-A", "trust", "-E", "UTF8", "--no-sync")
        self.start()

    def start(self) -> None:
        """Start, and wait until it answers."""
        options = (
            f"-c listen_addresses='' -c unix_socket_directories='{self.folder}' -c fsync=off -c max_connections=50"
        )
        log = str(self.folder / "log")
        self._run("pg_ctl", "-D", str(self.folder / "data"), "-w", "-s", "-l", log, "-o", options, "start")

    def stop(self) -> None:
        """End without warning: connections break, nothing is written in order."""
        self._run("pg_ctl", "-D", str(self.folder / "data"), "-w", "-s", "-m", "immediate", "stop")

    def new_database(self) -> str:
        """The URL of a new, empty database."""
        name = f"test{next(_numbers)}"
        self._run(
            "psql", "-h", str(self.folder), "-U", "tester", "-q", "-d", "postgres", "-c", f"CREATE DATABASE {name}"
        )
        return self.new_url(name)

    def new_url(self, name: str) -> str:
        """The URL of a database, whether there is one or not."""
        return f"postgresql+psycopg://tester@/{name}?host={self.folder}"

    def _run(self, program: str, *args: str) -> None:
        command = [str(self.binaries / program), *args]
        environment = {"PATH": os.environ.get("PATH", ""), "LC_ALL": "C", "TZ": "UTC"}
        done = subprocess.run(
            command, user=self.user, cwd=self.folder, env=environment, stdin=subprocess.DEVNULL, timeout=120,
            stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
        assert done.returncode == 0, f"{program}: {done.stderr}"


@pytest.fixture(scope="session")
def postgres() -> Iterator[Server]:
    """A server; skips, with the reason, where none is installed."""
    pytest.importorskip("psycopg", reason="the driver for PostgreSQL is not installed")
    binaries = find_binaries()
    if binaries is None:
        pytest.skip("no PostgreSQL server is installed (apt-get install postgresql)")
    folder = Path(tempfile.mkdtemp(prefix="autosched-pg-"))  # short: a socket's path has at most 107 characters
    server = Server(binaries, folder)
    try:
        yield server
    finally:
        server.stop()
        shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def postgres_url(postgres: Server) -> str:
    """The URL of a new, empty database on a real server."""
    return postgres.new_database()


@pytest.fixture
def new_database(postgres: Server) -> Callable[[], str]:
    """Gives the URL of another new, empty database on each call."""
    return postgres.new_database
