"""Each shard of a queue is a row of its connection, with the pages and actions of a queue."""

from __future__ import annotations

import re
from typing import Any

import pytest
from django.contrib.admin.models import LogEntry
from django.test import Client as Browser

from rsmq_django.core import Queue
from rsmq_django.live.installation import read_installation
from rsmq_django.live.state_line import as_text, parts_of
from rsmq_django.queues import ensure_queue
from tests.admin.conftest import QUEUES
from tests.admin.pages import rows_of, text_of, told
from tests.admin.test_queue_actions import ask, confirm
from tests.redis_server import PrivateServer


@pytest.fixture
def sharded(settings: Any, mail: Queue) -> None:
    settings.RSMQ = {**settings.RSMQ, "QUEUES": {"mail": {"SHARDS": 3}}}
    for shard in range(3):
        ensure_queue("mail", shard=shard).send_many([b"x"] * (shard + 1))


def test_list_has_a_row_for_each_shard_and_a_page_behind_it(browser: Browser, sharded: None):
    page = browser.get(QUEUES)
    rows = [f"mail (shard {shard} of 3) no worker {ready} 0 0" for ready, shard in enumerate(range(3), 1)]

    assert all(row in text_of(page) for row in rows)
    links = set(re.findall(rf'href="({QUEUES}[^"]+/change/)"', page.content.decode()))
    assert len(links) == 3 and all(browser.get(link).status_code == 200 for link in links)


def totals_of(page: Any) -> list[str]:
    """Return the rows of the totals above the list."""
    table = page.content.decode().partition('id="rsmq-totals"')[2].partition("</table>")[0]
    rows = re.findall(r"<tr>(.*?)</tr>", table.partition("<tbody>")[2], re.DOTALL)
    return [" ".join(re.sub(r"<[^>]+>", " ", row).split()) for row in rows]


def test_total_of_all_shards_is_above_the_list(browser: Browser, sharded: None):
    ensure_queue("mail-dead", shard=2).send_many([b"x"] * 4)

    (total,) = totals_of(browser.get(QUEUES))

    assert re.fullmatch(r"mail 3 6 6 4 [0-9.]+ s", total)


def test_total_counts_shards_on_other_pages_and_is_read_with_the_page(
    browser: Browser,
    sharded: None,
    settings: Any,
    round_trips: list[int],
    monkeypatch: pytest.MonkeyPatch,
):
    monkeypatch.setattr("rsmq_django.live.installation.KEEP_FACTOR", 1e9)  # read by a thread, now and then
    ensure_queue("mail", shard=1).receive()
    settings.RSMQ = {**settings.RSMQ, "ADMIN": {"PAGE_SIZE": 1}}
    browser.get(QUEUES, {"q": "mail"})  # a search, so that the charts are about the page only
    round_trips.clear()

    page = browser.get(QUEUES, {"q": "mail"})

    assert len(rows_of(page)) == 1 and totals_of(page)[0].startswith("mail 3 6 5 0 ")
    assert len(round_trips) == 3  # one for each connection


def test_total_says_how_many_shards_it_is_of(browser: Browser, sharded: None):
    browser.post(QUEUES, {"action": "delete_selected", "_selected_action": ["mail"], "post": "yes"})

    (total,) = totals_of(browser.get(QUEUES))

    assert total.startswith("mail 2 of 3 5 5 0 ")


def test_queue_whose_dead_letters_are_deleted_has_no_number_of_them(browser: Browser, sharded: None, settings: Any):
    settings.RSMQ = {**settings.RSMQ, "QUEUES": {"mail": {"SHARDS": 3, "DEAD_LETTER": None}}}

    (total,) = totals_of(browser.get(QUEUES))

    assert total.startswith("mail 3 6 6 - ")


def test_list_without_shards_has_no_totals(browser: Browser, mail: Queue):
    assert "rsmq-totals" not in browser.get(QUEUES).content.decode()


def test_selected_shards_are_paused_and_resumed(browser: Browser, sharded: None, server: PrivateServer):
    confirm(browser, ask(browser, "pause", "mail", "default.1/mail"))
    assert server.redis.smembers("rsmq::paused") == {b"mail"} == server.redis.smembers("rsmq-1::paused")
    assert not server.redis.exists("rsmq-2::paused")

    confirm(browser, ask(browser, "resume", "mail", "default.1/mail"))
    assert not server.redis.exists("rsmq::paused") and not server.redis.exists("rsmq-1::paused")


def test_pages_of_a_shard_are_headed_with_its_number(browser: Browser, sharded: None):
    for key, shown in (("mail", "mail (shard 0 of 3)"), ("default.1_2Fmail", "mail (shard 1 of 3)")):
        assert f"Queue {shown}" in text_of(browser.get(f"{QUEUES}{key}/change/"))
        assert f"Send a message · {shown}" in text_of(browser.get(f"{QUEUES}{key}/send/"))


def test_questions_and_answers_say_which_shard_they_are_about(browser: Browser, sharded: None):
    question = ask(browser, "pause", "mail", "default.1/mail")
    assert "Pause 2 queues: mail (shard 0 of 3), mail (shard 1 of 3)" in text_of(question)
    assert told(confirm(browser, question)) == ["2 queues are paused: mail (shard 0 of 3), mail (shard 1 of 3)"]

    done = browser.post(f"{QUEUES}mail/pause/", {"action": "resume"}, follow=True)
    assert told(done) == ["Queue mail (shard 0 of 3) is resumed."]
    assert "default.1/mail" not in text_of(browser.get(f"{QUEUES}mail/history/"))


@pytest.mark.parametrize("typed", ["mail", "mail (shard 1 of 3)"])
def test_a_shard_is_purged_after_its_name_was_typed(browser: Browser, sharded: None, typed: str):
    url = f"{QUEUES}default.1_2Fmail/purge/"
    assert "This removes all 2 messages of the queue mail (shard 1 of 3)," in text_of(browser.get(url))

    done = browser.post(url, {"name": typed, "total_sent": "2"}, follow=True)

    assert told(done) == ["2 messages were removed from queue mail (shard 1 of 3)."]
    assert [row.ready for row in rows_of(browser.get(f"{QUEUES}?o=1"))] == [1, 0, 3]


def test_deleting_a_shard_says_which_one_in_the_question_and_in_the_history(browser: Browser, sharded: None):
    page = browser.post(QUEUES, {"action": "delete_selected", "_selected_action": ["mail"]})
    assert "mail (shard 0 of 3): 1 message" in text_of(page)

    browser.post(QUEUES, {"action": "delete_selected", "_selected_action": ["mail"], "post": "yes"})

    assert LogEntry.objects.get().object_repr == "mail (shard 0 of 3)"


def test_the_line_of_the_state_says_which_shards_are_paused(browser: Browser, sharded: None):
    confirm(browser, ask(browser, "pause", "mail", "default.2/mail"))

    assert "paused: mail (shard 0 of 3), mail (shard 2 of 3)" in as_text(parts_of(read_installation()))


def test_messages_of_shards_are_listed_with_the_shard(browser: Browser, sharded: None):
    text = text_of(browser.get("/admin/rsmq/message/"))

    assert all(f"mail (shard {shard} of 3)" in text for shard in range(3)) and "default.1/mail" not in text


def test_dead_letter_queues_of_shards_have_the_number_of_the_shard(browser: Browser, sharded: None, settings: Any):
    settings.RSMQ = {**settings.RSMQ, "QUEUES": {"mail": {"SHARDS": 3, "DEAD_LETTER": "mail-dead"}}}
    for shard in range(3):
        ensure_queue("mail-dead", shard=shard)

    page = browser.get(f"{QUEUES}?q=mail")

    assert {f"mail-dead (shard {shard} of 3)" for shard in range(3)} <= {str(row) for row in rows_of(page)}


def test_a_search_counts_dead_letter_queues_in_its_total(browser: Browser, dead: Queue):
    ensure_queue("default")

    page = browser.get(f"{QUEUES}?q=mail")

    assert "2 results ( 3 total )" in text_of(page)


def test_german_pages_name_the_shard(browser: Browser, sharded: None, settings: Any):
    settings.LANGUAGE_CODE = "de"

    assert "mail (Shard 0 von 3)" in text_of(browser.get(QUEUES, headers={"accept-language": "de"}))
