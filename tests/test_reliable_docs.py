"""The page about reliable queues runs."""

import re
from pathlib import Path

import pytest

from rsmq_django.core import Client, Connection
from rsmq_django.core.keys import RELIABLE_PARTS
from rsmq_django.core.reliable import ReliableQueue
from rsmq_django.core.reliable.library import FUNCTIONS
from tests.documentation import NAMED_BLOCK, PYTHON_BLOCK, ROOT, Project
from tests.redis_server import PrivateServer

PAGE = ROOT / "docs" / "how-to" / "reliable_queues.md"


def test_the_blocks_without_django_run_in_order(server: PrivateServer):
    text = PAGE.read_text("utf-8")
    of_files = {block for _, block in NAMED_BLOCK.findall(text)}
    namespace = {"REDIS_URL": server.url}

    blocks = [block for block in PYTHON_BLOCK.findall(text) if block not in of_files]
    for block in blocks:
        exec(block, namespace)  # noqa: S102 - our own documentation

    assert len(blocks) >= 6


@pytest.mark.slow
def test_the_project_of_the_page_ships_and_weighs(tmp_path: Path, server: PrivateServer):
    project = Project(tmp_path, PAGE, server.url)
    project.python("from shop.shipping import send; send()")

    # One thread, because lines of two that print at once may be mixed.
    worker = ("rsmq_worker", "--burst", "--processes", "1", "--threads", "1")
    output = project.run("-m", "django", *worker, "--queues", "shipments,parcels")

    assert "shipping 7" in output and "weighing parcel 12" in output
    client = Client(Connection(server.url, timeout_s=15))
    for name in ("shipments", "parcels"):
        assert ReliableQueue(name, client).info() == ["undelivered", 0, "delivered", 0]
    assert ReliableQueue("parcels", client).statistics().max_deliveries == 5


def test_every_function_and_key_is_named():
    text = PAGE.read_text("utf-8")

    assert {function.name for function in FUNCTIONS} == set(re.findall(r"`(rq_\w+)`", text))
    assert ", ".join(f'"{part}"' for part in RELIABLE_PARTS) in text
