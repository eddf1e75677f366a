"""Settings of `make demo-spark`: those of the example project, with a queue for each airport and room for a year."""

from typing import Any

from example_project.history.flights import AIRPORTS
from example_project.settings import *  # noqa: F403 - all of them
from example_project.settings import INSTALLED_APPS, RSMQ, STATE_DIR

QUEUES: Any = RSMQ["QUEUES"]

INSTALLED_APPS = [*INSTALLED_APPS, "example_project.history"]
RSMQ = {
    **RSMQ,
    "MIDDLEWARE": [],
    "QUEUES": {**QUEUES, **{f"dep-{airport}": {} for airport in AIRPORTS}},
    # All 336,776 attempts wait for the archive: 60 MB.
    "EVENTS": {"RECORD": "all", "MAX_LENGTH": 1_000_000},
    "PIPELINE": {
        "LAKE": STATE_DIR / "lake",
        "OBJECTIVES": {f"dep-{airport}": {"success": 0.97, "wait_p95_ms": 60_000} for airport in AIRPORTS},
    },
}
