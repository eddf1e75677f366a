"""The chores of a supervisor."""

from collections.abc import Sequence

import pytest

from rsmq_django.core.errors import ConnectionFailed
from rsmq_django.worker.keeper import Chore


def test_a_chore_that_raises_stops_no_other_and_is_tried_again(caplog: pytest.LogCaptureFixture):
    failures = [KeyError("ours"), KeyError("ours"), None]

    def do(_: Sequence[str]) -> float:
        if failure := failures.pop(0):
            raise failure
        return 10.0

    chore = Chore("schedules", do)

    for _ in range(3):
        chore.run(["w1"])

    assert failures == []
    assert [record.levelname for record in caplog.records if record.exc_info] == ["ERROR"], "told once, with its place"
    assert "schedules: 'ours'. Trying again" in caplog.text


def test_a_server_that_is_away_is_the_trouble_of_all_chores():
    def do(_: Sequence[str]) -> float:
        raise ConnectionFailed("away")

    with pytest.raises(ConnectionFailed):
        Chore("schedules", do).run(["w1"])
