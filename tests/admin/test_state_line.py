"""The state of the installation in one line: on the index of every admin site, above the list of queues."""

from __future__ import annotations

import contextlib
import io
import json
import re
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest
from django.contrib import admin
from django.contrib.admin import AdminSite
from django.core.management import CommandError, call_command
from django.test import Client as Browser

from rsmq_django.admin.state_line import INDEX_TEMPLATE, show_on_index
from rsmq_django.core import Queue
from rsmq_django.core.doctor.troubles import ORDER
from rsmq_django.core.queue.pause import pause
from rsmq_django.live import installation
from rsmq_django.queues import ensure_queue
from tests import redis_server
from tests.admin.conftest import QUEUES
from tests.admin.pages import text_of
from tests.admin.test_overview import a_worker, count
from tests.admin.test_without_redis import NOWHERE
from tests.redis_server import PrivateServer

INDEX, STATE = "/admin/", "/admin/rsmq/queue/state/"


def line_of(page: Any) -> str:
    """Return the line without tags."""
    found = re.search(r'<p id="rsmq-state".*?</p>', page.content.decode(), re.DOTALL)
    return " ".join(re.sub("<[^>]*>", "", found[0]).split()) if found else ""


def links_of(page: Any) -> dict[str, str]:
    """Return the addresses in the line by their texts."""
    found = re.search(r'<p id="rsmq-state".*?</p>', page.content.decode(), re.DOTALL)
    return {text: url for url, text in re.findall(r'<a href="([^"]*)"[^>]*>([^<]*)</a>', found[0] if found else "")}


def elsewhere(queue: Queue, name: str) -> Queue:
    """A queue that another program has created, beside one of the project."""
    other = Queue(name, queue.client)
    other.create()
    return other


@pytest.fixture
def many(mail: Queue, dead: Queue, server: PrivateServer) -> None:
    """More queues than a page shows; one with an old backlog, dead letters of two kinds, one worker."""
    for number in range(30):
        elsewhere(mail, f"other-{number}").send(b"x")
    server.redis.zincrby("rsmq:mail", -36 * 60_000, mail.send(b"x"))
    for task in ("shop.tasks.pay", "shop.tasks.send", "shop.tasks.pay"):
        died = dead.send(b"x")
        record = {"task": task, "error": "ValueError", "message": "x"}
        server.redis.hset("rsmq::dead:mail-dead", died, json.dumps(record))
    a_worker(mail.client, "w1", "default")


@pytest.mark.usefixtures("many")
def test_the_index_and_the_list_of_queues_show_the_state_of_all_queues(browser: Browser):
    line = "31 ready, oldest 36 min (no worker on mail) · 3 dead letters in 2 kinds · 1 worker"

    assert line_of(browser.get(INDEX)) == line
    assert line_of(browser.get(QUEUES)) == line
    assert line_of(browser.get(QUEUES, {"q": "other-1", "p": "0"})) == line
    assert line_of(browser.get(STATE)) == line


@pytest.mark.usefixtures("many")
def test_each_part_of_the_line_leads_to_the_page_that_shows_it(browser: Browser):
    links = links_of(browser.get(INDEX))

    assert links == {
        "31 ready": QUEUES,
        "oldest 36 min": f"{QUEUES}mail/change/",
        "no worker on mail": f"{QUEUES}mail/change/",
        "3 dead letters in 2 kinds": f"{QUEUES}mail-dead/failures/",
        "1 worker": "/admin/rsmq/worker/",
    }
    assert all(browser.get(url).status_code == 200 for url in links.values())


@pytest.mark.usefixtures("many")
def test_users_see_the_parts_whose_pages_they_may_see(browser_of: Callable[..., Browser]):
    assert line_of(browser_of("view_worker").get(INDEX)) == "1 worker"
    queues_only = browser_of("view_queue").get(INDEX)
    assert line_of(queues_only).endswith("3 dead letters in 2 kinds")
    assert links_of(queues_only)["3 dead letters in 2 kinds"] == f"{QUEUES}?trouble=dead"
    nobody = browser_of("view_message").get(INDEX)
    assert nobody.status_code == 200 and line_of(nobody) == ""


def test_priorities_and_paused_queues_are_part_of_the_line(browser: Browser, settings: Any, mail: Queue):
    settings.RSMQ = {
        **settings.RSMQ,
        "QUEUES": {**dict.fromkeys(("mail", "a", "b", "c"), {}), "theirs": {"FOR_OTHERS": True}},
    }
    ensure_queue("mail-p50").send(b"x")
    for name in ("a", "b", "c", "theirs"):
        ensure_queue(name).send(b"x")
    elsewhere(mail, "unknown").send(b"x")

    assert "6 ready" in line_of(browser.get(INDEX))
    assert "(no worker on 4 queues)" in line_of(browser.get(INDEX))
    assert links_of(browser.get(INDEX))["no worker on 4 queues"] == f"{QUEUES}?trouble=unserved"


def test_kinds_of_many_dead_letter_queues_are_read_in_few_round_trips(
    settings: Any, mail: Queue, round_trips: list[int]
):
    names = [f"jobs{number}" for number in range(300)]
    settings.RSMQ = {**settings.RSMQ, "QUEUES": {**dict.fromkeys(names, {}), "mail": {}}}
    for name in names:
        ensure_queue(f"{name}-dead").send(b"x")
    ensure_queue("mail-dead").send_many([b"x"] * 1000)
    round_trips.clear()

    found = installation.read_installation()

    assert (found.dead, found.kinds) == (1300, 1)
    assert len(round_trips) < 20, "one for each queue would be hundreds"


def test_an_idle_installation_has_a_line_that_says_it_is_idle(browser: Browser):
    assert line_of(browser.get(INDEX)) == "0 ready · 0 dead letters · 0 workers"


def test_large_numbers_are_short(browser: Browser, mail: Queue, server: PrivateServer):
    script = "for n = 1, 1100000 do redis.call('ZADD', KEYS[1], n, n) end"
    server.redis.eval(script, 1, "rsmq:mail")
    a_worker(mail.client, "w1", "mail")

    assert line_of(browser.get(INDEX)).startswith("1.1 M ready, oldest ")


# -- Without Redis ----------------------------------------------------------------------------------------------------


def test_the_index_names_the_connection_that_does_not_answer(browser: Browser, settings: Any, server: PrivateServer):
    settings.RSMQ = {
        "CONNECTIONS": {
            "default": {"URL": redis_server.URL, "TIMEOUT_S": 15},
            "billing": {"URL": NOWHERE, "TIMEOUT_S": 0.5},
        },
        "QUEUES": {"mail": {}},
    }
    ensure_queue("mail").send(b"x")

    page = browser.get(INDEX)

    assert page.status_code == 200 and line_of(page).startswith("1 ready")
    assert line_of(page).endswith("the connection “billing” does not answer")
    assert "hunter2" not in page.content.decode()


def test_the_index_of_a_project_without_redis_says_that_the_state_is_unknown(browser: Browser, settings: Any):
    settings.RSMQ = {"CONNECTIONS": {"default": {"URL": NOWHERE, "TIMEOUT_S": 0.5}}, "QUEUES": {"mail": {}}}

    page = browser.get(INDEX)

    assert page.status_code == 200 and "Queues" in text_of(page)
    assert line_of(page) == "the connection “default” does not answer"


def test_pages_wait_a_moment_for_a_slow_server_and_show_the_last_data(
    browser: Browser, mail: Queue, monkeypatch: pytest.MonkeyPatch
):
    mail.send(b"x")
    answers, real = threading.Event(), installation.read_installation

    def slow() -> Any:
        answers.wait(60)
        return real()

    monkeypatch.setattr(installation, "read_installation", slow)
    monkeypatch.setattr(installation, "WAIT_S", 0.01)

    asked_first = line_of(browser.get(INDEX))
    asked_again = line_of(browser.get(INDEX))
    readers = [thread for thread in threading.enumerate() if thread.name == "rsmq-installation"]
    answers.set()
    for reader in readers:
        reader.join(60)
    monkeypatch.setattr(installation, "KEEP_FACTOR", 1e9)  # what was read is kept
    known = line_of(browser.get(INDEX))

    assert (
        asked_first
        == asked_again
        == (
            "Still loading: reading the state takes longer than 0.01 s. Reload the page in a moment; "
            "manage.py rsmq_doctor shows whether Redis is slow."
        )
    )
    assert len(readers) == 1, "one reading at a time"
    assert known.startswith("1 ready")


def test_a_reading_that_is_old_because_redis_is_slow_shows_its_age(
    browser: Browser, mail: Queue, monkeypatch: pytest.MonkeyPatch
):
    browser.get(INDEX)
    monkeypatch.setattr(installation, "read_installation", lambda: None)
    monkeypatch.setattr("rsmq_django.admin.state_line.SHOW_AGE_AFTER_S", -1)

    assert "Redis is slow: this was read " in line_of(browser.get(INDEX))


# -- Sites ------------------------------------------------------------------------------------------------------------


def test_every_site_shows_the_line_with_links_that_stay_on_it(browser: Browser, settings: Any, mail: Queue):
    settings.ROOT_URLCONF = "tests.admin.two_sites"
    mail.send(b"x")

    page = browser.get("/ops/")

    assert line_of(page).startswith("1 ready")
    assert links_of(page) and all(url.startswith("/ops/") for url in links_of(page).values())
    assert 'data-rsmq-source="/ops/rsmq/queue/state/"' in page.content.decode()


def test_a_site_with_an_index_of_its_own_keeps_it():
    plain, own = AdminSite(name="plain"), AdminSite(name="own")
    own.index_template = "project/index.html"

    for site in (plain, own):
        show_on_index(site)

    assert (plain.index_template, own.index_template) == (INDEX_TEMPLATE, "project/index.html")
    assert admin.site.index_template == INDEX_TEMPLATE


# -- The doctor -------------------------------------------------------------------------------------------------------


def plant_unserved(queue: Queue, server: PrivateServer) -> None:
    queue.send(b"x")


def plant_late(queue: Queue, server: PrivateServer) -> None:
    a_worker(queue.client, "w1", "mail")
    server.redis.zincrby("rsmq:mail", -61_000, queue.send(b"x"))


def plant_failing(queue: Queue, server: PrivateServer) -> None:
    count(queue.client, "mail", at_s=time.time(), succeeded__a=9, retried__a=2, dead__a=1)


def plant_dead_letters(queue: Queue, server: PrivateServer) -> None:
    ensure_queue("mail-dead").send(b"x")


def plant_paused(queue: Queue, server: PrivateServer) -> None:
    queue.send(b"x")
    queue.client.run(pause("rsmq", "mail"))


def plant_a_slow_target(queue: Queue, server: PrivateServer) -> None:
    a_worker(queue.client, "w1", "slow")
    server.redis.zincrby("rsmq:slow", -61_000, ensure_queue("slow").send(b"x"))


#: What is planted, what the doctor finds, what the line says.
TROUBLES = [
    (plant_unserved, {("unserved", "mail")}, "no worker on mail"),
    (plant_late, {("late", "mail")}, "older than its target: mail"),
    (plant_failing, {("failing", "mail")}, "failing: mail"),
    (plant_dead_letters, {("dead-letters", "mail-dead")}, "1 dead letter in 1 kind"),
    (plant_paused, {("paused-backlog", "mail")}, "paused: mail"),
    (plant_a_slow_target, set(), "1 ready, oldest 1 min · "),
]


@pytest.mark.parametrize(("plant", "findings", "words"), TROUBLES, ids=[each[0].__name__ for each in TROUBLES])
def test_the_doctor_and_the_line_of_the_admin_name_the_same_troubles(
    browser: Browser,
    mail: Queue,
    server: PrivateServer,
    settings: Any,
    plant: Callable[[Queue, PrivateServer], None],
    findings: set[tuple[str, str]],
    words: str,
):
    settings.RSMQ = {
        **settings.RSMQ,
        "QUEUES": {"mail": {}, "slow": {}},
        "PIPELINE": {"WAIT_TARGETS_S": {"slow": 3600}},
    }
    plant(mail, server)

    line, report = line_of(browser.get(INDEX)), doctor()

    found = {(each["id"], each["subject"]) for each in report["connections"][0]["findings"]}
    assert {each for each in found if each[0] in ORDER} == findings
    assert words in line and without_seconds(report["state"]) == without_seconds(line)
    assert not [other for _plant, _found, other in TROUBLES if other != words and other in line]


def without_seconds(line: str) -> str:
    """Return the line without the seconds that pass between two looks."""
    return re.sub(r"oldest \d+ s", "oldest", line)


def doctor() -> Any:
    """Return what the doctor says."""
    out = io.StringIO()
    with contextlib.suppress(CommandError):
        call_command("rsmq_doctor", "--json", stdout=out)
    return json.loads(out.getvalue())


# -- Cost -------------------------------------------------------------------------------------------------------------


def test_ten_thousand_queues_cost_one_command_each_and_few_round_trips(
    browser: Browser, settings: Any, server: PrivateServer
):
    server.redis.sadd("rsmq:QUEUES", *(f"queue-{number}" for number in range(10_000)))
    browser.get(INDEX)  # the scripts are loaded
    server.redis.config_resetstat()

    page = browser.get(INDEX)

    stats = server.redis.info("commandstats")
    assert line_of(page).startswith("0 ready")
    assert sum(stat["calls"] for name, stat in stats.items() if name != "cmdstat_info") < 10_200
    assert stats["cmdstat_evalsha"]["calls"] <= 20


def test_a_broken_queue_of_dead_letters_hides_no_other(mail: Queue, dead: Queue, server: PrivateServer):
    mail.send(b"x")
    dead.send(b"x")
    server.redis.delete("rsmq:mail-dead:Q")

    state = installation.read_installation()

    assert (state.unknown, state.ready, state.dead) == ((), 1, 1)
