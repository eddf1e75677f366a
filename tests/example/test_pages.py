"""The public pages: their content, the calls that they enqueue, and input that they refuse."""

import datetime as dt
import re
from html import unescape
from typing import Any

import pytest
from django.test import Client
from django.urls import reverse

from example_project.flightboard import gates, tasks
from example_project.flightboard.models import DayReport, FinishedTask, Flight, Tracker, Weather
from rsmq_django.queues import get_queue

from .conftest import CANCELLED, DIVERTED

BOARD = reverse("flightboard:board")


@pytest.fixture
def browser(db: None) -> Client:
    return Client()


def page(browser: Client, url: str = BOARD) -> str:
    response = browser.get(url)
    assert response.status_code == 200
    return response.content.decode()


def test_empty_board_explains_how_to_fill_it(browser: Client) -> None:
    assert "replay_day --day 2013-02-08" in page(browser)


def test_board_shows_found_and_missing_data(browser: Client, make_flight: Any) -> None:
    make_flight(number=1)
    make_flight(number=2, gate="C12", departure_delay_min=0)
    make_flight(number=3, departure_delay_min=102)
    make_flight(number=4, **CANCELLED)
    make_flight(number=5, departure_delay_min=0, **DIVERTED)

    html = page(browser)

    words = re.findall(r'<td class="remark">(.*?)</td>', html)
    assert words == ["Diverted", "Cancelled", "Delayed 1 h 42", "On time", "…"]
    assert "C12" in html
    assert "George Bush Intercontinental" in html


def test_board_shows_how_punctual_the_airlines_were_once_the_day_is_reported(browser: Client, make_flight: Any) -> None:
    flight = make_flight()
    assert "Landed less than" not in page(browser)

    DayReport.objects.create(day=flight.day, counts=[["AA", 3, 1], ["UA", 8, 6]])

    shown = re.findall(r'<abbr title="([^"]+)">\w\w</abbr></b> (\d+) %', page(browser))
    assert shown == [("United Air Lines Inc.", "75"), ("American Airlines Inc.", "33")]


def test_tracker_has_a_bar_that_its_policy_allows(browser: Client, make_flight: Any) -> None:
    make_flight()
    answer = browser.post(reverse("flightboard:track"), {"flight": "UA1545", "day": "2013-01-01"}, follow=True)

    html = answer.content.decode()
    assert answer["Content-Security-Policy"].startswith("default-src 'self'; ")
    assert re.search(r"<rsmq-task-progress\b", html)
    assert not re.search(r"<script(?![^>]*\ssrc=)|<style|\son\w+=|\sstyle=", html), "what the policy would refuse"
    loaded = re.findall(r'<(?:script|link)\b[^>]*\b(?:src|href)="([^"]+)"', html)
    assert any("progress" in address for address in loaded)
    assert all(address.startswith("/") for address in loaded)
    source = re.search(r'data-src="([^"]+)"', html)
    assert source is not None
    assert browser.get(unescape(source[1])).status_code == 200


def test_board_shows_the_depth_of_the_queues_in_one_round_trip(
    browser: Client, make_flight: Any, django_capture_on_commit_callbacks: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    with django_capture_on_commit_callbacks(execute=True):
        make_flight()
    page(browser)  # the server learns the scripts now, unless another test was first
    connection = get_queue("default").client.connection
    round_trips: list[int] = []
    real = connection.exchange

    def exchange(commands: Any) -> Any:
        round_trips.append(len(commands))
        return real(commands)

    monkeypatch.setattr(connection, "exchange", exchange)

    html = page(browser)

    assert re.search(r'<th scope="row">notices</th>\s*<td>1</td>\s*<td>0</td>\s*<td>1</td>\s*<td>0</td>', html)
    assert round_trips == [8]


def test_work_log_names_dead_letters_with_their_reason(browser: Client, make_flight: Any) -> None:
    flight = make_flight()
    FinishedTask.objects.create(
        task_id="1", name="announce_delay", queue_name="notices", flight_id=flight.pk, has_succeeded=False, attempts=3,
        error="NeverDeparted",
    )  # fmt: skip

    html = page(browser, reverse("flightboard:live"))

    assert "dead letter: NeverDeparted, 3 attempts" in html
    assert "<b>UA1545</b>" in html


def test_nothing_that_was_stored_is_written_into_the_page_as_markup(browser: Client, make_flight: Any) -> None:
    make_flight(gate="<b>1")
    Flight.objects.update(carrier="<i", destination="<u>")
    FinishedTask.objects.create(
        task_id="1",
        name="<script>alert(1)</script>",
        queue_name="default",
        has_succeeded=False,
        attempts=1,
        error="<img>",
    )
    Weather.objects.create(station="<s>", observed_at=dt.datetime(2013, 1, 1, tzinfo=dt.UTC))

    html = page(browser)

    assert not re.search(r"<(b>1|i1545|u>|script>|s>)", html)
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in html


@pytest.mark.parametrize("url", [BOARD, reverse("flightboard:live"), "/admin/login/"])
def test_pages_forbid_and_avoid_inline_scripts_and_styles(browser: Client, make_flight: Any, url: str) -> None:
    make_flight()

    response = browser.get(url)

    assert response.headers["Content-Security-Policy"].startswith("default-src 'self';")
    html = response.content.decode()
    assert not re.search(r"<style|\sstyle=|\son\w+=|<script(?![^>]*\ssrc=)", html)


def test_board_stays_up_when_the_server_of_the_queues_is_down(browser: Client, settings: Any) -> None:
    settings.RSMQ = settings.RSMQ | {"CONNECTIONS": {"default": {"URL": "unix:///nowhere/to/be/found"}}}

    assert "The queues cannot be read" in page(browser)


def test_wish_is_enqueued_and_leads_to_its_page(
    browser: Client, make_flight: Any, django_capture_on_commit_callbacks: Any
) -> None:
    make_flight(number=1)

    with django_capture_on_commit_callbacks(execute=True):
        response = browser.post(reverse("flightboard:track"), {"flight": " ua 1545 "})

    tracker = Tracker.objects.get()
    assert response["Location"] == reverse("flightboard:tracker", kwargs={"pk": tracker.pk})
    assert (tracker.code, tracker.day) == ("UA1545", dt.date(2013, 1, 1))
    assert tasks.tell_when_landed.get_result(tracker.task_id).kwargs == {"tracker_id": str(tracker.pk)}
    assert "Not on the board yet" in page(browser, response["Location"])


@pytest.mark.parametrize("text", ["", "1545", "UA15456", "<b>", "UA-1545"])
def test_text_that_is_not_a_flight_is_explained_and_nothing_is_enqueued(
    browser: Client, make_flight: Any, text: str
) -> None:
    make_flight()

    response = browser.post(reverse("flightboard:track"), {"flight": text})

    assert re.search(r'<p class="error" id="id_flight_error">\w', response.content.decode())
    assert get_queue("default").attributes().total_sent == 0


def test_wish_without_a_day_on_the_board_is_explained(browser: Client) -> None:
    response = browser.post(reverse("flightboard:track"), {"flight": "UA1545"})

    assert "Start a replay first" in response.content.decode()


def test_address_of_the_form_leads_to_the_board(browser: Client) -> None:
    assert browser.get(reverse("flightboard:track"))["Location"] == BOARD


def test_forged_wish_is_refused(make_flight: Any) -> None:
    make_flight()

    response = Client(enforce_csrf_checks=True).post(reverse("flightboard:track"), {"flight": "UA1545"})

    assert response.status_code == 403


def test_answer_that_is_not_kept_any_more_is_explained(browser: Client) -> None:
    tracker = Tracker.objects.create(day=dt.date(2013, 1, 1), carrier="UA", number=1545, task_id="of-long-ago")

    html = page(browser, reverse("flightboard:tracker-live", kwargs={"pk": tracker.pk}))

    assert "not kept any more" in html
    assert "data-live-done" in html


def test_every_model_can_be_viewed_in_the_admin(admin_client: Client, make_flight: Any) -> None:
    make_flight(gate=gates.ask_for_gate("UA1545", "EWR", call=3))

    for name in ("flight", "delaynotice", "claim", "tracker", "weather", "finishedtask"):
        assert admin_client.get(reverse(f"admin:flightboard_{name}_changelist")).status_code == 200
