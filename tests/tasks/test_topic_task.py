"""Declaring topic tasks, and publishing on commit."""

import pytest
from django.core.exceptions import ImproperlyConfigured
from django.db import transaction

from rsmq_django.core.errors import InvalidName, InvalidValue, MessageNotBytes
from rsmq_django.tasks import Concurrency, bridge_topic, topic_task
from rsmq_django.tasks.compat import InvalidTask
from rsmq_django.tasks.options import CallOptions, OptionArguments
from rsmq_django.tasks.topic_task import (
    NOT_OF_TOPICS,
    OPTIONS,
    TopicTask,
    check_topic_tasks,
    registered_topic_tasks,
)
from rsmq_django.topics import apublish, get_topic, publish

pytestmark = pytest.mark.usefixtures("project")


def handle(messages: object) -> None:
    """Handle messages."""


def other(messages: object) -> None:
    """Handle messages in another way."""


def test_decorated_function_stays_an_ordinary_function():
    assert topic_task("orders", group="billing", batch=100)(handle) is handle

    (declared,) = registered_topic_tasks()
    assert isinstance(declared, TopicTask)
    assert (declared.topic, declared.group, declared.batch) == ("orders", "billing", 100)
    assert declared.options.at_least_once


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"batch": 0}, "batch is 0"),
        ({"batch": 1001}, "from 1 to 1000"),
        ({"batch": True}, "batch is True"),
        ({"consumers": 0}, "consumers is 0"),
        ({"visibility_timeout_s": 1}, "at least 5 seconds"),
        ({"visibility_timeout_s": "long"}, "at least 5 seconds"),
        ({"max_deliveries": -1}, "max_deliveries is -1"),
        ({"start": "now"}, "start is 'now'"),
        ({"group": "a:b"}, "invalid group name"),
        ({"group": "messages"}, "reserved group name"),
    ],
)
def test_invalid_option_is_refused_at_the_declaration(options: dict, says: str):
    with pytest.raises(InvalidTask, match=says):
        topic_task("orders", **({"group": "billing"} | options))(handle)

    assert registered_topic_tasks() == []


def test_options_that_only_tasks_of_queues_have_are_refused_with_the_reason_and_the_way_to_them():
    with pytest.raises(InvalidTask, match=r"has no limits: a message without .*; feed a queue from the topic, bridge"):
        topic_task("orders", group="billing", limits=[Concurrency(1)])
    with pytest.raises(InvalidTask, match="has no priority: a group reads its topic in order; feed a queue"):
        topic_task("orders", group="billing", priority=5)
    with pytest.raises(TypeError, match="no option 'batches'. Did you mean 'batch'"):
        topic_task("orders", group="billing", batches=5)

    assert registered_topic_tasks() == []


def test_every_option_of_tasks_is_one_of_topic_tasks_or_refused_with_a_reason():
    of_tasks = {*OptionArguments.__annotations__, *CallOptions.__annotations__, "priority", "batch"}

    assert of_tasks <= {*OPTIONS, *NOT_OF_TOPICS}
    assert not set(OPTIONS) & set(NOT_OF_TOPICS)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"timeout_s": 0}, "timeout_s is 0"),
        ({"timeout_s": 5, "hard_timeout_s": 5}, "hard_timeout_s is 5 and timeout_s"),
    ],
)
def test_invalid_time_limit_is_refused_at_the_declaration(options: dict, says: str):
    with pytest.raises(InvalidTask, match=f"handle: {says}"):
        topic_task("orders", group="billing", **options)(handle)


def test_impossible_topic_is_refused():
    with pytest.raises(InvalidTask, match="invalid topic name: 'a:b'"):
        topic_task("a:b", group="billing")(handle)


def test_group_belongs_to_one_function():
    topic_task("orders", group="billing")(handle)
    topic_task("orders", group="billing")(handle)  # its module is imported once more
    topic_task("orders", group="stock")(other)

    with pytest.raises(InvalidTask, match="group 'billing' of topic 'orders' is .*handle already"):
        topic_task("orders", group="billing")(other)
    with pytest.raises(InvalidTask, match="already"):
        bridge_topic("orders", group="billing", queue="default")


def test_unknown_connections_and_queues_are_found_at_the_start():
    topic_task("orders", group="billing", connection="elsewhere")(handle)
    with pytest.raises(ImproperlyConfigured, match="'elsewhere'"):
        check_topic_tasks()


def test_unknown_queue_of_a_bridge_is_found_at_the_start():
    bridge_topic("orders", group="node", queue="nowhere")
    with pytest.raises(ImproperlyConfigured, match="'nowhere'"):
        check_topic_tasks()


def test_topic_named_like_the_namespace_is_found_at_the_start(settings, server):
    settings.RSMQ = {"CONNECTIONS": {"default": {"URL": server.url, "TIMEOUT_S": 15, "NAMESPACE": "shop"}}}
    topic_task("shop", group="billing")(handle)

    with pytest.raises(ImproperlyConfigured, match="handle: reserved topic name: 'shop'"):
        check_topic_tasks()


# -- Publishing --------------------------------------------------------------------------------------------------------


@pytest.mark.django_db(transaction=True)
def test_publish_waits_for_the_commit(project):
    project(on_commit=True)
    topic = get_topic("orders")

    with transaction.atomic():
        publish("orders", "a", "b", key="k")
        assert topic.status().last == 0

    assert [(message.body, message.key) for message in topic.read_range(1, 9).messages] == [(b"a", "k"), (b"b", "k")]


@pytest.mark.django_db(transaction=True)
def test_nothing_is_published_when_the_transaction_is_rolled_back(project):
    project(on_commit=True)

    with pytest.raises(ZeroDivisionError), transaction.atomic():
        publish("orders", "a")
        raise ZeroDivisionError

    assert get_topic("orders").status().last == 0


@pytest.mark.django_db(transaction=True)
def test_mistakes_are_raised_at_once_and_not_at_the_commit(project):
    project(on_commit=True)

    with transaction.atomic():
        for wrong, error in (
            (("a:b", "x"), InvalidName),
            (("orders",), InvalidValue),
            (("orders", 7), MessageNotBytes),
        ):
            with pytest.raises(error):
                publish(*wrong)


@pytest.mark.django_db(transaction=True)
def test_message_has_the_values_from_the_call_of_publish(project):
    project(on_commit=True)
    headers, body = {"a": "1"}, bytearray(b"before")

    with transaction.atomic():
        publish("orders", body, headers=headers)  # type: ignore[arg-type]
        headers["a"], body[:] = "2", b"later!"

    (message,) = get_topic("orders").read_range(1, 1).messages
    assert (message.body, message.headers) == (b"before", {"a": "1"})


def test_without_a_transaction_the_call_is_sent_at_once():
    publish("orders", "a")

    assert get_topic("orders").status().last == 1


async def test_async_publish_returns_the_indexes():
    assert await apublish("orders", "a", "b") == range(1, 3)
