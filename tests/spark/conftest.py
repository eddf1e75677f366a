"""Fixtures of the Spark tests. Those in `engine/` start Spark: they are collected where it is installed."""

import importlib.util
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from rsmq_django.core import Client, Queue
from rsmq_django.spark.options import Options
from rsmq_django.spark.server import Server
from tests.redis_server import PrivateServer
from tests.spark import s3_server

HAS_SPARK = importlib.util.find_spec("pyspark") is not None
collect_ignore_glob = [] if HAS_SPARK else ["engine/*"]


@pytest.fixture
def options(server: PrivateServer) -> Any:
    """Make options of the private server; names as Spark has them."""

    def make(**given: str) -> Options:
        return Options.read({"url": server.url, "patienceS": "5"} | given)

    return make


@pytest.fixture
def pipeline_server(server: PrivateServer) -> Iterator[Server]:
    found = Server(server.url, namespace="rsmq", patience_s=5)
    yield found
    found.close()


@pytest.fixture
def mail(client: Client) -> Queue:
    queue = Queue("mail", client)
    queue.create()
    return queue


@pytest.fixture(scope="session")
def s3() -> Iterator[dict[str, str]]:
    """An S3 in a process of this machine, with a bucket; returns the variables of its clients."""
    with s3_server.serving() as variables:
        yield variables


@pytest.fixture(params=["disk", "s3"])
def place(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """An empty lake on each storage."""
    if request.param == "disk":
        return str(tmp_path / "lake")
    for name, value in request.getfixturevalue("s3").items():
        monkeypatch.setenv(name, value)
    return f"s3://lakes/{tmp_path.name}"
