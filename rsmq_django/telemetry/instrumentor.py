"""The entry point `opentelemetry_instrumentor`: `opentelemetry-instrument` switches traces and metrics on."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from ..conf.instrumented import instrumentation

__all__ = ["RsmqInstrumentor"]


class RsmqInstrumentor:
    """Switches OpenTelemetry on for this process, as `RSMQ["TRACING"]` does: `RsmqInstrumentor().instrument()`.

    It has the methods of OpenTelemetry's `BaseInstrumentor`, and needs its API only. Call it before the first task is
    sent or run.
    """

    def instrumentation_dependencies(self) -> Collection[str]:
        """Return the packages that must be installed: no other than this one."""
        return ()

    @property
    def is_instrumented_by_opentelemetry(self) -> bool:
        """Return whether it is switched on."""
        return instrumentation.is_on

    def instrument(self, *, tracer_provider: Any = None, meter_provider: Any = None, **_options: Any) -> None:
        """Switch traces and metrics on, with these providers, or the global ones of the process."""
        instrumentation.change(is_on=True, tracer_provider=tracer_provider, meter_provider=meter_provider)

    def uninstrument(self, **_options: Any) -> None:
        """Switch them off, unless `RSMQ["TRACING"]` has them on."""
        instrumentation.change(is_on=False)
