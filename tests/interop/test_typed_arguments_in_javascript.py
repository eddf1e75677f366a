"""Typed arguments of tasks: a program in Node reads and writes the same JSON."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest
from django.contrib.auth.models import User

from rsmq_django.queues import ensure_queue
from rsmq_django.tasks import task
from rsmq_django.testing.kit import Kit
from tests.interop.peers import NodePeer
from tests.redis_server import PrivateServer

pytestmark = [pytest.mark.interop, pytest.mark.django_db]


class Colour(enum.Enum):
    RED = "red"
    BLUE = "blue"


@dataclass
class Item:
    price: Decimal


GOT: list[Any] = []


def paint(at: datetime, day: date, wait: timedelta, colour: Colour, items: list[Item], user: User) -> None:
    GOT.append((at, day, wait, colour, items, user.username))


def test_node_reads_typed_arguments_and_writes_its_own(node: NodePeer, server: PrivateServer, settings: Any):
    settings.RSMQ = {"CONNECTIONS": {"default": {"URL": server.url}}, "TASKS": {"ENQUEUE_ON_COMMIT": False}}
    ensure_queue("default")
    at, user = datetime(2026, 11, 23, 23, 59, 59, 500_000, tzinfo=UTC), User.objects.create(username="ada")
    items = [Item(Decimal("1.25")), Item(Decimal(2))]

    task(paint).enqueue(
        at=at, day=date(2026, 11, 23), wait=timedelta(minutes=1), colour=Colour.BLUE, items=items, user=user
    )
    found = node.call("answerCall", qname="default")

    assert found == {
        "at_ms": at.timestamp() * 1000,
        "day": "2026-11-23T00:00:00.000Z",
        "colour": "blue",
        "total": 3.25,
    }
    GOT.clear()
    assert [run.succeeded for run in Kit().run()] == [True]
    later = at + timedelta(seconds=1)
    expected = [Item(Decimal("2.5")), Item(Decimal("0.50"))]
    assert GOT == [(later, date(2026, 11, 24), timedelta(seconds=90), Colour.RED, expected, "ada")]
