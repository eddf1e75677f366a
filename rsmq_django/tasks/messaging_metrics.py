"""OpenTelemetry metrics of sending and running, by the semantic conventions for messaging.

Imported only when tracing is on. Without a meter provider of the project nothing is kept or exported.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any

from opentelemetry.metrics import Counter, Histogram, get_meter

from ..conf.instrumented import instrumentation

#: Bounds of the histograms in seconds, as the conventions advise.
BOUNDS_S = (0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1, 2.5, 5, 7.5, 10)


class MessagingMetrics:
    """The instruments, and what is recorded with them."""

    def __init__(self) -> None:
        meter = get_meter("rsmq_django", meter_provider=instrumentation.meter_provider)
        self._sent: Counter = meter.create_counter(
            "messaging.client.sent.messages", "{message}", "Number of messages that senders tried to send."
        )
        self._send_s: Histogram = meter.create_histogram(
            "messaging.client.operation.duration",
            "s",
            "Duration of sending.",
            explicit_bucket_boundaries_advisory=BOUNDS_S,
        )
        self._consumed: Counter = meter.create_counter(
            "messaging.client.consumed.messages", "{message}", "Number of messages that were given to functions."
        )
        self._process_s: Histogram = meter.create_histogram(
            "messaging.process.duration", "s", "Duration of processing.", explicit_bucket_boundaries_advisory=BOUNDS_S
        )

    def sent(self, attributes: Mapping[str, Any], count: int, took_s: float | None) -> None:
        """Record that messages were sent; `took_s` is None when the duration is not that of these messages alone."""
        self._sent.add(count, attributes)
        if took_s is not None:
            self._send_s.record(took_s, attributes)

    def processed(self, attributes: Mapping[str, Any], count: int, took_s: float) -> None:
        """Record that one call of a function has ended, for one message or for a batch."""
        self._consumed.add(count, attributes)
        self._process_s.record(took_s, attributes)


@cache
def messaging_metrics() -> MessagingMetrics:
    """Return the instruments of this process."""
    return MessagingMetrics()
