"""A real Sentinel topology: calls go to the primary, also after a failover, and errors say what is missing."""

from __future__ import annotations

import contextlib
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path

import pytest
import redis

from rsmq_django.core import Client, Connection, Queue
from rsmq_django.core.errors import (
    ConnectionFailed,
    OutcomeUnknown,
    PermissionDenied,
    QueueExists,
    RedisFailure,
    SentinelDenied,
    SentinelServiceNotFound,
    ServerRefused,
)
from rsmq_django.core.queue.browse import count
from rsmq_django.core.transport import sentinels
from rsmq_django.core.transport.durability import Durability, DurableClient
from rsmq_django.core.transport.prepared_calls import ReadiedCalls
from rsmq_django.core.transport.sentinel_url import read_sentinel_url
from tests.sentinel_topology import SERVICE, SentinelTopology
from tests.support import wait_until
from tests.tls_proxy import Authority, TlsProxy

#: No test depends on this time, on a machine of any speed.
PATIENCE_S = 30


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SentinelTopology]:
    topology = SentinelTopology(tmp_path_factory.mktemp("sentinel"))
    yield topology
    topology.stop()


@pytest.fixture
def topology(shared: SentinelTopology) -> SentinelTopology:
    shared.settle()
    shared.primary.run("FLUSHALL")
    return shared


def queue_at(url: str, *, timeout_s: float = PATIENCE_S) -> Queue:
    queue = Queue("jobs", Client(Connection(url, timeout_s=timeout_s)))
    with contextlib.suppress(QueueExists):
        queue.create()
    return queue


async def test_calls_go_to_the_primary(topology: SentinelTopology):
    queue = queue_at(topology.url)

    sent = [queue.send(b"a"), await queue.asend(b"b")]

    received = [await queue.areceive(), queue.receive()]
    assert [each.id for each in received if each] == sent
    assert Queue("jobs", Client(Connection(topology.primary.url))).attributes().total_received == 2
    await queue.client.connection.aclose()


async def test_database_of_the_url_is_used(topology: SentinelTopology):
    queue = queue_at(topology.url.removesuffix("/0") + "/5")
    queue.send(b"a")

    assert Queue("jobs", Client(Connection(f"{topology.primary.url}/5"))).attributes().messages == 1


async def test_open_sockets_follow_a_failover(topology: SentinelTopology):
    queue = queue_at(topology.url)
    first = queue.send(b"a")
    await queue.aattributes()
    readied = ReadiedCalls(queue.client, [count("rsmq", "jobs")])
    topology.wait_for_replicas()

    topology.fail_over()

    wait_until(lambda: _works(queue))
    assert (await queue.aattributes()).messages >= 1
    assert not readied.send() or readied.results()[0].messages >= 1
    received = queue.receive()
    assert received is not None and received.id == first
    await queue.client.connection.aclose()


def _works(queue: Queue) -> bool:
    with contextlib.suppress(RedisFailure):
        return bool(queue.send(b"later"))
    return False


async def test_killed_primary_is_replaced_by_the_one_that_sentinels_promote(topology: SentinelTopology):
    queue = queue_at(topology.url)
    queue.send(b"a")
    await queue.asend(b"b")
    topology.wait_for_replicas()
    old = topology.primary
    old.kill()

    with pytest.raises(ConnectionFailed, match="nothing was sent. Sentinels promote a replica") as error:
        queue_at(topology.url).send(b"c")
    assert old.address in str(error.value)
    topology.promote_another(old)

    assert queue.attributes().messages == 2
    assert queue.send(b"c") and await queue.asend(b"d")
    await queue.client.connection.aclose()


async def test_command_that_a_demoted_primary_refuses_is_done_by_the_new_one(topology: SentinelTopology):
    queue = queue_at(topology.url)
    queue.send(b"a")
    await queue.asend(b"b")
    link = next(iter(queue.client.connection._idle))
    old = (link.host, link.port)
    topology.wait_for_replicas()

    new = topology.hand_over()

    assert queue.send(b"c") and await queue.asend(b"d")
    assert (link.host, link.port) == ("127.0.0.1", new.port) != old
    assert queue.attributes().messages == 4 and queue.attributes().total_sent == 4
    await queue.client.connection.aclose()


def test_batch_that_a_demoted_primary_refuses_is_done_by_the_new_one_once(topology: SentinelTopology):
    queue = queue_at(topology.url)
    ids = queue.send_many([b"a", b"b"])
    readied = ReadiedCalls(queue.client, [queue._receive(2, None)])
    topology.wait_for_replicas()

    topology.hand_over()

    assert readied.send()
    assert [each.id for each in readied.results()[0]] == ids
    assert queue.receive() is None


async def test_repeat_at_the_new_primary_is_confirmed_by_the_replicas_of_that_one(topology: SentinelTopology):
    plain = queue_at(topology.url)
    durable = Queue("jobs", DurableClient(plain.client, Durability(replicas=2, timeout_s=PATIENCE_S / 4)))
    durable.send(b"a")
    await durable.asend(b"b")
    topology.wait_for_replicas()

    topology.hand_over()

    assert durable.send(b"c") and await durable.asend(b"d")
    assert plain.attributes().messages == 4
    await plain.client.connection.aclose()


@pytest.mark.parametrize("is_async", [False, True])
async def test_first_confirmed_batch_of_a_process_follows_a_demoted_primary(topology: SentinelTopology, is_async: bool):
    plain, other = queue_at(topology.url), Connection(topology.url, timeout_s=PATIENCE_S)
    durable = Queue("jobs", DurableClient(Client(other), Durability(replicas=1, timeout_s=PATIENCE_S / 4)))
    if is_async:
        await other.aexchange([("PING",)])
    else:
        other.exchange([("PING",)])
    topology.wait_for_replicas()

    topology.hand_over()

    sent = await durable.asend_many([b"a", b"b"]) if is_async else durable.send_many([b"a", b"b"])
    assert len(sent) == plain.attributes().messages == 2
    await other.aclose()


def test_primary_that_its_replicas_have_left_is_looked_for_again(topology: SentinelTopology):
    queue = queue_at(topology.url)
    queue.send(b"a")
    topology.wait_for_replicas()
    old, new = topology.primary, topology.hand_over()
    old.run("REPLICAOF", "NO", "ONE")
    old.run("CONFIG", "SET", "min-replicas-to-write", 1)
    try:
        alone = Queue("jobs", Client(Connection(topology.url, timeout_s=PATIENCE_S)))
        link = alone.client.connection._make()
        link.host, link.port = "127.0.0.1", old.port
        link.connect()
        alone.client.connection._idle.append(link)

        assert alone.send(b"b")

        assert (link.host, link.port) == ("127.0.0.1", new.port)
        assert Queue("jobs", Client(Connection(old.url))).attributes().messages == 1
    finally:
        old.run("CONFIG", "SET", "min-replicas-to-write", 0)


def test_primary_without_enough_replicas_says_so(topology: SentinelTopology):
    queue = queue_at(topology.url)
    topology.primary.run("CONFIG", "SET", "min-replicas-to-write", 5)
    try:
        for _ in range(3):
            with pytest.raises(ServerRefused, match="NOREPLICAS.*nothing was changed, try again later"):
                queue.send(b"a")
    finally:
        topology.primary.run("CONFIG", "SET", "min-replicas-to-write", 0)
    assert queue.send(b"a")


def test_durable_send_to_a_primary_without_enough_replicas_waits_for_none(topology: SentinelTopology):
    plain = queue_at(topology.url)
    queue = Queue("jobs", DurableClient(plain.client, Durability(replicas=5, timeout_s=5.0)))
    topology.primary.run("CONFIG", "SET", "min-replicas-to-write", 5)
    try:
        for _ in range(2):  # the first asks the sentinels for another primary, and is sent again
            with pytest.raises(ServerRefused, match="NOREPLICAS.*nothing was changed, try again later"):
                queue.send(b"a")
            assert [link._sock for link in plain.client.connection._idle] == [None]  # left before the wait was over
    finally:
        topology.primary.run("CONFIG", "SET", "min-replicas-to-write", 0)


# -- Sentinels --------------------------------------------------------------------------------------------------------


async def test_sentinels_that_do_not_answer_are_passed_over(topology: SentinelTopology):
    stopped, dead = topology.sentinels[0], "127.0.0.1:1"
    stopped.pause()
    try:
        url = f"redis+sentinel://{dead},{stopped.address},{topology.sentinels[1].address}/{SERVICE}"
        queue = queue_at(url, timeout_s=3)
        assert queue.send(b"a")
        assert queue.client.connection._sentinels.order[0] == ("127.0.0.1", topology.sentinels[1].port)
        fresh = queue_at(url, timeout_s=3)
        assert await fresh.asend(b"b")
        await fresh.client.connection.aclose()
    finally:
        stopped.resume()


async def test_error_names_sentinels_service_and_next_step_when_none_answers(topology: SentinelTopology):
    client = Client(Connection("redis+sentinel://user:secret@127.0.0.1:1,[::1]:2/mymaster/0"))
    queue = Queue("jobs", client)
    text = (
        r"cannot find the primary of 'mymaster' for redis\+sentinel://user:\*\*\*@127.0.0.1:1,\[::1\]:2/mymaster/0: "
        r"sentinel 127.0.0.1:1 does not answer \(.*\); sentinel \[::1\]:2 does not answer \(.*\); "
        r"nothing was sent. Are the sentinels running there\?$"
    )
    with pytest.raises(ConnectionFailed, match=text) as error:
        queue.send(b"a")
    assert not isinstance(error.value, SentinelServiceNotFound)
    with pytest.raises(ConnectionFailed, match=text):
        await queue.asend(b"a")


def test_name_that_one_of_two_sentinels_does_not_know_may_be_right(topology: SentinelTopology):
    url = f"redis+sentinel://{topology.sentinels[0].address},127.0.0.1:1/other"

    with pytest.raises(ConnectionFailed, match="does not know that name") as error:
        Connection(url, timeout_s=PATIENCE_S).exchange([("PING",)])

    assert not isinstance(error.value, SentinelServiceNotFound)


async def test_error_names_a_service_that_no_sentinel_knows(topology: SentinelTopology):
    queue = Queue("jobs", Client(Connection(topology.url.replace(SERVICE, "other"), timeout_s=PATIENCE_S)))
    text = "sentinel 127.0.0.1:.* does not know that name; nothing was sent. Correct the name in the URL"
    with pytest.raises(SentinelServiceNotFound, match=text):
        queue.send(b"a")
    with pytest.raises(SentinelServiceNotFound, match=text):
        await queue.asend(b"a")


def test_sentinels_and_servers_have_their_own_users(topology: SentinelTopology):
    for sentinel in topology.sentinels:
        rights = ("-@all", "+sentinel|get-master-addr-by-name", "+subscribe", "resetchannels", "&+switch-master")
        sentinel.run("ACL", "SETUSER", "asker", "on", ">ask@", *rights)
    for server in topology.servers:
        server.run("ACL", "SETUSER", "sender", "on", ">send/", "+@all", "~*", "&*")
    hosts = ",".join(each.address for each in topology.sentinels)
    login, asker = "sender:send%2F@", "?sentinel_username=asker&sentinel_password=ask%40"
    url = f"redis+sentinel://{login}{hosts}/{SERVICE}/0"

    connection = Connection(url + asker, timeout_s=PATIENCE_S)
    assert connection.exchange([("ACL", "WHOAMI")]) == [b"sender"]
    listener, _ = connection.switch_listener()
    wait_until(lambda: listener.drain() > 0)
    listener.close()

    with pytest.raises(SentinelDenied, match="correct sentinel_username and sentinel_password") as error:
        Connection(url + asker.replace("%40", "x"), timeout_s=PATIENCE_S).exchange([("PING",)])
    assert "askx" not in str(error.value)
    assert "denies access" in str(error.value) and "does not answer" not in str(error.value)
    with pytest.raises(PermissionDenied, match="refused the user or password") as refusal:
        Connection(url.replace("send%2F", "wrong") + asker, timeout_s=PATIENCE_S).exchange([("PING",)])
    assert not isinstance(refusal.value, SentinelDenied)


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path, "ours")


@pytest.fixture
def tls_sentinel(topology: SentinelTopology, authority: Authority) -> Iterator[TlsProxy]:
    proxy = TlsProxy(topology.sentinels[0].url, certificate=authority.issue("server"), clients=authority)
    yield proxy
    proxy.close()


async def test_sentinels_are_reached_by_tls_with_their_own_options(
    tls_sentinel: TlsProxy, authority: Authority, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(sentinels, "LONGEST_ASK_S", PATIENCE_S)  # two handshakes on a busy machine
    certificate, key = authority.issue("client")
    options = f"sentinel_ssl_ca_certs={authority.file}&sentinel_ssl_certfile={certificate}&sentinel_ssl_keyfile={key}"
    url = f"redis+sentinel://localhost:{tls_sentinel.port}/{SERVICE}/0?sentinel_ssl=true"

    queue = queue_at(f"{url}&{options}")
    assert queue.send(b"a") and await queue.asend(b"b")
    await queue.client.connection.aclose()
    with pytest.raises(ConnectionFailed, match="does not answer .*(?i:certificate)"):
        queue_at(url)


def test_service_is_shown_without_its_passwords():
    service = read_sentinel_url("redis+sentinel://user:secret@s1/mymaster/0?sentinel_password=secret")

    assert "mymaster" in repr(service) and "secret" not in repr(service)


def test_tls_options_are_those_of_servers_and_sentinels():
    connection = Connection("rediss+sentinel://s1/m?ssl_ca_certs=/a&ssl_certfile=/b&sentinel_ssl_certfile=/c")

    server, sentinel = connection._make(), connection._sentinels.new_link(("s1", 1), 1)
    assert isinstance(server, redis.SSLConnection) and isinstance(sentinel, redis.SSLConnection)
    assert (server.ca_certs, server.certfile) == ("/a", "/b")
    assert (sentinel.ca_certs, sentinel.certfile) == ("/a", "/c")


def test_user_without_the_right_to_ask_for_the_role_can_send(topology: SentinelTopology):
    for server in topology.servers:
        server.run("ACL", "SETUSER", "narrow", "on", ">pw", "+@all", "-role", "~*", "&*")
    url = topology.url.replace("//", "//narrow:pw@")

    assert queue_at(url).send(b"a")


def test_server_that_is_no_sentinel_says_so(topology: SentinelTopology):
    url = f"redis+sentinel://{topology.primary.address}/{SERVICE}"
    with pytest.raises(ConnectionFailed, match="does not answer .*unknown command"):
        queue_at(url)


# -- Promotions that a sentinel publishes -----------------------------------------------------------------------------


def test_sockets_of_a_former_primary_are_shut_down_when_a_sentinel_publishes_the_new_one(topology: SentinelTopology):
    connection = Connection(topology.url, timeout_s=PATIENCE_S)
    waiting, old = connection.ask(("BLPOP", "nothing", 0)), topology.primary
    heard = connection.listener(["a"])
    listener, sentinel = connection.switch_listener()
    wait_until(lambda: listener.drain() > 0)

    new = topology.pause_primary()
    try:
        wait_until(lambda: listener.drain() > 0)
        connection.leave_former_primary(sentinel)

        with pytest.raises(OutcomeUnknown):
            connection.answer_of(waiting)
        with pytest.raises(ConnectionFailed):
            wait_until(lambda: heard.drain() and False)
        assert connection.exchange([("CONFIG", "GET", "port")]) == [[b"port", str(new.port).encode()]]
    finally:
        old.resume()
        listener.close()
        heard.close()


def test_subscriber_listens_at_the_primary(topology: SentinelTopology):
    connection = Connection(topology.url, timeout_s=PATIENCE_S)
    with connection.subscriber(["news"]) as subscriber:
        wait_until(lambda: subscriber.get_message() is not None)
        assert topology.primary.run("PUBLISH", "news", "x") == 1


def test_subscribers_leave_no_sockets_behind(topology: SentinelTopology):
    connection = Connection(topology.url, timeout_s=PATIENCE_S)
    for _ in range(3):
        connection.subscriber(["news"]).close()

    assert len(connection._idle) == 1
    connection.close()


def test_process_that_is_forked_while_a_thread_opens_a_socket_can_send(topology: SentinelTopology):
    queue_at(topology.url)
    program = textwrap.dedent(f"""
        import os
        from rsmq_django.core import Client, Connection, Queue
        from rsmq_django.core.transport import sentinels

        queue = Queue("jobs", Client(Connection({topology.url!r}, timeout_s={PATIENCE_S})))
        queue.send(b"parent")
        sentinels._lock.acquire()
        child = os.fork()
        if not child:
            queue.send(b"child")
            os._exit(0)
        assert os.waitpid(child, 0)[1] == 0
    """)

    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=PATIENCE_S)

    assert done.returncode == 0, done.stderr
    assert queue_at(topology.url).attributes().messages == 2
