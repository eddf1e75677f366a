"""The tables of the lake: columns and retention.

All are partitioned by `dt`, the day in UTC. Every reader passes its schema, so empty tables can be read, too.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from . import dead_letters, drain, events, topic_log
from .columns import Column, columns
from .files import GROUP_ROWS

#: Events that are dated after the server's clock by more are stored on the day of their archiving, and not counted: the
#: clock was ahead once, and Redis gives all later events that time.
MOST_AHEAD_S = 3600


@dataclass(frozen=True, slots=True)
class LakeTable:
    """One table of the lake."""

    name: str
    columns: tuple[Column, ...]
    #: Days after which `expire` removes a day.
    keep_days: int
    #: Rows of a row group in the newest day: a reader of some hours skips the others. Other days are read as a whole.
    newest_rows: int = GROUP_ROWS

    @property
    def time(self) -> str:
        """Return the column with the time of a row; "" if the table has only days."""
        return next((column.name for column in self.columns if column.kind == "TIMESTAMP"), "")


#: Error texts may contain personal data, and a month is long enough to investigate a failure.
EVENTS = LakeTable("events", events.SCHEMA, 30)
#: Sums of the events (sums.py), from which all that follows is computed: as long as the windows and the events.
FIVE_MINUTES = LakeTable(
    "five_minutes",
    columns(
        "at TIMESTAMP, queue STRING, task STRING, event STRING, is_first BOOLEAN, n BIGINT, runs BIGINT, "
        "run_us BIGINT, run_s_squared DOUBLE, body_bytes BIGINT, wait_hist MAP<INT,BIGINT>, run_hist MAP<INT,BIGINT>, "
        "arrivals MAP<INT,BIGINT>, workers ARRAY<STRING>"
    ),
    90,
    newest_rows=1000,
)
#: A little over a year, so that a month can be compared with the same month of last year. A few MB a day at most.
HOURLY = LakeTable(
    "hourly",
    columns(
        "hour TIMESTAMP, queue STRING, task STRING, attempts BIGINT, first_attempts BIGINT, succeeded BIGINT, "
        "retried BIGINT, dead BIGINT, released BIGINT, lost BIGINT, cancelled BIGINT, busy_us BIGINT, "
        "run_s_squared DOUBLE, body_bytes BIGINT, workers INT, wait_hist MAP<INT,BIGINT>, run_hist MAP<INT,BIGINT>, "
        "wait_p95_us DOUBLE, run_p95_us DOUBLE"
    ),
    400,
)
#: A quarter of a year, for all that follow.
FAILURES = LakeTable(
    "failures",
    columns(
        "task STRING, fingerprint STRING, error_type STRING, n BIGINT, retried BIGINT, dead BIGINT, "
        "first_at TIMESTAMP, last_at TIMESTAMP, sample STRING, sample_task_id STRING, queues ARRAY<STRING>, "
        "workers INT, worker_names ARRAY<STRING>"
    ),
    90,
)
SLO = LakeTable(
    "slo",
    columns(
        "at TIMESTAMP, queue STRING, objective STRING, window STRING, total BIGINT, bad BIGINT, target DOUBLE, "
        "burn_rate DOUBLE, budget_left DOUBLE"
    ),
    90,
)
CAPACITY = LakeTable(
    "capacity",
    columns(
        "queue STRING, attempts BIGINT, arrivals_per_s DOUBLE, mean_run_s DOUBLE, run_cv_squared DOUBLE, load DOUBLE, "
        "slots_seen INT, slots_needed INT, wait_target_s DOUBLE, quantile DOUBLE, silent_because STRING"
    ),
    90,
)
ANOMALIES = LakeTable(
    "anomalies",
    columns(
        "hour TIMESTAMP, queue STRING, task STRING, metric STRING, value DOUBLE, median DOUBLE, mad DOUBLE, z DOUBLE, "
        "n BIGINT"
    ),
    90,
)
DEPTH = LakeTable(
    "depth",
    columns(
        "taken_at TIMESTAMP, queue STRING, waiting BIGINT, delayed BIGINT, in_flight BIGINT, oldest_age_us BIGINT, "
        "body_bytes BIGINT, max_receive_count INT"
    ),
    90,
)
DEAD_LETTERS = LakeTable("dead_letters", dead_letters.SCHEMA, 90)
#: The runs of the steps (runs.py).
RUNS = LakeTable(
    "runs",
    columns(
        "id STRING, step STRING, started_at TIMESTAMP, seconds DOUBLE, rows_in BIGINT, rows_out BIGINT, lost BIGINT, "
        "offsets STRING, error STRING, exit_code INT"
    ),
    90,
)
TABLES = (EVENTS, FIVE_MINUTES, HOURLY, FAILURES, SLO, CAPACITY, ANOMALIES, DEPTH, DEAD_LETTERS, RUNS)


def drained(queue: str) -> LakeTable:
    """Return the table with the drained messages of a queue. They do not expire."""
    return LakeTable(f"drained/{queue}", drain.SCHEMA, 0)


def archived_topic(name: str) -> LakeTable:
    """Return the table with the messages of a topic. They do not expire."""
    # Names of topics may have any characters; a tilde means the same in paths and in addresses.
    safe = re.sub(r"[^A-Za-z0-9_.-]|^\.", lambda found: f"~{found[0].encode().hex('~').upper()}", name)
    return LakeTable(f"topics/{safe}", topic_log.SCHEMA, 0)
