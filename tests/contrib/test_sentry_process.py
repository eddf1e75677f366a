"""A worker process sends its failures to Sentry: the settings of the documentation, and a server in Sentry's place."""

from __future__ import annotations

import gzip
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from sentry_sdk.envelope import Envelope

from tests.documentation import ROOT, Project
from tests.redis_server import PrivateServer


class Collector(ThreadingHTTPServer):
    """Takes what clients of Sentry send."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.items: list[dict[str, Any]] = []

    @property
    def dsn(self) -> str:
        return f"http://public@127.0.0.1:{self.server_address[1]}/1"


class _Handler(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        assert isinstance(self.server, Collector)
        body = self.rfile.read(int(self.headers["Content-Length"]))
        if self.headers.get("Content-Encoding") == "gzip":
            body = gzip.decompress(body)
        self.server.items += [item.payload.json for item in Envelope.deserialize(body).items if item.payload.json]
        self.send_response(200)
        self.end_headers()

    def log_message(self, *_: Any) -> None:
        """Print nothing."""


@pytest.fixture
def collector() -> Iterator[Collector]:
    with Collector() as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def test_a_worker_process_sends_a_failure(
    tmp_path: Path, server: PrivateServer, collector: Collector, monkeypatch: pytest.MonkeyPatch
) -> None:
    project = Project(tmp_path, ROOT / "docs" / "how-to" / "sentry.md", server.url)
    project.write("shop/tasks.py", "from rsmq_django.tasks import task\n@task(max_attempts=1)\ndef fail(): 1 / 0\n")
    monkeypatch.setenv("SENTRY_DSN", collector.dsn)
    task_id = project.python("from shop.tasks import fail; print(fail.enqueue().id)").strip()

    project.run("-m", "django", "rsmq_worker", "--batch")

    (event,) = [item for item in collector.items if "exception" in item]
    assert event["exception"]["values"][-1]["type"] == "ZeroDivisionError"
    assert (event["tags"]["rsmq.task"], event["tags"]["rsmq.task_id"]) == ("shop.tasks.fail", task_id)
