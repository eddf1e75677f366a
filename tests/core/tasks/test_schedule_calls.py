"""The script that fires a schedule: for the planned tick, with the current definition of the entry."""

from __future__ import annotations

import pytest

from rsmq_django.core import Client, Queue
from rsmq_django.core.tasks.schedules import DueEntry, Firing, find_due, fire, note_synced
from tests.redis_server import PrivateServer


@pytest.mark.parametrize(
    ("planned_ms", "definition", "fires"),
    [(1000, "every hour", True), (2000, "every hour", False), (1000, "every day", False)],
    ids=["as planned", "at another time", "changed meanwhile"],
)
def test_schedule_fires_once_with_its_current_definition(
    client: Client, queue: Queue, server: PrivateServer, planned_ms: int, definition: str, fires: bool
):
    server.redis.zadd("rsmq::schedule", {"tick": 1000})
    server.redis.hset("rsmq::schedule:entries", "tick", "every hour")
    firing = Firing(
        entry=DueEntry(name="tick", planned_ms=planned_ms, definition=definition),
        next_ms=3000,
        skipped=0,
        ticks=[1000],
        task_ids=["t1"],
        bodies=[b"{}"],
        delay_ms=0,
        unfinished_ttl_s=0,
        tags=["prices"],
        tags_kept_ms=60_000,
    )
    call = fire("rsmq", queue.keys, queue.name, firing, channel=queue.keys.channel)

    assert client.run(call) is fires
    assert server.redis.zrange("rsmq::tag:prices", 0, -1) == [b"t1"] * fires
    server.redis.delete("rsmq::tag:prices")
    assert client.run(call) is False
    assert not server.redis.exists("rsmq::tag:prices"), "a late supervisor adds nothing to the tag of a tick that ended"
    assert queue.attributes().messages == int(fires)
    assert server.redis.zscore("rsmq::schedule", "tick") == (3000 if fires else 1000)


def test_entries_of_a_program_match_its_code_until_they_are_lost(client: Client, server: PrivateServer):
    def is_synced(owner: str) -> bool:
        return client.run(find_due("rsmq", owner)).is_synced

    assert not is_synced("shop")
    client.run(note_synced("rsmq", "shop"))

    assert (is_synced("shop"), is_synced("other")) == (True, False)
    server.redis.flushdb()
    assert not is_synced("shop")
