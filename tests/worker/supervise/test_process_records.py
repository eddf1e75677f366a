"""A supervisor's records of its processes: names of queues, which may be thousands, are written when they change."""

from __future__ import annotations

import pytest

from rsmq_django.core import Client
from rsmq_django.core.tasks.processes import ProcessRecord, give_order, read_processes
from rsmq_django.queues import get_client
from rsmq_django.worker.lease.inflight import heartbeat_call
from rsmq_django.worker.supervise.control import ProcessControl
from tests.redis_server import PrivateServer
from tests.worker.workshop import Configure, a_child, run_exchanges

RECORD = "rsmq::process:w1"


@pytest.fixture
def client(project: Configure) -> Client:
    client = get_client()
    client.run(heartbeat_call(client, ["w1"]))
    return client


@pytest.fixture
def process_control(client: Client) -> ProcessControl:
    return ProcessControl([a_child("w1")], shutdown_timeout_s=1)


def published(process_control: ProcessControl, *queues: str, reliable: tuple[str, ...] = ("orders",)) -> ProcessRecord:
    """Write the records, and return that of w1."""
    run_exchanges(get_client(), process_control.publish(get_client(), queues, reliable))
    return get_client().run(read_processes("rsmq", ["w1"]))["w1"]


def test_names_that_have_not_changed_are_not_written_again(process_control: ProcessControl, server: PrivateServer):
    published(process_control, "default", "mail")
    server.redis.hset(RECORD, mapping={"queues": "as they were", "age_ms": "-1"})

    record = published(process_control, "default", "mail")

    assert record.queues == ("as they were",) and record.reliable == ("orders",)
    assert record.age_ms > 0


@pytest.mark.parametrize("loss", ["the record expired", "another program wrote a text"])
def test_names_come_back_after_a_server_has_lost_them(
    process_control: ProcessControl, server: PrivateServer, client: Client, loss: str
):
    published(process_control, "default", "mail")
    server.redis.delete(RECORD)
    if loss != "the record expired":
        server.redis.set(RECORD, "text")

    record = published(process_control, "default", "mail")

    assert (record.queues, record.reliable, record.state) == (("default", "mail"), ("orders",), "working")
    assert server.redis.ttl(RECORD) > 0


def test_names_that_have_changed_are_written(process_control: ProcessControl):
    published(process_control, "default")

    assert published(process_control, "mail").queues == ("mail",)
    assert published(process_control, "mail", reliable=()).reliable == ()


def test_a_process_of_the_same_supervisor_that_begins_later_has_its_names(client: Client):
    children = [a_child("w0")]
    process_control = ProcessControl(children, shutdown_timeout_s=1)
    run_exchanges(client, process_control.publish(client, ["default"]))
    children.append(a_child("w1"))

    assert published(process_control, "default").queues == ("default",)


def test_a_command_is_obeyed_once_although_the_record_was_written_twice(client: Client):
    child = a_child("w1")
    orders: list[bool] = []
    child.shared_state.set_paused = orders.append
    process_control = ProcessControl([child], shutdown_timeout_s=1)
    published(process_control, "default")
    client.run(give_order("rsmq", "w1", "quiet"))
    client.connection.exchange([("DEL", RECORD)])

    published(process_control, "default")

    assert orders == [True]
