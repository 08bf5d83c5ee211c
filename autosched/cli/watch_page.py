"""`autosched logs watch --web`: the live table as a page on this machine's loopback address."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib import resources
from typing import TYPE_CHECKING

from autosched.json_types import JsonObject

if TYPE_CHECKING:
    pass

State = Callable[[], JsonObject]
ADDRESS = "127.0.0.1"


class WatchPage:
    """Serves the page until it is closed; only requests that name the loopback address are answered.

    state     what the page shows: {"columns": [{"title", "right"}], "rows": texts, "text": a line about all}
    every_s   how often the page asks for it
    port      0: a free one
    Raises    OSError where the port is taken.
    """

    def __init__(self, state: State, every_s: float, port: int = 0):
        here = resources.files("autosched.records.report")
        page = (here / "live.html").read_text(encoding="utf-8")
        style = (here / "page.css").read_text(encoding="utf-8")
        page = page.replace("{every_ms}", str(max(1, round(1e3 * every_s)))).replace("{style}", style)
        self._server = ThreadingHTTPServer((ADDRESS, port), _handler(page.encode(), state))
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.1,), daemon=True)
        self._thread.start()

    @property
    def url(self) -> str:
        """Where a browser finds it."""
        return f"http://{ADDRESS}:{self._server.server_address[1]}/"

    def close(self) -> None:
        """Answer nothing more."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


def _handler(page: bytes, state: State) -> type[BaseHTTPRequestHandler]:
    lock = threading.Lock()  # of the database's connection

    class Handler(BaseHTTPRequestHandler):
        """Answers two paths; a page of another site that knows the port learns nothing."""

        def do_GET(self) -> None:
            host = self.headers.get("Host", "").rpartition(":")[0]
            if host not in (ADDRESS, "localhost"):
                return self.send_error(403)
            if self.path == "/":
                return self._send(page, "text/html; charset=utf-8")
            if self.path != "/state":
                return self.send_error(404)
            with lock:
                found = state()
            return self._send(json.dumps(found).encode(), "application/json")

        def _send(self, body: bytes, kind: str) -> None:
            self.send_response(200)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(body)))
            self.send_header("Cache-Control", "no-store")
            self.send_header("X-Content-Type-Options", "nosniff")
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:
            """Requests are not logged."""

    return Handler
