"""The rows of a DataFrame as messages, tasks or messages of a topic: all of them once, or none.

Executors stage rows, which cannot be received yet. The driver then publishes them: from then on the job can only be
completed, and running it again completes it or does nothing. `direct` skips the stage: half the work for the server,
but a Spark task that runs twice sends its rows twice.
"""

from __future__ import annotations

import json
import uuid
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from ..core.ids import random_suffixes
from ..core.keys import checked_name, publishing_key
from ..core.limits import milliseconds
from ..core.queue.bulk import JOB_DONE, MAX_STAGES, RUN_ABORTED, Begun, Job, Kind, Stage, checked_job_name
from ..core.queue.queue import Queue
from ..core.topic.entries import packed_entry
from ..core.transport.call import Argument
from .columns import Rows
from .errors import JobIncomplete, PipelineError, RunAborted, StageLost, WrongOption
from .options import Options
from .server import Server

#: A chunk is sent when its bodies reach this size.
CHUNK_BYTES = 4 * 1024 * 1024
#: Means the queue's own delay, which is stored in seconds.
OWN_DELAY = "s"

Message = tuple[str, Argument, bytes]


@dataclass(frozen=True, slots=True)
class Staged:
    """The stage of one attempt of one Spark task."""

    job: str
    run: str
    stages: tuple[Stage, ...]
    rows: int


class BulkSender:
    """Sends tables of rows. The object is pickled to the executors and back to the committing driver."""

    def __init__(self, options: Options, names: Sequence[str]) -> None:
        self.options = options
        self.job = checked_job_name(options.job) if options.job else f"unnamed-{uuid.uuid4().hex}"
        self.run = uuid.uuid4().hex
        self.kind: Kind = "topic" if options.kind == "topic" else "queue"
        if self.kind == "topic" and {"key", "headers"} & set(names):
            self.kind = "topic+"
        self._refuse_wrong_columns(set(names))

    def _refuse_wrong_columns(self, names: set[str]) -> None:
        own = {"tasks": {"task", "task_id", "args", "kwargs"}, "topic": {"body", "key", "headers"}}
        wanted = own.get(self.options.kind, {"body"})
        if self.options.kind == "tasks" and not self.options.task and "task" not in names:
            raise WrongOption("kind=tasks needs the option task, or a column task: the dotted path of the task")
        if self.options.kind != "tasks" and "body" not in names:
            raise WrongOption(f"column body is missing; rename one of {', '.join(sorted(names))}")
        if self.kind == "queue" and "queue" not in names and len(self.options.queues) != 1:
            raise WrongOption("set the option queue to one queue, or add a column queue")
        if self.options.direct and self.kind != "queue":
            raise WrongOption("direct=true is for queues; remove it to write to a topic")
        if self.options.direct and self.options.job:
            raise WrongOption("direct=true cannot be combined with the option job: remove one of them")
        unknown = names - wanted - {"queue", "delay_s"}
        if unknown:
            known = ", ".join(sorted(wanted | {"queue", "delay_s"}))
            raise WrongOption(f"columns {', '.join(sorted(unknown))} would be lost; known columns are {known}")

    # -- On the executors ---------------------------------------------------------------------------------------------

    def stage(self, tables: Iterable[Rows], *, attempt: str, job: str = "") -> Staged:
        """Stage all rows of one attempt. The names of jobs of streams come from the caller."""
        server = self.options.server()
        target_job = Job(self.options.namespace, job or self.job)
        if read_job(server, target_job).get("state") == "done":
            deque(tables, maxlen=0)  # Spark wants its rows to be read
            return Staged(target_job.name, self.run, (), 0)
        first_us, rows, stages = server.now_us(), 0, dict[str, int]()
        for target, messages in self._chunks(tables):
            name = Stage.new_name(self.run, attempt, self.kind, target)
            # One microsecond later per row: ids keep the order of the rows.
            staged = server.run(target_job.stage(name, first_us=first_us + rows, rows=messages))
            if staged == RUN_ABORTED:
                raise RunAborted(f"job {target_job.name!r}: this run was aborted, the rows were not staged")
            if staged == JOB_DONE:  # by another run meanwhile, which has removed what this one had staged
                deque(tables, maxlen=0)
                return Staged(target_job.name, self.run, (), 0)
            rows += len(messages)
            stages[name] = stages.get(name, 0) + len(messages)
        server.close()
        return Staged(target_job.name, self.run, tuple(Stage(*item) for item in stages.items()), rows)

    def send_directly(self, tables: Iterable[Rows]) -> Staged:
        """Send all rows at once, without a stage."""
        server, rows = self.options.server(), 0
        for target, messages in self._chunks(tables):
            for delay, bodies in _by_delay(messages):
                delay_s = None if delay == OWN_DELAY else int(delay) / 1000
                # After a lost reply, rows are not sent again here: the Spark task fails, and its next attempt decides.
                server.client.run(Queue(target, server.client)._send(bodies, delay_s))
            rows += len(messages)
        server.close()
        return Staged("", self.run, (), rows)

    def _chunks(self, tables: Iterable[Rows]) -> Iterator[tuple[str, list[Message]]]:
        """Yield messages for one target at a time, up to the limit of one call."""
        for table in tables:
            for target, messages in self._by_target(table):
                for at in range(0, len(messages), self.options.chunk_rows):
                    for chunk in _light(messages[at : at + self.options.chunk_rows]):
                        yield target, chunk

    def _by_target(self, table: Rows) -> Iterator[tuple[str, list[Message]]]:
        messages = self._messages(table)
        if self.kind != "queue" or "queue" not in table:
            yield (self.options.queues[0] if self.kind == "queue" else self.options.topic), messages
            return
        groups: dict[str, list[Message]] = {checked_name(name): [] for name in table["queue"]}
        for name, message in zip(table["queue"], messages, strict=True):
            groups[name].append(message)
        yield from groups.items()

    def _messages(self, table: Rows) -> list[Message]:
        suffixes = random_suffixes(_height(table))
        given = table.get("delay_s")
        delays: Iterable[Argument] = map(_delay_ms, given) if given else [OWN_DELAY] * len(suffixes)
        bodies = self._calls(table, suffixes) if self.options.kind == "tasks" else _bodies(table["body"])
        if self.kind == "topic+":
            bodies = _entries(table, bodies)
        return list(zip(suffixes, delays, bodies, strict=True))

    def _calls(self, table: Rows, suffixes: list[str]) -> Iterator[bytes]:
        """Yield the bodies of task calls (docs/reference/message_format.md); a task has the id of its message."""
        tasks = table.get("task") or [self.options.task] * len(suffixes)
        begins = {task: f'{{"task":{json.dumps(task)},"id":' for task in set(tasks)}
        ids = map(json.dumps, table["task_id"]) if "task_id" in table else (f'"{suffix}"' for suffix in suffixes)
        args = table.get("args") or [None] * len(suffixes)
        kwargs = table.get("kwargs") or [None] * len(suffixes)
        for task, task_id, positional, named in zip(tasks, ids, args, kwargs, strict=True):
            # The texts are inserted unchanged: they were parsed to validate them, and encoding them again would double
            # the work.
            args_json, kwargs_json = _json(positional, list, "args"), _json(named, dict, "kwargs")
            yield f'{begins[task]}{task_id},"args":{args_json},"kwargs":{kwargs_json}}}'.encode()

    # -- On the driver ------------------------------------------------------------------------------------------------

    def commit(self, staged: Sequence[Staged], *, forget: str = "") -> int:
        """Publish the stages of the attempts, and return the number of published rows of the job."""
        (job,) = {item.job for item in staged} or {self.job}
        (run,) = {item.run for item in staged} or {self.run}
        stages = [stage for item in staged for stage in item.stages]
        server = self.options.server()
        begun = _begin(server, Job(self.options.namespace, job), run, stages)
        return publish(server, Job(self.options.namespace, job), begun, self.options.chunk_rows, forget=forget)

    def abort(self, job: str = "", *, run: str = "") -> None:
        """Remove the stages of this run, including failed attempts, and refuse those of tasks that have not ended yet.

        A job that is being published keeps all.
        """
        server, target_job = self.options.server(), Job(self.options.namespace, job or self.job)
        run = run or self.run
        if server.run(target_job.abort(run)) > 0:
            drop_stages(server, target_job, run=run)


def _begin(server: Server, job: Job, run: str, stages: Sequence[Stage]) -> Begun:
    for at in range(0, len(stages), MAX_STAGES):
        chunk = stages[at : at + MAX_STAGES]
        adopted = server.run(job.adopt(run, chunk))
        if adopted < 0:
            raise StageLost(
                f"job {job.name!r}: the stage {chunk[-adopted - 1].name} is missing or incomplete, nothing was sent; "
                "check for an eviction or a flush, and run the job again"
            )
    begun = server.run(job.begin(run, stages=len(stages), rows=sum(stage.rows for stage in stages)))
    if begun.state == "incomplete":
        raise StageLost(f"job {job.name!r}: its list of stages is incomplete, nothing was sent; run the job again")
    return begun


def publish(server: Server, job: Job, begun: Begun, chunk_rows: int, *, forget: str = "") -> int:
    """Complete the publishing of a job; return its number of rows. Raises JobIncomplete."""
    if begun.state != "done":
        for names in _pages_of(server, job, begun.run):
            server.run(job.keep(names))
        for names in _pages_of(server, job, begun.run):
            for name in names:
                while server.run(job.publish(name, most=chunk_rows)):
                    pass
        wanted, published = server.run(job.finish(begun.run, forget=forget))
        if wanted != published:
            raise JobIncomplete(
                f"job {job.name!r}: {published} of {wanted} rows were published and no stage is left; stages were "
                "removed, so compare with the source to find the missing rows"
            )
    drop_stages(server, job)
    return int(read_job(server, job).get("published", 0))


def drop_stages(server: Server, job: Job, *, run: str = "") -> None:
    """Remove stages of a job that is not being published: of one run, or all."""
    seen: set[bytes] = set()
    while True:
        found: list[bytes] = server.ask_one(*job.read_some_stages())
        names = [name.decode() for name in found if not run or name.startswith(f"{run}:".encode())]
        if not names and (not found or seen.issuperset(found)):
            return
        seen.update(found)
        if names and server.run(job.drop(names)) < 0:
            return


def read_job(server: Server, job: Job) -> dict[str, Any]:
    """Return the record of a job: state, run, rows, published; empty for an unknown one."""
    flat: list[bytes] = server.ask_one(*job.read_record())
    record = {name.decode(): value.decode() for name, value in zip(flat[::2], flat[1::2], strict=True)}
    return {name: int(value) if name in ("rows", "published") else value for name, value in record.items()}


def unfinished_jobs(server: Server) -> list[str]:
    """Return the names of jobs that have started to publish and are not finished."""
    return sorted(name.decode() for name in server.ask_one("SMEMBERS", publishing_key(server.namespace)))


def resume(server: Server, name: str, *, chunk_rows: int = 1000, dry_run: bool = False) -> int:
    """Complete a job that has started to publish, without Spark; return its number of rows. Raises PipelineError.

    `dry_run` publishes nothing, and returns the rows that are left.
    """
    job = Job(server.namespace, name)
    record = read_job(server, job)
    if record.get("state") not in ("publishing", "done"):
        raise PipelineError(f"job {name!r} has not started to publish; run it again instead")
    if dry_run:
        return int(record["rows"] - record["published"])
    return publish(server, job, Begun(record["state"], record["run"]), chunk_rows)


def _pages_of(server: Server, job: Job, run: str) -> Iterator[list[str]]:
    first = 0
    while names := server.ask_one(*job.read_list(run, first)):
        yield [name.decode() for name in names]
        first += len(names)


# -- Values ------------------------------------------------------------------------------------------------------------


def _height(table: Rows) -> int:
    return len(next(iter(table.values())))


def _bodies(values: Sequence[Any]) -> list[bytes]:
    if None in values:
        raise PipelineError("a body is null; filter such rows out, or use coalesce(body, '')")
    return [value.encode() if isinstance(value, str) else bytes(value) for value in values]


def _entries(table: Rows, bodies: Iterable[bytes]) -> Iterator[bytes]:
    """Yield bodies of a topic with their key and headers."""
    nothing = [None] * _height(table)
    for body, key, headers in zip(bodies, table.get("key", nothing), table.get("headers", nothing), strict=True):
        yield packed_entry(body, key or None, json.loads(_json(headers, dict, "headers")))


def _light(messages: list[Message]) -> Iterator[list[Message]]:
    """Yield the messages in parts that are small enough for one call."""
    if len(messages) == 1 or sum(len(body) for _, _, body in messages) <= CHUNK_BYTES:
        yield messages
        return
    half = len(messages) // 2
    yield from _light(messages[:half])
    yield from _light(messages[half:])


def _delay_ms(delay_s: Any) -> Argument:
    # In Spark SQL a literal such as 3600.0 is a DECIMAL.
    return OWN_DELAY if delay_s is None else milliseconds("delay_s", float(delay_s))


def _json(text: str | None, kind: type, column: str) -> str:
    """Return the JSON of a value of this kind; an empty value for null."""
    if text is None:
        return "[]" if kind is list else "{}"
    try:
        value = json.loads(text)
    except ValueError as error:
        raise PipelineError(f"column {column} holds {text!r:.60}, which is not JSON: {error}") from error
    if not isinstance(value, kind):
        wanted = "an array" if kind is list else "an object"
        raise PipelineError(f"column {column} holds {text!r:.60}; it must be {wanted} of JSON")
    return text


def _by_delay(messages: list[Message]) -> Iterator[tuple[Argument, list[bytes]]]:
    groups: dict[Argument, list[bytes]] = {}
    for _, delay, body in messages:
        groups.setdefault(delay, []).append(body)
    yield from groups.items()
