"""Fixtures of the Spark tests. Those in `engine/` start Spark: they are collected where it is installed."""

import importlib.util
from collections.abc import Iterator
from typing import Any

import pytest

from rsmq_django.core import Client, Queue
from rsmq_django.spark.options import Options
from rsmq_django.spark.server import Server
from tests.redis_server import PrivateServer

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
