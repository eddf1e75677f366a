"""Pages of attempts by every filter, from all streams of events."""

import json
from collections.abc import Sequence
from typing import Any

import pytest

from rsmq_django.core import Client
from rsmq_django.core.stats import run_search
from rsmq_django.core.stats.events import FIELDS, Event, read_event
from rsmq_django.core.stats.fingerprint import fingerprint
from rsmq_django.core.stats.run_filter import RunFilter
from rsmq_django.core.stats.runs import RunPage, Tail, attempts_of, find_runs, read_run
from tests.redis_server import PrivateServer

BEGIN_MS = 1_795_000_000_000


def write(server: PrivateServer, number: int, *, tags: str = "", key: str = "rsmq::events", **changes: Any) -> str:
    fields = dict.fromkeys(FIELDS, "") | {"e": "succeeded", "q": "mail", "t": "shop.send", "i": f"t{number}", "a": "1"}
    fields |= {"m": f"m{number}", "s": str(BEGIN_MS), **changes}
    words = {"v": "\n".join(fields.values()), **({"g": tags} if tags else {})}
    return server.redis.xadd(key, words, id=f"{BEGIN_MS + number}-0").decode()


def write_success(server: PrivateServer, number: int, task: str, **changes: Any) -> str:
    server.redis.zadd("rsmq::events:tasks", {task: number})
    return write(server, number, key=f"rsmq::events:succeeded:{task}", t=task, **changes)


def pages(client: Client, wanted: RunFilter, **options: Any) -> list[RunPage]:
    found = [find_runs(client, wanted, **options)]
    while found[-1].older is not None:
        found.append(find_runs(client, wanted, before=found[-1].older, **options))
    return found


def ids(found: list[RunPage]) -> list[str]:
    return [run.task_id for page in found for run in page.runs]


def test_failures_and_successes_of_every_task_are_one_list_newest_first(client: Client, server: PrivateServer):
    for number in range(60):
        if number % 3:
            write_success(server, number, f"shop.task_{number % 4}")
        else:
            write(server, number, e="dead")

    found = pages(client, RunFilter(), count=7)

    assert ids(found) == [f"t{number}" for number in reversed(range(60))]
    assert {len(page.runs) for page in found[:-1]} == {7}
    assert not any(page.is_cut for page in found)


def test_run_that_ended_in_the_same_moment_as_the_last_of_a_page_is_not_left_out(client: Client, server: PrivateServer):
    for task in ("shop.a", "shop.b", "shop.c"):
        write_success(server, 5, task, i=task)
    write(server, 5, e="dead", i="log")
    write(server, 6, e="dead")

    found = pages(client, RunFilter(), count=2)

    assert sorted(ids(found)) == ["log", "shop.a", "shop.b", "shop.c", "t6"]


@pytest.mark.parametrize(
    ("wanted", "expected"),
    [
        (RunFilter(task="shop.pay"), ["t8", "t4", "t0"]),
        (RunFilter(queue="slow"), ["t7", "t2"]),
        (RunFilter(kinds=frozenset({"dead"})), ["t9", "t6", "t3"]),
        (RunFilter(kinds=frozenset({"dead", "retried"})), ["t9", "t6", "t5", "t3"]),
        (RunFilter(worker="w-2"), ["t1"]),
        (RunFilter(tag="tour 7"), ["t6", "t2"]),
        (RunFilter(tag="tour"), []),
        (RunFilter(task_id="t3"), ["t3"]),
        (RunFilter(message_id="m3"), ["t3"]),
        (RunFilter(since_ms=BEGIN_MS + 7), ["t9", "t8", "t7"]),
        (RunFilter(until_ms=BEGIN_MS + 2), ["t1", "t0"]),
        (RunFilter(since_ms=BEGIN_MS + 2, until_ms=BEGIN_MS + 4), ["t3", "t2"]),
        (RunFilter(group=fingerprint("shop.send", "builtins.OSError", "order 3 is gone")), ["t9", "t6", "t3"]),
        (RunFilter(words=("ORDER", "6")), ["t6"]),
        (RunFilter(words=("m4",)), ["t4"]),
        (RunFilter(words=("order", "oserror"), kinds=frozenset({"dead"}), tag="tour 7"), ["t6"]),
        (RunFilter(task=""), []),
        (RunFilter(words=("nothing",)), []),
    ],
)
@pytest.mark.parametrize("is_recent", [False, True], ids=["one log", "successes apart"])
def test_runs_are_found_by_their_fields(
    client: Client, server: PrivateServer, wanted: RunFilter, expected: list[str], is_recent: bool
):
    for number in range(10):
        about: dict[str, str] = {"tags": "sea\x1ftour 7"} if number in (2, 6) else {}
        about["q"] = "slow" if number in (2, 7) else "mail"
        about["t"] = "shop.send" if number % 4 else "shop.pay"
        about["k"] = "w-2" if number == 1 else "w-1"
        if number % 3 == 0 and number:
            write(server, number, e="dead", x="builtins.OSError", y=f"order {number} is gone", **about)
        elif number == 5:
            write(server, number, e="retried", **about)
        elif is_recent:
            write_success(server, number, about.pop("t"), **about)
        else:
            write(server, number, **about)

    assert ids(pages(client, wanted, count=2)) == expected


def test_search_finds_words_in_arguments_that_are_still_kept(client: Client, server: PrivateServer):
    body = json.dumps({"task": "shop.send", "args": [], "kwargs": {"order": "Ä-7", "to": "ANN"}}, ensure_ascii=False)
    for number in range(4):
        write(server, number, e="dead" if number == 3 else "succeeded")
    server.redis.hset("rsmq::result:t1", "body", body)
    server.redis.hset("rsmq:mail:Q", "m2", body)
    server.redis.hset("rsmq:mail-dead:Q", "m3", body)

    def found(*words: str, **options: Any) -> list[str]:
        wanted = RunFilter(words=words, **options)
        return ids([find_runs(client, wanted, dead_letters_of=lambda run: f"{run.queue}-dead")])

    assert found("ann") == ["t3", "t2", "t1"]
    assert found("ann", "m2") == ["t2"], "one word in the arguments, and one in an id"
    assert found("ann", in_arguments=False) == []
    assert found("ben") == []


@pytest.mark.parametrize(("size", "is_searched"), [(1, True), (65_536, True), (65_537, False)])
def test_bodies_of_one_byte_to_64_kib_are_searched(client: Client, server: PrivateServer, size: int, is_searched: bool):
    write(server, 1, m="x")
    server.redis.hset("rsmq::result:t1", "body", "7".rjust(size))

    assert ids([find_runs(client, RunFilter(words=("7",)))]) == (["t1"] if is_searched else [])


def test_page_has_its_last_position_and_the_next_page_continues_there(client: Client, server: PrivateServer):
    with server.redis.pipeline() as pipe:
        for number in range(5000):
            rare = number == 3
            pipe.xadd("rsmq::events", {"v": f"{'dead' if rare else 'succeeded'}\n\n\n{number}"}, id=f"{number + 1}-0")
        pipe.execute()

    first = find_runs(client, RunFilter(kinds=frozenset({"dead"})), most_looked_at=2000)
    all_pages = pages(client, RunFilter(kinds=frozenset({"dead"})), most_looked_at=2000)

    assert (first.runs, first.looked_at, first.is_cut, first.looked_back_to_ms) == ([], 2000, True, 3001)
    assert [len(page.runs) for page in all_pages] == [0, 0, 1]
    assert (all_pages[-1].is_cut, all_pages[-1].older) == (False, None)


def test_plain_page_reads_no_more_entries_than_it_shows(client: Client, server: PrivateServer):
    for number in range(300):
        write(server, number)

    assert find_runs(client, count=50).looked_at == 51


def test_one_run_is_read_by_the_id_of_its_event(client: Client, server: PrivateServer):
    failed = write(server, 1, e="dead")
    done = write_success(server, 2, "shop.pay")
    also = write_success(server, 2, "shop.send", i="other")

    assert read_run(client, failed).task_id == "t1"
    assert read_run(client, done, task="shop.pay").task_id == "t2"
    assert read_run(client, also, task="shop.send").task_id == "other"
    assert read_run(client, done) is not None
    assert read_run(client, f"{BEGIN_MS}-7") is None
    assert read_run(client, failed, task="shop.pay") is None


def test_attempts_of_a_call_are_found_wherever_they_are(client: Client, server: PrivateServer):
    write(server, 1, i="seven", e="retried")
    write(server, 2, i="eight", e="retried")
    write(server, 3, i="seven", e="lost", a="2")
    last = write_success(server, 4, "shop.send", i="seven", a="3")
    write(server, 5, i="", m="raw", e="dead", t="")

    run, raw = read_run(client, last, task="shop.send"), find_runs(client, RunFilter(message_id="raw")).runs[0]

    assert [(each.attempt, each.kind) for each in attempts_of(client, run).runs] == [
        (3, "succeeded"),
        (2, "lost"),
        (1, "retried"),
    ]
    assert [each.message_id for each in attempts_of(client, raw).runs] == ["raw"]


def test_tail_returns_each_run_once_in_order_from_streams_that_begin_later_too(client: Client, server: PrivateServer):
    write(server, 1, e="dead")
    write_success(server, 2, "shop.pay")
    tail = Tail(client, RunFilter(queue="mail"))

    before = tail.more()
    write(server, 3, e="dead")
    write_success(server, 4, "shop.new")
    write_success(server, 5, "shop.pay")
    write_success(server, 6, "shop.pay", q="slow")
    more = tail.more()

    assert before == []
    assert [run.task_id for run in more] == ["t3", "t4", "t5"]
    assert tail.more() == []


def test_page_ends_when_successes_alone_cost_more_than_the_maximum(client: Client, server: PrivateServer):
    for number in range(40):
        write_success(server, number, f"shop.task_{number % 4}")
    write(server, 40, e="dead")

    found = find_runs(client, RunFilter(queue="mail"), count=7, most_looked_at=10)

    assert ids([found]) == [f"t{number}" for number in range(40, 33, -1)]
    assert found.looked_back_to_ms == BEGIN_MS + 34


def test_any_time_and_place_can_be_asked_for(client: Client, server: PrivateServer):
    write(server, 1)

    assert ids(pages(client, RunFilter(since_ms=-5))) == ["t1"]
    assert ids(pages(client, RunFilter(until_ms=-5))) == ids(pages(client, RunFilter(until_ms=0))) == []
    assert ids([find_runs(client, RunFilter(), before="0-0")]) == []


@pytest.mark.parametrize(
    ("before", "found"),
    [("+", [3, 2, 1, 0]), (80, [3, 2, 1, 0]), (4, [3, 2, 1, 0]), (3, [2, 1, 0]), (0, [])],
)
def test_a_page_begins_at_its_end_in_time_or_where_the_last_one_ended(
    client: Client, server: PrivateServer, before: str | int, found: list[int]
):
    for number in range(100):
        write(server, number)
    before = before if isinstance(before, str) else f"{BEGIN_MS + before}-0"

    page = find_runs(client, RunFilter(until_ms=BEGIN_MS + 4), before=before)

    assert ids([page]) == [f"t{number}" for number in found]
    assert page.looked_at <= 5, "nothing is read that is later"


def test_search_of_long_bodies_is_cut_into_short_scripts(client: Client, server: PrivateServer):
    for number in range(40):
        write(server, number)
        server.redis.hset(f"rsmq::result:t{number}", "body", "x" * 60_000 + f"order-{number}.")
    server.redis.config_resetstat()

    found = pages(client, RunFilter(words=("order-3.",)))

    assert ids(found) == ["t3"]
    scripts = server.redis.info("commandstats")
    assert sum(scripts[name]["calls"] for name in ("cmdstat_eval", "cmdstat_evalsha") if name in scripts) >= 8


def test_page_of_many_tasks_reads_only_the_events_that_can_be_on_it(
    client: Client, server: PrivateServer, monkeypatch: pytest.MonkeyPatch
):
    read: list[str] = []

    def noting(entry_id: str, words: Sequence[bytes]) -> Event:
        read.append(entry_id)
        return read_event(entry_id, words)

    monkeypatch.setattr(run_search, "read_event", noting)
    for number in range(60):
        write_success(server, number, f"shop.task_{number % 4}")

    found = find_runs(client, RunFilter(), count=5)

    assert ids([found]) == [f"t{number}" for number in range(59, 54, -1)]
    assert len(read) == 6
