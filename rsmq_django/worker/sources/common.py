"""What all sources have in common: leases, clock, counters and events of one connection, and the begin of attempts."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ...conf.settings import get_settings
from ...core import Client
from ...core.transport.backoff import ReconnectBackoff
from ..execute.execution import Execution
from ..execute.limits import admit
from ..lease.leases import Leases
from ..report.clock import ServerClock
from ..report.event_log import EventLog
from ..report.notifications import Notifier
from ..report.shared_state import SharedState
from ..report.statistics import Statistics


class CommonSource:
    """Messages of one connection."""

    def __init__(
        self,
        client: Client,
        *,
        title: str,
        notifier: Notifier,
        wake: Callable[[], None],
        shared_state: SharedState | None = None,
    ) -> None:
        self.client = client
        self.notifier = notifier
        self.leases = Leases()
        self.clock = ServerClock()
        #: None when statistics are disabled.
        self.statistics = Statistics.from_settings(client.namespace, notifier.worker_id, now_ms=self.clock.now_ms)
        self.event_log = EventLog.from_settings(get_settings().events, notifier.worker_id, client.namespace)
        self.backoff = ReconnectBackoff(title, server=client.connection)
        self._wake = wake
        self._shared_state = shared_state

    # -- Called by any thread -----------------------------------------------------------------------------------------

    def began(self, execution: Execution) -> None:
        """Note that an attempt began; its result record is updated if it runs for long."""
        delivery, limit_s, began_at = execution.delivery, execution.hard_timeout_s, execution.began_at
        delivery.started_ms, delivery.execution = began_at * 1000 + self.clock.offset_ms, execution
        if self._shared_state is not None:
            run_by = 0.0 if limit_s is None else began_at + limit_s
            delivery.slot = self._shared_state.enter(delivery.message.id, began_at, run_by)
        if self.statistics is not None and execution.may_run:
            self.statistics.begun.append((delivery.work_queue.name, execution.path))

    def note_interruption(self, execution: Execution) -> None:
        """Count that a function was interrupted."""
        if self.statistics is not None:
            self.statistics.interrupted(execution.delivery.work_queue.name, execution.path)

    def flush_soon(self) -> None:
        """Send pending outcomes soon."""
        self._wake()

    def _lift_limit(self, execution: Execution) -> None:
        slot = execution.delivery.slot
        if slot is not None and self._shared_state is not None:
            self._shared_state.lift_limit(slot)

    # -- Called by the main thread ------------------------------------------------------------------------------------

    def stop_soon(self) -> None:
        """Do nothing: there are no threads."""

    def note_arrived(self, executions: Sequence[Execution]) -> None:
        """Count received messages."""
        if self.statistics is not None and executions:
            self.statistics.arrived(executions)

    def admit(self, executions: Sequence[Execution]) -> Sequence[Execution]:
        """Return the messages that may run now, by the limits of their tasks; the others are settled as postponed."""
        return admit(self.client, executions)

    @property
    def is_unavailable(self) -> bool:
        """Return whether the server did not answer the last exchange."""
        return self.backoff.is_on
