"""The state of workflows: progress, results of members, and cancelling."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from typing import Any, TypeVar

from ..conf.settings import get_settings
from ..core import Client
from ..core.errors import WorkflowNotFound
from ..core.tasks.workflow_outcomes import find_numbers, read_extent, read_outcomes
from ..core.tasks.workflow_records import WorkflowStatus, live_tasks, newest, read_statuses, without_proofs
from ..core.tasks.workflows import stop
from ..core.transport.reading_steps import Reading, arun_reading, run_reading
from ..queues import get_client
from .cancellation import acancel_only_on, cancel_only_on
from .compat import TaskResultDoesNotExist
from .workflow_proofs import FAILURE, VALUE, is_proven

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Failure:
    """The final failure of a member of a workflow."""

    member: int
    task_id: str
    task: str
    #: The reason in its failure record: attempts_used_up, gave_up, cancelled ...
    reason: str
    #: Dotted path of the exception, and its text.
    error: str
    message: str


_FIELDS = tuple(each.name for each in fields(Failure))[1:]


@dataclass(frozen=True, slots=True)
class Workflow:
    """A workflow by its id, which may be stored and given to get_workflow() anywhere."""

    id: str
    #: Alias of its connection.
    connection: str = "default"

    def status(self) -> WorkflowStatus:
        """Return state and progress. Raises WorkflowNotFound when it has expired or was not committed."""
        return _found(self, self._client.run(read_statuses(self._client.namespace, [self.id])))

    async def astatus(self) -> WorkflowStatus:
        """See status()."""
        return _found(self, await self._client.arun(read_statuses(self._client.namespace, [self.id])))

    def results(self) -> list[Any]:
        """Return the results of the members in order, with a `Failure` for each failed member.

        None means a member that has not ended, or has no stored result. Of a chain there is one: the
        result of the latest step that has ended.
        """
        return run_reading(self._client, self._read_all(read_outcome, None))

    async def aresults(self) -> list[Any]:
        """See results()."""
        return await arun_reading(self._client, self._read_all(read_outcome, None))

    def authentic(self) -> list[bool]:
        """Return, for each member, whether a process with the keys of its signed or encrypted queue wrote its result.

        False also for members that have not ended, for dropped duplicates, and on queues without keys.
        Of a chain, the result of an earlier step of the same member is authentic, too.
        """
        return run_reading(self._client, self._read_all(self._is_authentic, False))

    async def aauthentic(self) -> list[bool]:
        """See authentic()."""
        return await arun_reading(self._client, self._read_all(self._is_authentic, False))

    def _is_authentic(self, member: int, value: bytes, failure: bytes) -> bool:
        return is_proven(self.id, member, FAILURE if failure else VALUE, failure or value)

    def _read_all(self, read: Callable[[int, bytes, bytes], T], missing: T) -> Reading[list[T]]:
        """Read the stored entries, for any number of members that another program has written."""
        namespace = self._client.namespace
        extent = yield read_extent(namespace, self.id)
        if extent is None:
            raise _not_found(self.id)
        found = [missing] * (extent.members or 0)
        numbers: Sequence[int] = range(len(found))
        if not extent.is_plausible:  # results are not kept, or the number was forged
            numbers = yield from find_numbers(namespace, self.id, "results", "failures", below=len(found))

        def take(member: int, value: bytes, failure: bytes) -> None:
            found[member] = read(member, value, failure)

        if not (yield from read_outcomes(namespace, self.id, numbers, take)):
            raise _not_found(self.id)
        return found

    def failures(self) -> list[Failure]:
        """Return the failures of members."""
        return [each for each in self.results() if isinstance(each, Failure)]

    def cancel(self) -> bool:
        """Cancel all unfinished members; no further step and no callback follows. Returns False when it has ended.

        May be repeated when this process dies in the middle of it.
        """
        if not self._client.run(stop(self._client.namespace, self.id)):
            return False
        cursor = b"0"
        while True:
            cursor, task_ids = self._client.run(live_tasks(self._client.namespace, self.id, cursor))
            for task_id in task_ids:
                try:
                    cancel_only_on(self._client, task_id)
                except TaskResultDoesNotExist:
                    pass  # it has ended meanwhile, or was never sent
            if cursor == b"0":
                return True

    async def acancel(self) -> bool:
        """See cancel()."""
        if not await self._client.arun(stop(self._client.namespace, self.id)):
            return False
        cursor = b"0"
        while True:
            cursor, task_ids = await self._client.arun(live_tasks(self._client.namespace, self.id, cursor))
            for task_id in task_ids:
                try:
                    await acancel_only_on(self._client, task_id)
                except TaskResultDoesNotExist:
                    pass
            if cursor == b"0":
                return True

    @property
    def _client(self) -> Client:
        return get_client(self.connection)


def get_workflow(workflow_id: str) -> Workflow:
    """Return a workflow by its id, from any connection. Raises WorkflowNotFound."""
    for alias in get_settings().connections:
        client = get_client(alias)
        if client.run(read_statuses(client.namespace, [workflow_id]))[0] is not None:
            return Workflow(workflow_id, alias)
    raise _not_found(workflow_id)


def newest_workflows(count: int = 50) -> list[WorkflowStatus]:
    """Return the latest workflows of all connections, newest first; up to a thousand are listed."""
    found: list[WorkflowStatus] = []
    for alias in get_settings().connections:
        client = get_client(alias)
        ids = client.run(newest(client.namespace, count))
        if ids:
            statuses = client.run(read_statuses(client.namespace, ids))
            found += [status for status in statuses if status is not None]
    return sorted(found, key=lambda status: status.created_ms, reverse=True)[:count]


def read_outcome(member: int, value: bytes, failure: bytes) -> Any:
    """Return the result of a member, or its `Failure`; None when it has not ended.

    An unreadable value was written by another program: a `Failure` with the reason "unreadable".
    """
    try:
        if not failure:
            return json.loads(without_proofs(value)) if value else None
        record = json.loads(without_proofs(failure))
        return Failure(member, *(str(record.get(name, "")) for name in _FIELDS))
    except (ValueError, AttributeError, RecursionError) as error:  # not JSON, or not an object
        return Failure(member, "", "", "unreadable", "", f"outcome of member {member} is not readable: {error}")


def _found(workflow: Workflow, statuses: Sequence[WorkflowStatus | None]) -> WorkflowStatus:
    if statuses[0] is None:
        raise _not_found(workflow.id)
    return statuses[0]


def _not_found(workflow_id: str) -> WorkflowNotFound:
    return WorkflowNotFound(f"no workflow {workflow_id!r}: it has expired, or its transaction was not committed")
