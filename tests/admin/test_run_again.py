"""Running the call of a message, a dead letter or a result again, with the same or other arguments."""

import json
from collections.abc import Callable, Iterator
from datetime import datetime
from enum import Enum
from html import unescape
from typing import Any, Literal

import pytest
from django.contrib.admin.models import LogEntry
from django.contrib.admin.utils import quote
from django.test import Client as Browser

from rsmq_django.admin.task_forms import CallForm
from rsmq_django.core import Queue
from rsmq_django.core.queue.browse import page
from rsmq_django.tasks import task
from rsmq_django.tasks.sealing import seal
from rsmq_django.tasks.task import _tasks
from tests.admin.pages import text_of, told
from tests.redis_server import PrivateServer

pytestmark = pytest.mark.usefixtures("commits")


class Colour(Enum):
    RED = "red"
    BLUE = "blue"


@pytest.fixture
def commits(django_capture_on_commit_callbacks: Any) -> Iterator[None]:
    """Calls are sent when the block of a test ends, see `posted`."""
    global _capture
    _capture = django_capture_on_commit_callbacks
    yield


_capture: Any = None


def posted(browser: Browser, url: str, data: dict[str, Any]) -> Any:
    with _capture(execute=True):
        return browser.post(url, data)


def declared(function: Callable[..., Any], **options: Any) -> Iterator[Any]:
    function.__module__, function.__qualname__ = "shop.tasks", "charge"
    yield task(queue_name="mail", **options)(function)
    _tasks.pop("shop.tasks.charge")


@pytest.fixture
def charge() -> Iterator[Any]:
    def charge(order_id: int, note: str = "none", *, order: dict[str, Any] | None = None, token: str = "") -> None:
        """Do nothing."""

    yield from declared(charge)


def calls_in(queue: Queue) -> list[dict[str, Any]]:
    found = queue.client.run(page("rsmq", queue.name, body_bytes=100_000)).messages
    return [json.loads(message.body) for message in found]


def letter(
    queue: Queue, server: PrivateServer, *args: Any, origin: str = "mail", meta: Any = None, **kwargs: Any
) -> str:
    """Have a dead letter, and return the address of its page."""
    call = {"task": "shop.tasks.charge", "id": "t7", "args": args, "kwargs": kwargs} | ({"meta": meta} if meta else {})
    died = queue.send(json.dumps(call).encode())
    record = {"reason": "gave_up", "queue": origin, "task": "shop.tasks.charge", "error": "builtins.ValueError"}
    server.redis.hset(f"rsmq::dead:{queue.name}", died, json.dumps(record))
    return f"/admin/rsmq/message/{quote(f'{queue.name}/{died}')}/"


# -- As it was --------------------------------------------------------------------------------------------------------


def test_the_call_of_a_dead_letter_is_run_again_as_it_was(
    browser: Browser, mail: Queue, dead: Queue, charge: Any, server: PrivateServer
):
    url = letter(dead, server, 7, token="tok_1", meta={"tags": ["order-7"], "max_attempts": 3})
    assert "Run again" in browser.get(f"{url}change/").content.decode()

    done = posted(browser, f"{url}run/", {"unchanged": "yes"})

    (call,) = calls_in(mail)
    assert (call["args"], call["kwargs"]) == ([7], {"token": "tok_1"})
    assert call["meta"] == {"tags": ["order-7"], "max_attempts": 3}
    assert call["id"] != "t7", "it is a new call"
    assert calls_in(dead), "the dead letter stays"
    shown = browser.get(done.url)
    assert told(shown) == [
        f'Task <a href="/admin/rsmq/result/{quote(call["id"])}/change/">{call["id"]}</a> was enqueued.'
    ]
    assert browser.get(f"/admin/rsmq/result/{quote(call['id'])}/change/").status_code == 200
    entry = LogEntry.objects.get()
    assert entry.change_message == f"Ran shop.tasks.charge again as task {call['id']}"
    assert "tok_1" not in entry.change_message


def test_the_call_of_a_result_is_run_again(browser: Browser, mail: Queue, charge: Any, server: PrivateServer):
    body = json.dumps({"task": "shop.tasks.charge", "args": [], "kwargs": {"order_id": 7}})
    server.redis.hset("rsmq::result:t7", mapping={"status": "SUCCESSFUL", "queue": "mail", "body": body})
    assert "Run again" in browser.get("/admin/rsmq/result/t7/change/").content.decode()

    posted(browser, "/admin/rsmq/result/t7/run/", {"unchanged": "yes"})

    assert [call["kwargs"] for call in calls_in(mail)] == [{"order_id": 7}]
    assert "Ran shop.tasks.charge again" in text_of(browser.get("/admin/rsmq/result/t7/history/"))


def test_a_call_is_sent_to_its_earlier_queue_and_priority(
    browser: Browser, mail: Queue, dead: Queue, charge: Any, server: PrivateServer
):
    urgent = Queue("mail-p10", mail.client, realtime=True)
    urgent.create()

    posted(browser, letter(dead, server, 7, origin="mail-p10") + "run/", {"unchanged": "yes"})

    assert calls_in(urgent) and not calls_in(mail)


def test_a_call_whose_queue_was_removed_goes_to_the_queue_of_its_task(
    browser: Browser, mail: Queue, dead: Queue, charge: Any, server: PrivateServer
):
    posted(browser, letter(dead, server, 7, origin="post") + "run/", {"unchanged": "yes"})

    assert len(calls_in(mail)) == 1


def test_arguments_that_no_longer_fit_are_reported_and_nothing_is_sent(
    browser: Browser, mail: Queue, dead: Queue, charge: Any, server: PrivateServer
):
    url = letter(dead, server, 7, colour="red")

    done = posted(browser, f"{url}run/", {"unchanged": "yes"})

    assert "colour" in told(browser.get(done.url))[0] and not calls_in(mail)
    assert "does not take these arguments of the earlier call any more: colour" in text_of(browser.get(f"{url}run/"))
    posted(browser, f"{url}run/", {"argument-order_id": "7", "argument-note": "", "argument-token": ""})
    assert [call["kwargs"] for call in calls_in(mail)] == [{"order_id": 7}]


def test_a_task_that_is_not_declared_is_not_offered(browser: Browser, mail: Queue, dead: Queue, server: PrivateServer):
    url = letter(dead, server, 7)

    assert "Run again" not in browser.get(f"{url}change/").content.decode()
    assert "not declared" in told(browser.get(posted(browser, f"{url}run/", {"unchanged": "yes"}).url))[0]


@pytest.mark.parametrize("origin", ["mail", "gone"])
def test_an_unsigned_call_is_not_signed_on_behalf_of_its_writer(
    browser: Browser, mail: Queue, dead: Queue, charge: Any, server: PrivateServer, settings: Any, origin: str
):
    settings.RSMQ = {**settings.RSMQ, "QUEUES": {"default": {}, "mail": {"SIGNING_KEYS": ["k" * 32]}}}
    url = letter(dead, server, 7, origin=origin)

    posted(browser, f"{url}run/", {"unchanged": "yes"})
    answer = posted(browser, f"{url}run/", {"argument-order_id": "7"})

    assert not calls_in(mail)
    assert "cannot be read" in " ".join(told(browser.get(answer.url)))


def test_a_signed_call_is_run_again(browser: Browser, mail: Queue, charge: Any, server: PrivateServer, settings: Any):
    settings.RSMQ = {**settings.RSMQ, "QUEUES": {"default": {}, "mail": {"SIGNING_KEYS": ["k" * 32]}}}
    charge.using(queue_name="mail")
    from rsmq_django.conf.settings import get_settings

    body = seal(
        b'{"task": "shop.tasks.charge", "args": [7]}', get_settings().queue("mail"), name="mail", namespace="rsmq"
    )
    server.redis.hset("rsmq::result:t7", mapping={"status": "FAILED", "queue": "mail", "body": body})

    posted(browser, "/admin/rsmq/result/t7/run/", {"unchanged": "yes"})

    (call,) = calls_in(mail)
    assert json.loads(call["signed"])["args"] == [7]


# -- With other arguments ---------------------------------------------------------------------------------------------


def form_of(browser: Browser, url: str) -> dict[str, str]:
    """Return what the form would send if nobody typed anything."""
    form = browser.get(url).context["forms"][0]
    return {form[name].html_name: _as_sent(form[name]) for name in form.fields}


def _as_sent(field: Any) -> str:
    value = field.field.widget.format_value(field.value())
    return str((value[0] if isinstance(value, list) else value) or "")


def test_the_form_has_the_arguments_of_the_call(
    browser: Browser, mail: Queue, dead: Queue, charge: Any, server: PrivateServer
):
    url = letter(dead, server, 7, "two\nlines", order={"number": 1}) + "run/"

    sent = form_of(browser, url)
    assert sent == {
        "argument-order_id": "7",
        "argument-note": "two\nlines",
        "argument-order": '{"number": 1}',
        "argument-token": "",
    }
    posted(browser, url, sent | {"argument-order_id": "8", "argument-note": "two\r\nlines", "delay_s": ""})

    (call,) = calls_in(mail)
    assert call["kwargs"] == {"order_id": 8, "note": "two\nlines", "order": {"number": 1}}
    assert LogEntry.objects.get().change_message == f"Edited and ran shop.tasks.charge as task {call['id']}"


def test_unchanged_arguments_are_sent_exactly_as_before(
    browser: Browser, mail: Queue, dead: Queue, charge: Any, server: PrivateServer
):
    odd = {"order_id": "7", "note": "", "order": {"a": 1e22, "b": [None, "\u202e"]}, "token": None}
    url = letter(dead, server, **odd) + "run/"

    page_text = browser.get(url).content.decode()
    assert "\u202e" not in page_text and "\\u202e" in unescape(page_text)
    posted(browser, url, form_of(browser, url))

    assert calls_in(mail)[0]["kwargs"] == odd


def test_secrets_never_reach_the_page_and_stay_in_the_call(
    browser: Browser, mail: Queue, dead: Queue, charge: Any, server: PrivateServer
):
    order = {"number": 1, "password": "hunter2", "url": "redis://u:hunter2@host"}
    url = letter(dead, server, 7, token="hunter2", order=order) + "run/"

    assert "hunter2" not in browser.get(url).content.decode()
    sent = form_of(browser, url)
    assert sent["argument-token"] == "" and "•••" in sent["argument-order"]
    changed = json.loads(sent["argument-order"]) | {"number": 2}
    refused = posted(browser, url, sent | {"argument-order_id": "x"})
    assert "hunter2" not in refused.content.decode()
    posted(browser, url, sent | {"argument-order": json.dumps(changed)})

    (call,) = calls_in(mail)
    assert call["kwargs"] == {"order_id": 7, "token": "hunter2", "order": order | {"number": 2}}


def test_a_secret_can_be_replaced_but_its_mask_is_not_a_value(
    browser: Browser, mail: Queue, dead: Queue, charge: Any, server: PrivateServer
):
    url = letter(dead, server, 7, token="old", order={"cards": [{"password": "p"}, {"password": "q"}]}) + "run/"
    sent = form_of(browser, url)

    refused = posted(browser, url, sent | {"argument-order": '{"cards": [{"password": "•••"}]}'})
    assert "hides a value of the earlier call" in text_of(refused) and not calls_in(mail)
    posted(browser, url, sent | {"argument-token": "new", "argument-order": '{"cards": []}'})

    assert calls_in(mail)[0]["kwargs"] == {"order_id": 7, "token": "new", "order": {"cards": []}}


@pytest.mark.parametrize(
    ("annotation", "value", "shown", "typed", "sent"),
    [
        (int, 7, "7", "8", 8),
        (float, 1.5, "1.5", "2", 2.0),
        (bool, False, "false", "true", True),
        (str, "a", "a", "b", "b"),
        (int | None, None, "", "8", 8),
        (list[int], [1], "[1]", "[1, 2]", [1, 2]),
        (dict[str, int], {"a": 1}, '{"a": 1}', "{}", {}),
        (Literal["up", 2, None], 2, "2", "up", "up"),
        (Colour, "red", "RED", "BLUE", "blue"),
        (datetime, "2026-11-21T20:00:00.5+00:00", "2026-11-21T14:00:00",
         "2026-11-22T10:00:00", "2026-11-22T10:00:00-06:00"),
        (int | str, 7, "7", '"7"', "7"),
        (int, "seven", '"seven"', "8", 8),
        (None, {"a": None}, '{"a": null}', "null", None),
    ],
)  # fmt: skip
def test_an_argument_has_the_field_that_its_annotation_asks_for(
    browser: Browser, mail: Queue, dead: Queue, server: PrivateServer, annotation: Any, value: Any, shown: str,
    typed: str, sent: Any,
):  # fmt: skip
    def charge(what: Any) -> None: ...

    charge.__annotations__ = {"what": annotation} if annotation else {}
    for _each in declared(charge):
        url = letter(dead, server, value) + "run/"
        assert form_of(browser, url)["argument-what"] == shown

        posted(browser, url, form_of(browser, url))
        posted(browser, url, {"argument-what": typed})

    found = [call["kwargs"]["what"] for call in calls_in(mail)]
    assert found == [value, sent] and [type(each) for each in found] == [type(value), type(sent)]


def test_errors_are_shown_next_to_the_fields(
    browser: Browser, mail: Queue, dead: Queue, charge: Any, server: PrivateServer
):
    url = letter(dead, server, 7) + "run/"

    refused = posted(browser, url, {"argument-order_id": "x", "argument-order": "[1]"})

    assert set(refused.context["forms"][0].errors) == {"order_id", "order"}
    assert "Enter a JSON object." in text_of(refused) and not calls_in(mail)


def test_arguments_behind_the_named_ones_keep_their_places(
    browser: Browser, mail: Queue, dead: Queue, server: PrivateServer
):
    def charge(order_id: int, note: str = "none", *rest: int, **more: int) -> None: ...

    for _each in declared(charge):
        url = letter(dead, server, 7, "a", 1, 2, x=3) + "run/"
        posted(browser, url, form_of(browser, url) | {"argument-order_id": "8"})

    (call,) = calls_in(mail)
    assert (call["args"], call["kwargs"]) == ([8, "a", 1, 2], {"x": 3})


def test_a_task_that_takes_batches_has_a_form_for_one_call(
    browser: Browser, mail: Queue, dead: Queue, server: PrivateServer
):
    def charge(calls: list[Any]) -> None: ...

    for _each in declared(charge, batch=10):
        url = letter(dead, server, 7, note="a") + "run/"
        posted(browser, url, form_of(browser, url) | {"argument-args": "[8]"})

    (call,) = calls_in(mail)
    assert (call["args"], call["kwargs"]) == ([8], {"note": "a"})


# -- Who may ----------------------------------------------------------------------------------------------------------


def test_running_needs_its_permission_and_editing_the_one_to_see_bodies(
    browser_of: Callable[..., Browser], mail: Queue, dead: Queue, charge: Any, server: PrivateServer
):
    url = letter(dead, server, 7)
    viewer, sender = browser_of("view_message", "view_body"), browser_of("view_message", "send_message")

    assert "Run again" not in viewer.get(f"{url}change/").content.decode()
    assert viewer.post(f"{url}run/", {"unchanged": "yes"}).status_code == 403
    assert "Edit and run" not in sender.get(f"{url}change/").content.decode()
    assert sender.get(f"{url}run/").status_code == 403
    assert sender.post(f"{url}run/", {"argument-order_id": "8"}).status_code == 403
    assert browser_of("send_message", "view_body").post(f"{url}run/", {"unchanged": "yes"}).status_code == 403
    assert not calls_in(mail)

    posted(sender, f"{url}run/", {"unchanged": "yes"})
    assert len(calls_in(mail)) == 1


def test_running_again_wants_a_token_of_the_page(
    mail: Queue, dead: Queue, charge: Any, server: PrivateServer, browser: Browser
):
    strict = Browser(enforce_csrf_checks=True)
    strict.cookies = browser.cookies

    assert strict.post(letter(dead, server, 7) + "run/", {"unchanged": "yes"}).status_code == 403
    assert not calls_in(mail)


# -- Arguments by position --------------------------------------------------------------------------------------------


@pytest.fixture
def by_position() -> Iterator[Any]:
    def charge(text: str, first: int = 1, second: int = 2, /, *rest: int) -> None:
        """Do nothing."""

    yield from declared(charge)


@pytest.mark.parametrize(
    ("typed", "sent"),
    [
        ({"second": "7"}, ["", 1, 7]),
        ({"first": "5", "rest": "[9]"}, ["", 5, 2, 9]),
        ({"first": "5"}, ["", 5]),
        ({}, [""]),
    ],
)
def test_an_empty_field_moves_no_other_argument(by_position: Any, typed: dict[str, str], sent: list[Any]):
    form = CallForm(by_position, {f"argument-{name}": text for name, text in typed.items()}, args=[""])

    assert form.is_valid(), form.errors
    assert form.arguments() == (sent, {})
