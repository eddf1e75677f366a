from collections.abc import Iterator

import pytest

from rsmq_django.core import Connection
from tests.exchanges import Exchanges
from tests.redis_server import PrivateServer
from tests.worker.workshop import configure, own_registries, patient_workers, project  # noqa: F401


@pytest.fixture
def exchanges(server: PrivateServer, monkeypatch: pytest.MonkeyPatch) -> Iterator[Exchanges]:
    """What goes to Redis, and what happens to it."""
    exchanges = Exchanges(server)
    monkeypatch.setattr(Connection, "exchange", lambda *args: exchanges.exchange(*args))
    monkeypatch.setattr(Connection, "aexchange", lambda *args: exchanges.aexchange(*args))
    monkeypatch.setattr(Connection, "begin", lambda *args: exchanges.begin(*args))
    monkeypatch.setattr(Connection, "finish", lambda *args: exchanges.finish(*args))
    yield exchanges
    server.redis.config_set("maxmemory", 0)
