"""`{% task_progress %}` and its view: what pages, pollers and streams get."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Iterator
from typing import Any

import pytest
from asgiref.sync import sync_to_async
from django.core.exceptions import ImproperlyConfigured
from django.template import Context, Template
from django.test import AsyncClient, Client, RequestFactory
from django.utils.translation import override

from rsmq_django import views
from rsmq_django.tasks import Unique, current_task
from rsmq_django.tasks.progress import state_of
from rsmq_django.views import address_of, status_address, status_of
from tests.redis_server import PrivateServer
from tests.worker.workshop import Configure, declare, work

EVENTS = {"Accept": "text/event-stream, application/json"}


@pytest.fixture
def browser(settings: Any) -> Client:
    settings.MIDDLEWARE = []
    return Client()


def import_pages(until: int) -> int:
    for number in range(1, until + 1):
        current_task().progress(number, 4, note=f"page <{number}>")
    return until


def render(result: Any, **context: Any) -> str:
    text = "{% load rsmq %}{% task_progress result label='Import' %}"
    return str(Template(text).render(Context({"result": result} | context)))


def source_of(html: str) -> str:
    (source,) = re.findall(r'data-src="([^"]+)"', html)
    return source


def test_a_page_shows_bar_and_state_without_a_script(project: Configure):
    result = declare(import_pages).enqueue(2)
    html = render(result)
    assert 'value="0.0"' in html and ">Waiting<" in html and 'aria-label="Import"' in html and 'role="status"' in html
    work()
    html = render(result.id)
    assert 'value="1.0"' in html and ">Done<" in html and ">2 of 4<" in html and "page &lt;2&gt;" in html


def test_a_page_needs_nothing_inline(project: Configure):
    html = render(declare(import_pages).enqueue(1))
    assert "style=" not in html and "onload" not in html
    assert re.findall(r"<script([^>]*)>(.*?)</script>", html) == [(' src="/static/rsmq/task_progress.js" defer', "")]


def test_script_and_style_of_a_page_with_nonces_have_one(project: Configure):
    result = declare(import_pages).enqueue(1)
    request = RequestFactory().get("/")
    request.csp_nonce = "a&b"  # type: ignore[attr-defined]  # as django-csp sets it
    for context in ({"csp_nonce": "a&b"}, {"request": request}):
        assert render(result, **context).count('nonce="a&amp;b"') == 2


def test_a_nonce_that_nothing_has_asked_for_yet_is_asked_for(project: Configure):
    class Nonce:
        """As Django's LazyNonce: false until it is made."""

        def __bool__(self) -> bool:
            return False

        def __str__(self) -> str:
            return "made-now"

    assert render(declare(import_pages).enqueue(1), csp_nonce=Nonce()).count('nonce="made-now"') == 2


def test_a_page_with_several_bars_loads_the_script_once(project: Configure):
    result = declare(import_pages).enqueue(1)
    text = "{% load rsmq %}{% for each in results %}{% task_progress each %}{% endfor %}"
    html = Template(text).render(Context({"results": [result, result.id, result]}))
    assert (html.count("<script"), html.count("<rsmq-task-progress")) == (1, 3)


def test_a_page_of_a_language_has_its_texts_and_numbers(project: Configure, browser: Client):
    result = declare(import_pages).enqueue(1)
    with override("de"):
        html = render(result)
        assert ">Wartet<" in html and 'value="0.0"' in html
        assert browser.get(source_of(html)).json()["text"] == "Wartet"


def test_pollers_get_the_state(project: Configure, browser: Client):
    result = declare(import_pages).enqueue(3)
    source = source_of(render(result))
    assert browser.get(source, headers=EVENTS).json() == {
        "status": "READY", "text": "Waiting", "value": 0.0, "figures": "", "note": "",
    }  # fmt: skip
    work()
    answer = browser.get(source, headers=EVENTS)
    assert answer.json() == {
        "status": "SUCCESSFUL", "text": "Done", "value": 1.0, "figures": "3 of 4", "note": "page <3>",
    }  # fmt: skip
    assert "no-store" in answer["Cache-Control"]


def test_a_running_task_has_a_part_of_the_bar_or_a_moving_one(
    project: Configure, browser: Client, server: PrivateServer
):
    result = declare(import_pages).enqueue(1)
    for said, value, figures in (
        ({"done": 1, "total": 4, "note": ""}, 0.25, "1 of 4"),
        ({"done": 9, "total": 4, "note": ""}, 1.0, "9 of 4"),
        ({"done": 0.125, "total": None, "note": ""}, None, "0.12"),
        ({"done": 1, "total": 0, "note": ""}, None, "1 of 0"),
        ({"done": float("nan"), "total": 4, "note": ""}, None, ""),
        ({"done": True, "total": 4, "note": ""}, None, ""),
        (["another", "program"], None, ""),
        ({"done": 10**400, "total": 4, "note": ""}, None, ""),
        ({"done": 1, "total": 4, "note": "half of a pair: \ud800"}, 0.25, "1 of 4"),
    ):
        server.redis.hset(f"rsmq::result:{result.id}", mapping={"status": "RUNNING", "progress": json.dumps(said)})
        html = render(result)
        assert html.encode(), "no page can contain half of a pair"
        answer = browser.get(source_of(html)).json()
        assert (answer["value"], answer["figures"], answer["text"]) == (value, figures, "Running")


def test_addresses_are_signed_and_expire(project: Configure, browser: Client):
    result = declare(import_pages).enqueue(1)
    source = address_of(result.id, expires_in_s=60)
    assert browser.get(source).status_code == 200
    assert browser.get(source[:-3] + "x/").status_code == 403
    assert browser.get(f"/tasks/progress/{result.id}/").status_code == 403
    assert browser.get(address_of(result.id, expires_in_s=0)).status_code == 410
    assert browser.post(source).status_code == 405


def test_a_result_that_is_gone_ends_the_bar(project: Configure, browser: Client):
    html = render("of-long-ago")
    assert 'data-status="UNKNOWN"' in html and "No longer known" in html
    assert browser.get(source_of(html)).json()["status"] == "UNKNOWN"


def test_a_call_that_a_relay_sends_meanwhile_is_found(
    project: Configure, server: PrivateServer, monkeypatch: pytest.MonkeyPatch
):
    def sent_meanwhile(task_id: str) -> None:
        server.redis.hset(f"rsmq::result:{task_id}", "status", "READY")

    monkeypatch.setattr(views, "has_outbox", lambda: True)
    monkeypatch.setattr(views, "_in_outbox", sent_meanwhile)
    assert 'data-status="READY"' in render("of-the-outbox")


def test_a_dropped_call_has_the_bar_of_the_one_that_runs(project: Configure, server: PrivateServer):
    first = declare(import_pages, unique=Unique()).enqueue(2)
    server.redis.hset("rsmq::result:dropped", mapping={"status": "DUPLICATE", "of": first.id})
    server.redis.hset("rsmq::result:circle", mapping={"status": "DUPLICATE", "of": "circle"})
    work()
    state = state_of("dropped")
    assert state is not None and state.progress is not None
    assert (state.status, state.progress.done) == ("SUCCESSFUL", 2)
    assert state_of("circle") is None


def test_a_server_that_does_not_answer_breaks_no_page(configure: Configure, browser: Client):
    configure(url="unix:///nowhere/at/all", timeout_s=0.1)
    html = render("some-task")
    assert ">Waiting<" in html
    assert browser.get(source_of(html)).status_code == 503


def test_urls_that_are_missing_are_named(project: Configure, settings: Any):
    settings.ROOT_URLCONF = "tests.worker.site.urls"
    with pytest.raises(ImproperlyConfigured, match=r'include\("rsmq_django.urls"\)'):
        render("some-task")


@pytest.mark.parametrize("wrong", [None, "", 7])
def test_what_is_no_result_is_refused(project: Configure, wrong: Any):
    with pytest.raises(ImproperlyConfigured, match="needs a TaskResult or its id"):
        render(wrong)


# -- Under ASGI ----------------------------------------------------------------------------------------------------


@pytest.fixture
def often(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(views, "LOOK_S", 0.01)
    yield


@pytest.mark.usefixtures("often", "browser")
async def test_a_stream_has_an_event_for_each_change_and_ends_with_the_task(project: Configure, server: PrivateServer):
    result = declare(import_pages).enqueue(1)
    record = f"rsmq::result:{result.id}"
    answer: Any = await AsyncClient().get(address_of(result.id, expires_in_s=60), headers=EVENTS)
    assert answer["Content-Type"] == "text/event-stream" and answer["X-Accel-Buffering"] == "no"

    seen = []
    async for chunk in answer.streaming_content:
        assert chunk.startswith(b"data: ") and chunk.endswith(b"\n\n")
        now = json.loads(chunk[6:])
        seen.append((now["status"], now["value"], now["note"]))
        if len(seen) == 1:
            said = json.dumps({"done": 1, "total": 2, "note": "a\n\nb"})
            server.redis.hset(record, mapping={"status": "RUNNING", "progress": said})
        else:
            server.redis.hset(record, "status", "FAILED")
    assert seen == [("READY", 0.0, ""), ("RUNNING", 0.5, "a\n\nb"), ("FAILED", 0.5, "a\n\nb")]


@pytest.mark.usefixtures("browser")
async def test_head_of_a_stream_has_its_headers_and_begins_none(project: Configure):
    address = address_of(declare(import_pages).enqueue(1).id, expires_in_s=60)
    stream: Any = await AsyncClient().get(address, headers=EVENTS)
    answer: Any = await AsyncClient().head(address, headers=EVENTS)

    assert not answer.streaming and answer.content == b""
    assert (answer.status_code, dict(answer.items())) == (200, dict(stream.items()))


@pytest.mark.usefixtures("browser")
async def test_a_stream_keeps_the_language_of_its_request(project: Configure):
    result = declare(import_pages).enqueue(1)
    with override("de"):
        answer: Any = await AsyncClient().get(address_of(result.id, expires_in_s=60), headers=EVENTS)
    async for chunk in answer.streaming_content:
        assert json.loads(chunk[6:])["text"] == "Wartet"
        break


async def test_a_coroutine_renders_a_bar_in_a_thread(project: Configure):
    result = await declare(import_pages).aenqueue(1)
    assert ">Waiting<" in await sync_to_async(render)(result)


@pytest.mark.usefixtures("browser")
async def test_a_stream_is_not_collected_by_a_middleware_that_compresses(project: Configure, settings: Any):
    settings.MIDDLEWARE = ["django.middleware.gzip.GZipMiddleware"]
    result = declare(import_pages).enqueue(1)
    answer: Any = await AsyncClient().get(
        address_of(result.id, expires_in_s=60), headers=EVENTS | {"Accept-Encoding": "gzip"}
    )
    async for chunk in answer.streaming_content:
        assert chunk.startswith(b"data: ")
        break


@pytest.mark.usefixtures("browser")
async def test_who_does_not_take_events_gets_an_object_under_asgi_too(project: Configure):
    result = declare(import_pages).enqueue(1)
    answer: Any = await AsyncClient().get(address_of(result.id, expires_in_s=60))
    assert json.loads(answer.content)["status"] == "READY"


@pytest.mark.usefixtures("often", "browser")
async def test_a_stream_says_that_it_lives_and_ends_before_servers_lose_patience(
    project: Configure, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(views, "ALIVE_S", 0.0)
    result = declare(import_pages).enqueue(1)
    answer: Any = await AsyncClient().get(address_of(result.id, expires_in_s=60), headers=EVENTS)
    chunks = []
    async for chunk in answer.streaming_content:
        chunks.append(chunk)
        if len(chunks) == 3:
            monkeypatch.setattr(views, "LONGEST_STREAM_S", 0.0)
            break
    assert chunks[1:] == [b": \n\n"] * 2
    answer = await AsyncClient().get(address_of(result.id, expires_in_s=60), headers=EVENTS)
    assert [chunk async for chunk in answer.streaming_content] == []


@pytest.mark.usefixtures("often", "browser")
async def test_a_stream_ends_where_the_server_does_not_answer(configure: Configure):
    configure(url="unix:///nowhere/at/all", timeout_s=0.1)
    answer: Any = await AsyncClient().get(address_of("some-task", expires_in_s=60), headers=EVENTS)
    assert await asyncio.wait_for(_all_of(answer), 60) == []


async def _all_of(answer: Any) -> list[bytes]:
    return [chunk async for chunk in answer.streaming_content]


# -- For programs ------------------------------------------------------------------------------------------------------


def test_status_of_a_task_is_the_same_for_its_address_and_for_views_of_the_project(project: Configure, browser: Client):
    result = declare(import_pages).enqueue(3)
    source = status_address(result)
    waiting = {"status": "READY", "finished": False, "progress": None}
    assert browser.get(source).json() == status_of(result) == status_of(result.id) == waiting

    work()

    done = {"status": "SUCCESSFUL", "finished": True, "progress": {"done": 3, "total": 4, "note": "page <3>"}}
    answer = browser.get(source)
    assert answer.json() == status_of(result) == done
    assert (answer["Content-Type"], "no-store" in answer["Cache-Control"]) == ("application/json", True)


def test_status_has_neither_arguments_nor_errors(project: Configure, browser: Client):
    def fail(secret: str) -> None:
        raise ValueError(secret)

    result = declare(max_attempts=1)(fail).enqueue("s3cret")
    work()

    answer = browser.get(status_address(result))
    assert answer.json() == {"status": "FAILED", "finished": True, "progress": None}
    assert b"s3cret" not in answer.content


def test_addresses_of_a_status_are_signed_and_expire(project: Configure, browser: Client):
    result = declare(import_pages).enqueue(1)
    source = status_address(result.id, expires_in_s=60)
    assert browser.get(source).status_code == 200
    assert browser.get(source[:-3] + "x/").status_code == 403
    assert browser.get(f"/tasks/status/{result.id}/").status_code == 403
    assert browser.get(status_address(result, expires_in_s=0)).status_code == 410
    assert browser.post(source).status_code == 405


def test_status_of_an_unknown_task_is_not_found(project: Configure, browser: Client):
    assert status_of("of-long-ago") is None
    assert browser.get(status_address("of-long-ago")).status_code == 404


def test_status_is_not_available_without_redis(project: Configure, browser: Client, settings: Any):
    source = status_address(declare(import_pages).enqueue(1))
    settings.RSMQ = {**settings.RSMQ, "CONNECTIONS": {"default": {"URL": "redis://127.0.0.1:1/0"}}}
    assert browser.get(source).status_code == 503
