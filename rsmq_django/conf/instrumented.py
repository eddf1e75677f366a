"""What OpenTelemetry's instrumentor has switched on in this process, which is before settings can be read."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

__all__ = ["Instrumentation", "instrumentation"]


@dataclass(slots=True)
class Instrumentation:
    """Whether traces and metrics are on without `RSMQ["TRACING"]`, and the providers to use."""

    is_on: bool = False
    #: None: the global one of the process.
    tracer_provider: Any = None
    meter_provider: Any = None
    #: Called after a change, by modules that remember what follows from it.
    on_change: list[Callable[[], None]] = field(default_factory=list)

    def change(self, *, is_on: bool, tracer_provider: Any = None, meter_provider: Any = None) -> None:
        """Switch it on or off."""
        self.is_on, self.tracer_provider, self.meter_provider = is_on, tracer_provider, meter_provider
        for forget in self.on_change:
            forget()


instrumentation = Instrumentation()
