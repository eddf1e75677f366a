"""Charts of all queues are read on a thread, so that no page waits long for them."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from rsmq_django.live import history
from tests.support import wait_until


def test_results_that_no_page_requests_again_are_not_cached(monkeypatch: pytest.MonkeyPatch):
    go_on = threading.Event()
    monkeypatch.setattr(history, "WAIT_S", 0.0)
    monkeypatch.setattr(history, "past_together", lambda places, span: go_on.wait(60))
    pages: list[list[Any]] = [[("default", number)] for number in range(5)]
    assert [history.past_together_soon(places, "hour") for places in pages] == [None] * 5
    started = list(history._readings.values())

    go_on.set()
    wait_until(lambda: not any(reading.is_alive() for reading in started))
    history.past_together_soon([], "hour")

    assert not {*started} & {*history._readings.values()}
