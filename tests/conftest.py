"""Fixtures of all tests: a private, empty server and connections to it."""

import signal
import threading
import time
import weakref
from collections.abc import Generator, Iterator
from typing import Any

import hypothesis
import pytest
from django.conf import settings

from rsmq_django.core import Client, Connection, Queue
from rsmq_django.core.transport import backoff, handshake
from rsmq_django.embedded import EmbeddedServer
from rsmq_django.embedded.binary import find_server
from rsmq_django.worker.execute import invoke, resolve
from tests import deadline, leftovers, process_state
from tests.redis_server import PrivateServer
from tests.support import wait_until

leftovers.adopt_orphans()

# A shell starts what runs in the background deaf to Ctrl-C, and what tests start would inherit that.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# How long an example takes says something about the machine only. In CI, Hypothesis also takes the same examples each
# time, which this leaves as it is.
hypothesis.settings.register_profile("patient", deadline=None, suppress_health_check=[hypothesis.HealthCheck.too_slow])
hypothesis.settings.load_profile("patient")


@pytest.fixture(scope="session")
def _server_of_this_process() -> Iterator[PrivateServer]:
    server = PrivateServer()
    server.start()
    yield server
    server.stop()


@pytest.fixture
def server(_server_of_this_process: PrivateServer) -> PrivateServer:
    """The private server of this process, empty, under an address that no other test has."""
    _server_of_this_process.begin_test()
    return _server_of_this_process


@pytest.fixture(autouse=True)
def _process_stays_as_it_was() -> Iterator[None]:
    """Fail the test that leaves the process changed, not the ones after it. Set up before what may change it."""
    before = process_state.read()
    yield
    changed = process_state.put_back(before)
    assert not changed, "this test changed the process and did not put it back:\n" + "\n".join(changed)


@pytest.fixture
def monkeypatch(_process_stays_as_it_was: None) -> Iterator[pytest.MonkeyPatch]:
    """Put attributes back before the state is compared; the first to ask for this fixture is a plugin."""
    with pytest.MonkeyPatch.context() as patch:
        yield patch


@pytest.fixture
def round_trips(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many commands went out with each round trip to the server, from now on."""
    sent: list[int] = []
    exchange = Connection.exchange

    def counted(self: Connection, commands: Any) -> Any:
        sent.append(len(commands))
        return exchange(self, commands)

    monkeypatch.setattr(Connection, "exchange", counted)
    return sent


@pytest.fixture(autouse=True)
def _sockets_are_named_as_those_of_an_application(monkeypatch: pytest.MonkeyPatch) -> None:
    """Forget the role that a command took, as a program, in an earlier test of this process."""
    monkeypatch.setattr(handshake, "_process_role", handshake.APPLICATION)


@pytest.fixture(autouse=True)
def _settings_stay_as_they_are(_process_stays_as_it_was: None) -> Iterator[None]:
    """Fail the test that leaves settings behind, not the ones after it."""
    rsmq = settings.RSMQ
    yield
    assert settings.RSMQ is rsmq, "this test changed settings.RSMQ and did not put it back"


@pytest.fixture(autouse=True)
def _nothing_has_been_logged_yet() -> None:
    """Forget what was logged: some lines appear once for each server or task, however many tests have the same."""
    backoff._outages.clear()
    resolve._logged.clear()


@pytest.fixture(autouse=True)
def _no_thread_has_connected_to_a_database(monkeypatch: pytest.MonkeyPatch) -> None:
    """Forget which threads have: the one of the tests, and the one of async code, which lasts as long.

    The code around a function checks the connections of its thread, and most tests may not use the database.
    """
    monkeypatch.setattr(invoke, "_here", invoke._Checks())


@pytest.fixture(autouse=True, scope="session")
def _known_connections() -> Iterator[weakref.WeakSet[Connection]]:
    """All connections that were made in this process and are still there."""
    known: weakref.WeakSet[Connection] = weakref.WeakSet()
    make = Connection.__init__

    def make_and_note(self: Connection, *args: Any, **options: Any) -> None:
        make(self, *args, **options)
        known.add(self)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Connection, "__init__", make_and_note)
        yield known


@pytest.fixture(autouse=True)
def _sockets_are_closed(_known_connections: weakref.WeakSet[Connection]) -> Iterator[None]:
    """Close what a test left open.

    An error that a test has caught keeps its connection in a circle of references. When Python collects that, the
    socket may come first, and complains that nobody has closed it: in whatever test runs then.
    """
    yield
    for connection in list(_known_connections):
        connection.close()


@pytest.fixture(autouse=True)
def _threads_have_ended(_sockets_are_closed: None) -> Iterator[None]:
    """Wait for the threads that a test has left behind, so that no later test hears of what they still do.

    A worker does not wait for tasks that end too late.
    """
    before = set(threading.enumerate())
    yield
    wait_until(lambda: not leftovers.threads_begun_since(before))


@pytest.fixture(autouse=True, scope="session")
def _server_of_the_kit_belongs_to_no_test() -> Iterator[None]:
    """Keep the server that the testing kit starts once per process, in whichever test."""

    class KeptServer(EmbeddedServer):
        def ensure(self) -> str:
            before = leftovers.children()
            url = super().ensure()
            leftovers.keep(*leftovers.children() - before)
            return url

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("rsmq_django.testing.server.EmbeddedServer", KeptServer)
        yield


@pytest.fixture
def mid_minute() -> None:
    """Begin after the first seconds of a minute and well before its end (so also of an hour and a day)."""
    wait_until(lambda: 3 <= time.time() % 60 < 50)


@pytest.fixture
def redis_url(server: PrivateServer) -> str:
    return server.url


@pytest.fixture
def client(redis_url: str) -> Iterator[Client]:
    client = Client(Connection(redis_url, timeout_s=15), namespace="rsmq")
    yield client
    client.connection.close()


@pytest.fixture
def queue(client: Client) -> Queue:
    """An empty queue named "jobs" with RSMQ's default attributes."""
    queue = Queue("jobs", client)
    queue.create()
    return queue


# -- Each test has a deadline, and takes its processes along -----------------------------------------------------------

_processes_before = pytest.StashKey[set[int]]()


def pytest_configure(config: pytest.Config) -> None:
    # A hook in a conftest.py does not hear of fixtures that belong to the session.
    config.pluginmanager.register(leftovers, "leftovers")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    server = find_server()
    for item in items:
        marker = item.get_closest_marker("needs_redis")
        if marker is not None and server.version < marker.args:
            item.add_marker(pytest.mark.skip(f"{server.data_format} does not know what this test is about"))


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> Generator[None, object, object]:
    item.stash[_processes_before] = leftovers.children()
    with deadline.of(item, "its fixtures"):
        return (yield)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, object, object]:
    with deadline.of(item, "the test"):
        return (yield)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_teardown(item: pytest.Item) -> Generator[None, object, object]:
    try:
        with deadline.of(item, "its clean-up"):
            return (yield)
    finally:
        leftovers.end_all_but(item.stash[_processes_before])


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Escape what cannot be encoded in captured logs: xdist sends reports as UTF-8, and some tests log such text."""
    report = yield
    report.sections = [(title, text.encode(errors="backslashreplace").decode()) for title, text in report.sections]
    return report
