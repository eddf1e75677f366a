"""Reports a supervisor's processes to Redis and carries out the commands sent to them: see core/tasks/processes.py."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterable, Sequence, Set

from ... import __version__
from ...conf.settings import get_settings
from ...core import Client
from ...core.log_lines import get_logger
from ...core.queue.listing import workers
from ...core.tasks.processes import (
    KINDS_OF_SLOTS,
    SILENT_AFTER_S,
    ProcessRecord,
    Running,
    SlotUse,
    describe,
    read_processes,
    with_different_tasks,
)
from ...core.transport.client import raise_or_return
from ...core.transport.shared_exchanges import Exchanges
from ...tasks.registry import digest_of_tasks
from ..execute.stacks import STACKS, USE
from ..lease.inflight import HEARTBEAT_EVERY_S
from ..report.shared_state import SharedState
from .process import Child, resident_bytes

logger = get_logger(__name__)


class ProcessControl:
    """The processes of one supervisor."""

    def __init__(self, children: Iterable[Child], *, shutdown_timeout_s: float) -> None:
        #: The supervisor's own list, which changes.
        self._children = children
        self._shutdown_timeout_s = shutdown_timeout_s
        self._host = socket.gethostname()
        #: The last command of each server to each worker that was carried out.
        self._obeyed: dict[tuple[Client, str], str] = {}
        #: The same of requests for stacks.
        self._asked: dict[tuple[Client, str], str] = {}
        #: The names of queues that each server has in the record of each worker.
        self._named: dict[tuple[Client, str], tuple[tuple[str, ...], ...]] = {}
        #: The names of this project's tasks; they are imported before the first process begins.
        self._tasks = ""
        #: Servers whose other workers were compared with this one.
        self._compared: set[Client] = set()

    def publish(self, client: Client, queues: Sequence[str], reliable: Sequence[str] = ()) -> Exchanges[float]:
        """Write the records of all processes and their queues to one server, and carry out its commands.

        Returns the number of seconds until the next call.
        """
        children, self._tasks = list(self._children), self._tasks or digest_of_tasks()
        names = tuple(queues), tuple(reliable)
        for child in children:
            child.ask_for(USE)  # for the next record: the answer takes a moment
        alive = {child.worker_id for child in children}
        self._obeyed = {key: order for key, order in self._obeyed.items() if key[1] in alive}
        self._asked = {key: request for key, request in self._asked.items() if key[1] in alive}
        self._named = {key: queues for key, queues in self._named.items() if key[1] in alive}
        records = [(child.worker_id, self._record(child, *names)) for child in children]
        replies = yield [
            describe(client.namespace, *each, with_names=self._named.get((client, each[0])) != names)
            for each in records
        ]
        heard = [raise_or_return(reply) for reply in replies]
        for child, (order, request, _) in zip(children, heard, strict=True):
            if request and request != self._asked.get((client, child.worker_id)):
                self._asked[client, child.worker_id] = request
                child.ask_for(STACKS)
            if order and order != self._obeyed.get((client, child.worker_id)):
                self._obeyed[client, child.worker_id] = order
                self._carry_out(child, order.partition(" ")[0])
        if lost := [record for record, each in zip(records, heard, strict=True) if each.lacks_names]:
            for reply in (yield [describe(client.namespace, *each) for each in lost]):
                raise_or_return(reply)
        self._named |= {(client, worker_id): names for worker_id, _ in records}
        if children and client not in self._compared:
            self._compared.add(client)
            self._compare_tasks(client, alive)
        return HEARTBEAT_EVERY_S

    def _compare_tasks(self, client: Client, own: Set[str]) -> None:
        """Warn of live workers on the same queues that know other tasks; checked once, after the start."""
        beats = client.run(workers(client.namespace))
        live = [beat.worker_id for beat in beats if beat.now_ms - beat.beat_ms < SILENT_AFTER_S * 1000]
        records = client.run(read_processes(client.namespace, live)) if live else {}
        found = with_different_tasks(records)
        names = [name for name, by_tasks in found.items() if own & set(by_tasks.get(self._tasks, ()))]
        others = {each for name in names for tasks, ids in found[name].items() if tasks != self._tasks for each in ids}
        if names:
            logger.warning(
                "%s: shared with workers that know other tasks (%s); a worker gives back calls of unknown tasks, for "
                "up to %.0f s; then they become dead letters",
                ", ".join(names),
                ", ".join(sorted(others)[:5]),
                get_settings().tasks.unknown_task_grace_s,
            )

    def _record(self, child: Child, queues: tuple[str, ...], reliable: tuple[str, ...]) -> ProcessRecord:
        now = time.monotonic()
        since = sorted(child.shared_state.running_since().items(), key=lambda item: item[1])
        return ProcessRecord(
            host=self._host,
            pid=child.pid,
            version=__version__,
            age_ms=_ms(now - child.started_at),
            memory_bytes=resident_bytes(child.pid),
            state="stopping" if child.asked_to_stop else "quiet" if child.shared_state.is_paused else "working",
            queues=queues,
            reliable=reliable,
            tasks=self._tasks,
            running=tuple(Running(message_id, _ms(now - began_at)) for message_id, began_at in since),
            slots=_slots(child.shared_state),
        )

    def _carry_out(self, child: Child, word: str) -> None:
        logger.info("process %d (%s) received the command %s", child.pid, child.worker_id, word)
        if word in ("quiet", "resume"):
            child.shared_state.set_paused(word == "quiet")
        elif word in ("restart", "stop"):
            child.is_dismissed = child.is_dismissed or word == "stop"
            if not child.asked_to_stop:
                child.ask_to_stop(by=time.monotonic() + self._shutdown_timeout_s)
        else:
            logger.warning("ignored unknown worker command %r", word)


def _slots(shared_state: SharedState) -> tuple[SlotUse, ...]:
    use = shared_state.use
    return () if use is None else tuple(SlotUse(kind, *each) for kind, each in zip(KINDS_OF_SLOTS, use, strict=True))


def _ms(seconds: float) -> int:
    return max(0, round(seconds * 1000))
