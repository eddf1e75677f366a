"""What the pipeline would have found out over ten weeks."""

from __future__ import annotations

import datetime as dt

from django.utils import timezone

from rsmq_django.pipeline.models import (
    Anomaly,
    CapacityAdvice,
    FailureGroup,
    LakeDay,
    LakeState,
    MutedFailure,
    PipelineRun,
    QueueDepth,
    SloAlarm,
    SloBurn,
    TaskHour,
)
from tests.pipeline.conftest import add_up_days

LONG_TASK = "shop.integrations_of_parcel_services.labels.print_the_label_of_the_parcel"
LONG_TEXT = "no answer from https://parcels.example.org/v3/labels?parcel=4711 within 30 seconds, the last of 5 attempts"


def remember_weeks(*, queue_with_a_long_name: str, long_error: str) -> int:
    """Fill the tables of the history; return the id of a run that failed."""
    now = timezone.now().replace(minute=0, second=0, microsecond=0)
    _tasks(now, queue_with_a_long_name)
    _depths(now, queue_with_a_long_name)
    _failures(now, queue_with_a_long_name, long_error)
    _objectives(now, queue_with_a_long_name)
    _anomalies(now, queue_with_a_long_name)
    _lake(now, queue_with_a_long_name)
    return _runs(now)


def _anomalies(now: dt.datetime, queue_with_a_long_name: str) -> None:
    for queue, task, metric, value, median, z in (
        ("mail", "shop.tasks.pay", "failure_rate", 0.43, 0.02, 7.4),
        (queue_with_a_long_name, LONG_TASK, "run_p95", 54_000_000, 120_000, 31.4),
        ("mail", "shop.tasks.pay", "attempts", 123_456, 789, None),
    ):
        Anomaly.objects.create(
            day=now.date(), hour=now, queue=queue, task=task, metric=metric, value=value, median=median, mad=1, z=z, n=9
        )  # fmt: skip


def _tasks(now: dt.datetime, queue_with_a_long_name: str) -> None:
    tasks = (("mail", "shop.tasks.pay", 1), ("mail", "shop.tasks.ship_the_parcel_to_its_customer", 2))
    tasks += ((queue_with_a_long_name, LONG_TASK, 40),)  # type: ignore[assignment]
    hours = []
    for back in [*range(36), *range(48, 70 * 24, 24)]:
        hour, attempts = now - dt.timedelta(hours=back), 400 + 37 * (back // 24 % 7) + 5 * back % 900
        for queue, task, share in tasks:
            n = attempts // share
            counts = {"first_attempts": n, "succeeded": n - n // 9, "retried": n // 10, "dead": n // 90, "attempts": n}
            counts |= {"released": 0, "lost": 0, "cancelled": 0, "busy_us": 10**8, "body_bytes": 9, "workers": 2}
            waits, runs = {str(500 + back % 9): n, "700": n // 20}, {str(600 + share * 40): n, "800": n // 30}
            hours.append(
                TaskHour(
                    day=hour.date(), hour=hour, queue=queue, task=task, run_s_squared=1, wait_hist=waits,
                    run_hist=runs, **counts,
                )
            )  # fmt: skip
    TaskHour.objects.bulk_create(hours)
    add_up_days()


def _depths(now: dt.datetime, queue_with_a_long_name: str) -> None:
    QueueDepth.objects.bulk_create(
        QueueDepth(
            day=at.date(), taken_at=at, queue=queue, waiting=40 + 9 * (back % 7), delayed=back % 5, in_flight=4,
            oldest_age_us=10**6 * (back % 11), body_bytes=4_096, max_receive_count=2,
        )
        for back in range(40)
        for at in [now - dt.timedelta(hours=back)]
        for queue in ("mail", "default", queue_with_a_long_name)
    )  # fmt: skip


def _failures(now: dt.datetime, queue_with_a_long_name: str, long_error: str) -> None:
    for name, kind, task, number, days in (
        ("payment", "builtins.ValueError", "shop.tasks.pay", 310, 30),
        ("timeout", "builtins.TimeoutError", "shop.tasks.pay", 42, 1),
        ("address", long_error, LONG_TASK, 123_456, 9),
        ("muted", "builtins.KeyError", "shop.tasks.pay", 7, 2),
    ):
        for back in range(days):
            at = now - dt.timedelta(days=back)
            FailureGroup.objects.create(
                day=at.date(), task=task, fingerprint=name, error_type=kind, n=number + 9 * (back % 5), retried=9,
                dead=0 if name == "timeout" else number - 3, first_at=at, last_at=at, workers=2,
                sample="no card 4711" if task != LONG_TASK else LONG_TEXT,
                queues=["mail"] if task != LONG_TASK else ["mail", "default", queue_with_a_long_name],
            )  # fmt: skip
    MutedFailure.objects.create(fingerprint="muted", muted_by="ada")


def _objectives(now: dt.datetime, queue_with_a_long_name: str) -> None:
    for queue, objective, left in (("mail", "wait_p95_ms", 0.61), (queue_with_a_long_name, "success", -1.25)):
        for window, rate in (("1h", 31.0), ("6h", 4.0), ("3d", 0.7)):
            SloBurn.objects.bulk_create(
                SloBurn(
                    day=at.date(), at=at, queue=queue, objective=objective, window=window, total=4_000_000, bad=31,
                    target=0.95, burn_rate=rate / (1 + back // 24 % 5), budget_left=left,
                )
                for back in range(300)
                for at in [now - dt.timedelta(hours=back)]
            )  # fmt: skip
        about = {"queue": queue, "objective": objective, "burn_rate": 31.0, "budget_left": left}
        hours, days = now - dt.timedelta(hours=3), now - dt.timedelta(days=3)
        SloAlarm.objects.create(severity="ticket", window="3d", began_at=days, ended_at=now, **about)
        failed = {"unsent": "begin:webhook", "error": "HTTPError: HTTP Error 503: Service Unavailable"}
        SloAlarm.objects.create(severity="page", window="1h", began_at=hours, **about, **failed if left < 0 else {})
    for queue, needed, reason in (
        ("mail", 6, ""),
        (queue_with_a_long_name, None, "messages wait although there are enough slots"),
    ):
        CapacityAdvice.objects.create(
            day=now.date(), queue=queue, attempts=9000, arrivals_per_s=3.2, mean_run_s=0.9, run_cv_squared=1, load=2.9,
            slots_seen=4, slots_needed=needed, wait_target_s=1, quantile=0.95, silent_because=reason,
        )  # fmt: skip


def _lake(now: dt.datetime, queue_with_a_long_name: str) -> None:
    place = "s3://lake-of-the-shop-in-eu-central-1/production/history-of-all-tasks"
    LakeState.objects.create(place=place, newest_event_at=now, published_at=now)
    tables = {"events": (30, 900_000), "five_minutes": (90, 9_000), "hourly": (70, 480)}
    for table, (days, rows) in (tables | {f"drained/{queue_with_a_long_name}": (3, 1_234_567)}).items():
        LakeDay.objects.bulk_create(
            LakeDay(
                table=table, day=now.date() - dt.timedelta(days=back), rows=rows + 31 * (back % 7) * rows // 100,
                files=1 + 40 // (back + 1), size_bytes=rows * (60 + back % 5),
            )
            for back in range(days)
        )  # fmt: skip


def _runs(now: dt.datetime) -> int:
    steps = ("archive", "snapshot", "dlq", "rollup", "analyse", "publish", "compact")
    for back in range(3):
        for number, step in enumerate(steps):
            PipelineRun.objects.create(
                run_id=f"{back}-{step}", step=step, started_at=now - dt.timedelta(hours=back, minutes=20 - number),
                seconds=31, rows_in=90_000, rows_out=90_000, lost=1234 if back and not number else 0,
                exit_code=3 if back and not number else 0,
                offsets={"rsmq::events": {"lost": 2468}} if not number else {},
            )  # fmt: skip
    failed = PipelineRun.objects.get(run_id="0-rollup")
    failed.error = (
        "OSError: s3://lake-of-the-shop/events/day=2026-11-18/part-00000-3f0e.parquet cannot be read: " + LONG_TEXT
    )
    failed.exit_code = 1
    failed.save()
    assert failed.pk is not None
    return int(failed.pk)
