"""Queues as the project has configured them, on a real server."""

import threading

import pytest
from django.core.exceptions import ImproperlyConfigured

from rsmq_django import queues
from rsmq_django.core import list_queues
from rsmq_django.embedded import EmbeddedServer
from rsmq_django.queues import (
    aensure_queue,
    configured_queues,
    ensure_queue,
    get_client,
    get_queue,
    pause_queue,
    paused_queues,
    resume_queue,
)
from tests.support import wait_until


@pytest.fixture
def project(settings, redis_url):
    """Settings with the private server as their default connection; returns a function that adds to them."""

    def configure(*, connection=None, **sections):
        connection = {"URL": redis_url, "TIMEOUT_S": 15} if connection is None else connection
        settings.RSMQ = {"CONNECTIONS": {"default": connection}, **sections}

    configure()
    return configure


# -- Servers -------------------------------------------------------------------------------------------------------


def test_a_queue_on_a_url_carries_messages(project):
    project(QUEUES={"mail": {}})
    queue = ensure_queue("mail")

    queue.send(b"hello")

    assert queue.receive().body == b"hello"


@pytest.mark.parametrize("backend", ["django_redis.cache.RedisCache", "django.core.cache.backends.redis.RedisCache"])
def test_a_queue_on_a_cache_carries_messages(project, settings, redis_url, backend):
    settings.CACHES = {"queues": {"BACKEND": backend, "LOCATION": redis_url}}
    project(connection={"CACHE": "queues", "TIMEOUT_S": 0.5})
    queue = ensure_queue("default")

    queue.send(b"hello")

    assert queue.receive().body == b"hello"
    # Not the cache's pool, which has the cache's time-outs.
    assert get_client().connection.timeout_s == 0.5


def test_a_queue_on_the_embedded_server_carries_messages(project, tmp_path, monkeypatch):
    monkeypatch.setenv("RSMQ_STATE_DIR", str(tmp_path))
    project(connection={"EMBEDDED": True})
    queue = ensure_queue("default")

    queue.send(b"hello")

    assert queue.receive().body == b"hello"
    get_client().connection.close()
    EmbeddedServer(tmp_path).release()  # nobody is left: the server ends


def test_the_namespace_of_the_connection_is_used(project, redis_url, server):
    project(connection={"URL": redis_url, "NAMESPACE": "{billing}"})

    ensure_queue("default")

    assert server.redis.exists("{billing}:default:Q")


def test_a_queue_is_on_its_own_connection(settings, redis_url):
    settings.RSMQ = {
        "CONNECTIONS": {
            "default": {"URL": redis_url, "TIMEOUT_S": 15},
            "billing": {"URL": redis_url, "TIMEOUT_S": 15, "NAMESPACE": "billing"},
        },
        "QUEUES": {"mail": {}, "invoices": {"CONNECTION": "billing"}},
    }

    ensure_queue("mail")
    ensure_queue("invoices")

    assert list_queues(get_client("default")) == ["mail"]
    assert list_queues(get_client("billing")) == ["invoices"]


def test_getting_a_queue_needs_no_server(project):
    project(connection={"URL": "unix:///nowhere/at/all"})

    assert get_queue("default").name == "default"


# -- Queues --------------------------------------------------------------------------------------------------------


def test_a_queue_is_created_as_the_settings_say(project):
    project(QUEUES={"mail": {"VISIBILITY_TIMEOUT_S": 7, "DELAY_S": 3, "MAX_SIZE_BYTES": 2048}})

    attributes = ensure_queue("mail").attributes()

    assert (attributes.visibility_timeout_s, attributes.delay_s, attributes.max_size_bytes) == (7, 3, 2048)


async def test_a_queue_is_created_without_blocking_the_event_loop(project):
    project(QUEUES={"mail": {"VISIBILITY_TIMEOUT_S": 7}})

    queue = await aensure_queue("mail")
    again = await aensure_queue("mail")

    assert (await queue.aattributes()).visibility_timeout_s == 7
    assert again is queue
    await queue.client.connection.aclose()


def test_a_queue_that_exists_keeps_its_attributes_and_messages(project):
    project(QUEUES={"mail": {"VISIBILITY_TIMEOUT_S": 7}})
    get_queue("mail").create(visibility_timeout_s=99)
    get_queue("mail").send(b"waiting")

    queue = ensure_queue("mail")

    assert queue.attributes().visibility_timeout_s == 99
    assert queue.attributes().messages == 1


def test_a_dead_letter_queue_accepts_any_message_of_its_connection(project):
    project(QUEUES={"raw": {"MAX_SIZE_BYTES": -1}})
    dead = ensure_queue("raw-dead")

    dead.send(b"x" * 100_000)

    assert len(dead.receive().body) == 100_000


def test_a_send_wakes_subscribers(project, server):
    queue = ensure_queue("default")
    with server.redis.pubsub(ignore_subscribe_messages=True) as subscription:
        subscription.subscribe("rsmq:rt:default")
        subscription.get_message(timeout=60)  # the confirmation

        queue.send(b"hello")

        assert subscription.get_message(timeout=60)["data"] == b"1"


def test_configured_queues_keep_their_order_and_leave_dead_letters_out(project):
    project(QUEUES={"zebra": {}, "mail": {"DEAD_LETTER": "ant"}, "ant": {}})

    assert [queue.name for queue in configured_queues()] == ["zebra", "mail", "ant"]


def test_an_unknown_queue_gets_the_nearest_right_name(project):
    project(QUEUES={"mail": {}})

    with pytest.raises(ImproperlyConfigured, match="Did you mean 'mail'"):
        get_queue("mial")


def test_an_unknown_connection_gets_the_nearest_right_alias(project):
    with pytest.raises(ImproperlyConfigured, match="Did you mean 'default'"):
        get_client("defualt")


# -- One client per process and alias ------------------------------------------------------------------------------


def test_all_threads_share_one_client(project, monkeypatch, redis_url):
    project(connection={"CACHE": "queues"})
    started: list[int] = []
    clients = []

    def url_when_all_have_started(alias):
        wait_until(lambda: len(started) == 8)
        return redis_url

    def ask() -> None:
        started.append(1)
        clients.append(get_client())

    monkeypatch.setattr(queues, "cache_url", url_when_all_have_started)
    threads = [threading.Thread(target=ask) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert len(clients) == 8
    assert len(set(map(id, clients))) == 1


def test_changed_settings_close_unused_sockets(project, server):
    def sockets() -> set[str]:
        return {client["id"] for client in server.redis.client_list()}

    before = sockets()
    queue = ensure_queue("default")  # held, as a module of a project would hold it
    opened = sockets() - before
    assert len(opened) == 1

    project(QUEUES={"mail": {}})

    wait_until(lambda: not opened & sockets())
    assert queue.client is not get_client()


def test_changed_settings_give_new_clients_and_queues(project, redis_url):
    project(connection={"URL": redis_url, "TIMEOUT_S": 15})
    client, queue = get_client(), get_queue("default")

    project(connection={"URL": redis_url, "TIMEOUT_S": 15, "NAMESPACE": "other"})

    assert get_client() is not client
    assert get_client().namespace == "other"
    assert get_queue("default").client is get_client()
    assert queue.client is client


def test_a_changed_address_of_the_cache_is_noticed(project, settings):
    settings.CACHES = {"queues": {"BACKEND": "django_redis.cache.RedisCache", "LOCATION": "redis://one"}}
    project(connection={"CACHE": "queues"})
    before = get_client().connection.url

    settings.CACHES = {"queues": {"BACKEND": "django_redis.cache.RedisCache", "LOCATION": "redis://two"}}

    assert (before, get_client().connection.url) == ("redis://one", "redis://two")


# -- Pauses and priority bands --------------------------------------------------------------------------------------


def test_paused_queues_are_listed_in_the_order_of_the_settings(project):
    project(QUEUES={"urgent": {}, "mail": {}, "slow": {}})

    assert [pause_queue("slow"), pause_queue("urgent"), pause_queue("slow")] == [True, True, False]

    assert paused_queues() == ["urgent", "slow"]
    assert [resume_queue("slow"), resume_queue("slow")] == [True, False]
    assert paused_queues() == ["urgent"]


def test_pausing_an_unknown_queue_names_the_nearest_one(project):
    project(QUEUES={"urgent": {}})

    with pytest.raises(ImproperlyConfigured, match="Did you mean 'urgent'"):
        pause_queue("urgnt")


def test_a_priority_band_has_the_settings_of_its_queue(project):
    project(QUEUES={"mail": {"VISIBILITY_TIMEOUT_S": 7, "MAX_SIZE_BYTES": 2048}})

    band = ensure_queue("mail-p50")

    assert (band.attributes().visibility_timeout_s, band.attributes().max_size_bytes) == (7, 2048)
    with pytest.raises(ImproperlyConfigured):
        get_queue("other-p50")
