"""Reading the event log: pages in both directions, tolerance, and its size."""

import pytest

from rsmq_django.core import Client
from rsmq_django.core.stats.events import FIELDS, Event, find_events, following, newest, state
from tests.redis_server import PrivateServer


def write(server: PrivateServer, number: int, *, in_one: bool = True, **changes: str) -> str:
    fields = dict.fromkeys(FIELDS, "") | {"e": "succeeded", "q": "mail", "t": "shop.send", "i": f"t{number}", "a": "1"}
    fields |= changes
    words = {"v": "\n".join(fields.values())} if in_one else fields
    return server.redis.xadd("rsmq::events", words, id=f"{1_795_000_000_000 + number}-0").decode()


def test_newest_events_come_first_page_by_page(client: Client, server: PrivateServer):
    ids = [write(server, number) for number in range(25)]

    first = client.run(newest("rsmq", count=10))
    second = client.run(newest("rsmq", count=10, before=first[-1].entry_id))
    third = client.run(newest("rsmq", count=10, before=second[-1].entry_id))

    assert [event.entry_id for event in [*first, *second, *third]] == ids[::-1]
    assert client.run(newest("rsmq", before=third[-1].entry_id)) == []


def test_events_behind_a_known_one_come_in_order(client: Client, server: PrivateServer):
    ids = [write(server, number) for number in range(5)]

    assert [event.entry_id for event in client.run(following("rsmq"))] == ids
    assert [event.entry_id for event in client.run(following("rsmq", after=ids[1], count=2))] == ids[2:4]


@pytest.mark.parametrize("in_one", [True, False], ids=["one text", "as earlier versions wrote it"])
def test_event_has_every_field(client: Client, server: PrivateServer, in_one: bool):
    said = {"m": "id", "s": "1794999999000", "w": "1500", "r": "250", "b": "47", "k": "web1-7"}
    entry_id = write(server, 7, in_one=in_one, **said, x="builtins.ValueError", y="no\nno")

    (event,) = client.run(newest("rsmq"))

    assert event == Event(
        entry_id=entry_id,
        kind="succeeded",
        queue="mail",
        task="shop.send",
        task_id="t7",
        message_id="id",
        attempt=1,
        enqueued_ms=1_794_999_999_000,
        wait_us=1500,
        run_us=250,
        body_bytes=47,
        worker="web1-7",
        error_type="builtins.ValueError",
        error="no\nno",
    )
    assert event.at_ms == 1_795_000_000_007


def test_damaged_entry_is_read_as_far_as_it_goes(client: Client, server: PrivateServer):
    server.redis.xadd("rsmq::events", {"e": b"\xff", "a": "first", "new": "x"})

    server.redis.xadd("rsmq::events", {"v": "succeeded\nmail\n", "new": "x"})

    short, event = client.run(newest("rsmq"))

    assert (event.kind, event.attempt, event.run_us, event.task) == ("�", None, None, "")
    assert (short.kind, short.queue, short.task, short.attempt, short.error) == ("succeeded", "mail", "", None, "")


def test_events_are_found_by_their_fields(client: Client, server: PrivateServer):
    for number in range(30):
        write(server, number, e="dead" if number % 10 == 0 else "succeeded", q="pay" if number % 2 else "mail")

    dead = find_events(client, kinds=frozenset({"dead"}))
    paid = find_events(client, queue="pay", most_looked_at=10)

    assert [event.task_id for event in dead] == ["t20", "t10", "t0"]
    assert [event.task_id for event in paid] == ["t29", "t27", "t25", "t23", "t21"]
    assert [event.task_id for event in find_events(client, task_id="t3", task="shop.send")] == ["t3"]


def test_state_has_the_size_of_the_log(client: Client, server: PrivateServer):
    empty = client.run(state("rsmq"))
    for number in range(5):
        write(server, number)
    server.redis.xtrim("rsmq::events", maxlen=2, approximate=False)
    server.redis.set("rsmq::events:dropped", 3)

    full = client.run(state("rsmq"))

    assert (empty.events, empty.dropped, empty.oldest_ms, empty.newest_ms) == (0, 0, None, None)
    assert (full.events, full.dropped) == (2, 3)
    assert (full.oldest_ms, full.newest_ms) == (1_795_000_000_003, 1_795_000_000_004)
    assert full.written in (5, None), "Redis before 7 does not count"
