"""Which tests run where, and flights to test with."""

import datetime as dt
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from django.conf import settings

from tests.redis_server import PrivateServer

RUNS_WITH_EXAMPLE_SETTINGS = settings.SETTINGS_MODULE == "tests.example.settings"
RUNNER = "test_example.py"

# In the main run only the module that starts the other process; there, everything but that module.
collect_ignore = [RUNNER] if RUNS_WITH_EXAMPLE_SETTINGS else []
collect_ignore_glob = [] if RUNS_WITH_EXAMPLE_SETTINGS else ["test_[!e]*.py"]


@pytest.fixture(autouse=RUNS_WITH_EXAMPLE_SETTINGS)
def queues(server: PrivateServer) -> Iterator[None]:
    """The queues of the site, empty."""
    from example_project.flightboard.stock import create_queues

    create_queues()
    yield


@pytest.fixture
def flight_fields() -> dict[str, Any]:
    """UA1545 of New Year's Day: two minutes late off the gate, eleven minutes late in Houston."""
    scheduled = dt.datetime(2013, 1, 1, 10, 15, tzinfo=dt.UTC)
    return {
        "day": dt.date(2013, 1, 1),
        "carrier": "UA",
        "number": 1545,
        "tail_number": "N14228",
        "origin": "EWR",
        "destination": "IAH",
        "scheduled_departure": scheduled,
        "departed_at": scheduled + dt.timedelta(minutes=2),
        "landed_local": dt.time(8, 30),
        "arrival_delay_min": 11,
    }


@pytest.fixture
def make_flight(db: None, flight_fields: dict[str, Any]) -> Callable[..., Any]:
    """Save a flight like UA1545 with some fields changed. Inside a test's transaction this sends nothing."""
    from example_project.flightboard.models import Flight

    def make(**changes: Any) -> Flight:
        return Flight.objects.create(**flight_fields | changes)

    return make


CANCELLED = {"departed_at": None, "landed_local": None, "arrival_delay_min": None}
DIVERTED = {"arrival_delay_min": None}
