"""Times of Redis as Django's: aware or naive according to the settings, and None for an invalid time."""

from __future__ import annotations

from datetime import UTC, datetime

from django.conf import settings
from django.utils.timezone import get_default_timezone, make_naive

from ..core.numbers import read_epoch_ms


def as_datetime(epoch_ms: float | str | None) -> datetime | None:
    """Return epoch milliseconds as a time; None when there is none, or when another program wrote something else."""
    known_ms = read_epoch_ms(epoch_ms)
    if known_ms is None:
        return None
    time = datetime.fromtimestamp(known_ms / 1000, UTC)
    return time if settings.USE_TZ else make_naive(time, get_default_timezone())
