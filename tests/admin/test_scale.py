"""The cost of pages does not grow with messages and queues: counted in commands of Redis, not in seconds."""

from collections.abc import Iterator
from typing import Any

import pytest
from django.test import Client as Browser

from tests.admin.conftest import MESSAGES, QUEUES
from tests.redis_server import PrivateServer

MANY_MESSAGES, MANY_QUEUES = 30_000, 600

FILL = """
for first = 1, tonumber(ARGV[1]), 1000 do
  local scores, bodies = {}, {}
  for n = first, first + 999 do
    local id = string.format("%032d", n)
    scores[#scores + 1], scores[#scores + 2] = n % 3 == 0 and 9e15 or n, id
    bodies[#bodies + 1], bodies[#bodies + 2] = id, '{"task": "shop.tasks.pay", "kwargs": {"number": ' .. n .. '}}'
  end
  redis.call("ZADD", KEYS[1], unpack(scores))
  redis.call("HSET", KEYS[2], unpack(bodies))
end
"""


@pytest.fixture
def crowd(server: PrivateServer, settings: Any) -> Iterator[PrivateServer]:
    """A long queue, a long dead-letter queue, and many queues."""
    names = ["mail", "mail-dead", *(f"queue-{n:04}" for n in range(MANY_QUEUES))]
    pipe = server.redis.pipeline(transaction=False)
    for name in names:
        pipe.sadd("rsmq:QUEUES", name)
        pipe.hset(f"rsmq:{name}:Q", mapping={"vt": 30, "delay": 0, "maxsize": 65536, "totalsent": 1, "totalrecv": 1})
    pipe.execute()
    for name in ("mail", "mail-dead"):
        server.redis.eval(FILL, 2, f"rsmq:{name}", f"rsmq:{name}:Q", MANY_MESSAGES)
    yield server


def cost(server: PrivateServer, ask: Any) -> tuple[Any, int, int]:
    """Return the answer, how many scripts were run, and how many commands inside them."""
    server.redis.config_resetstat()
    page = ask()
    stats = server.redis.info("commandstats")
    scripts = sum(stats.get(f"cmdstat_{name}", {"calls": 0})["calls"] for name in ("evalsha", "eval"))
    return page, scripts, sum(stat["calls"] for stat in stats.values())


#: Pages, and how many commands they may cost.
PAGES = {
    QUEUES: 4_000,
    f"{QUEUES}?o=-3": 12_000,
    f"{QUEUES}?q=queue-00": 12_000,
    f"{QUEUES}mail/change/": 400,
    f"{QUEUES}mail/purge/": 200,
    MESSAGES: 8_000,
    f"{MESSAGES}?p=1400": 8_000,
    f"{MESSAGES}?queue=mail": 500,
    f"{MESSAGES}?queue=mail&p=1500": 500,
    f"{MESSAGES}?queue=mail&o=-4": 500,
    f"{MESSAGES}?queue=mail&state__exact=ready&p=900": 500,
    f"{MESSAGES}?queue=mail&state__exact=delayed": 40_000,
    f"{MESSAGES}?queue=mail&q=number": 60_000,
    f"{MESSAGES}?q=nothing+such": 60_000,
    f"{MESSAGES}?q={29_999:032}": 20_000,
    f"{QUEUES}mail-dead/failures/": 40_000,
    f"{MESSAGES}mail_2F{29_999:032}/change/": 200,
}


def test_pages_are_small_and_cost_redis_little(browser: Browser, crowd: PrivateServer):
    for url, most_commands in PAGES.items():
        browser.get(url)  # the scripts are loaded

        page, scripts, commands = cost(crowd, lambda url=url: browser.get(url))  # type: ignore[misc]

        assert page.status_code == 200, url
        assert len(page.content) < 1024 * 1024, url
        past = (
            62 if url.partition("?")[0] in (QUEUES, f"{QUEUES}mail/change/") else 0
        )  # a script for each minute, all in one round trip
        assert scripts <= 20 + past, url
        assert commands < most_commands, url


def test_a_message_is_found_by_its_id_among_all_queues(browser: Browser, crowd: PrivateServer):
    page = browser.get(MESSAGES, {"q": f"{29_999:032}"})

    assert [row.queue for row in page.context["cl"].result_list] == ["mail", "mail-dead"]
    assert not page.context["cl"].notes


def test_the_list_of_queues_to_choose_from_stays_short(browser: Browser, crowd: PrivateServer):
    content = browser.get(MESSAGES).content.decode()

    assert content.count("queue-0") <= 1 and "?queue=mail" in content
    assert "queue-0007" in browser.get(MESSAGES, {"queue": "queue-0007"}).content.decode()
