"""The task of `flights_pipeline`: one call for each of the 336,776 flights, so it does next to nothing."""

from rsmq_django.tasks import task


class Cancelled(Exception):
    """The flight never left."""


@task(queue_name="dep-EWR", max_attempts=1, result_ttl_s=0)
def record_departure(carrier: str, flight: str, dep_time: str | None, time_hour: str) -> None:
    """Take note of one departure. A cancelled flight fails, so that there is something to analyse."""
    if dep_time is None:
        raise Cancelled(f"flight {carrier} {flight} of {time_hour} was cancelled")
