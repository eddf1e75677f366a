"""Bulk jobs: send any number of messages, all of them or none, in stages that are published when all are complete.

    stage    bodies and final ids are stored in keys of one attempt; they cannot be received yet
    adopt    the stages of the successful attempts are added to the list of this run
    begin    the state of the job is "publishing": any process continues with the stages of this run
    publish  chunks are moved from a stage into its queue or topic, each in one step
    finish   the state of the job is "done"; sending it again does nothing

Each function returns a `Call`; all but adopt() may be repeated. Because the stages hold the final ids and a chunk moves
in one step, no message can appear twice, even when workers deleted the first part long ago.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from ..errors import InvalidName
from ..keys import checked_name, job_key, publishing_key, queue_keys
from ..limits import MAX_BATCH
from ..topic.keys import checked_topic, topic_keys
from ..transport.call import Argument, Call

#: Stages of failed attempts expire.
STAGE_TTL_S = 86_400
#: How long the record of a finished job is kept: until then, running it again sends nothing.
JOB_TTL_S = 30 * 86_400
#: How long a run is known as aborted: longer than Spark needs to end the tasks of a job that failed.
ABORTED_TTL_S = 3600
#: Results of stage() in place of a number, when nothing was staged: the job is done, or this run was aborted.
JOB_DONE, RUN_ABORTED = -1, -2
#: How many stages one script handles.
MAX_STAGES = 250

_JOB_NAME = re.compile(r"[A-Za-z0-9_.-]{1,100}", re.ASCII)
#: The bodies of "topic+" have key and headers before them.
Kind = Literal["queue", "topic", "topic+"]


@dataclass(frozen=True, slots=True)
class Stage:
    """The rows that one attempt of one task staged for one queue or topic."""

    name: str
    rows: int

    @classmethod
    def new_name(cls, run: str, attempt: str, kind: Kind, target: str) -> str:
        """Return the name of a stage; `run` and `attempt` must not contain a colon."""
        return f"{run}:{attempt}:{kind}:{target}"

    @staticmethod
    def target_of(name: str) -> tuple[str, str]:
        """Return kind and name of the target of a stage."""
        _run, _attempt, kind, target = name.split(":", 3)
        return kind, target


@dataclass(frozen=True, slots=True)
class Begun:
    """The state of a job, and the run whose stages are, or were, published."""

    state: str
    run: str


@dataclass(frozen=True, slots=True)
class Job:
    """One bulk job. A job of the same name is the same job."""

    namespace: str
    name: str

    def stage(self, name: str, *, first_us: int, rows: Sequence[tuple[str, Argument, bytes]]) -> Call[int]:
        """Return the call that stages up to 1,000 messages: suffix of the id, delay in ms or the queue's unit, body.

        The ids count up from `first_us`. It returns the number of messages, JOB_DONE or RUN_ABORTED. Raises
        QueueNotFound, MessageTooLong, QueueFull.
        """
        kind, target = Stage.target_of(name)
        keys = [self._key, self._aborted(name.partition(":")[0]), self._stages, *self._stage_keys(name)]
        if kind == "queue":
            keys.append(queue_keys(self.namespace, checked_name(target)).settings)
        args: list[Argument] = [name, STAGE_TTL_S, first_us]
        for row in rows:
            args += row
        return Call("queue/bulk/stage", tuple(keys), tuple(args), int, repeatable=True, subject=target)

    def adopt(self, run: str, stages: Sequence[Stage]) -> Call[int]:
        """Return the call that lists up to MAX_STAGES stages; not repeatable, so a run that fails here starts again.

        It returns the number of listed stages; 0 when the job was published before; -n when the n-th stage is missing.
        """
        keys, args = [self._key, self._list(run)], [STAGE_TTL_S]
        names: list[Argument] = []
        for stage in stages:
            keys += self._stage_keys(stage.name)
            names += (stage.name, stage.rows)
        return Call("queue/bulk/adopt", tuple(keys), (*args, *names), int)

    def begin(self, run: str, *, stages: int, rows: int) -> Call[Begun]:
        """Return the call that sets the job to "publishing", unless it is publishing or done."""
        keys = (self._key, self._list(run), publishing_key(self.namespace))
        return Call("queue/bulk/begin", keys, (self.name, run, stages, rows), _read_begun, repeatable=True)

    def keep(self, names: Sequence[str]) -> Call[int]:
        """Return the call that removes the time to live of stages that are being published."""
        keys = tuple(key for name in names for key in self._stage_keys(name))
        return Call("queue/bulk/keep", keys, (), int, repeatable=True)

    def publish(self, name: str, *, most: int = MAX_BATCH) -> Call[int]:
        """Return the call that moves the next chunk of a stage and returns its size; 0 when the stage is empty.

        Repeated after a lost reply, it moves the chunk after that: correct for a caller that continues until 0.
        """
        kind, target = Stage.target_of(name)
        stage = self._stage_keys(name)
        if kind != "queue":
            topic = topic_keys(checked_topic(target, namespace=self.namespace))
            args = (topic.prefix, target, most, int(kind == "topic+"))
            all_keys = (*topic.log, topic.groups, *stage, self._key)
            return Call("queue/bulk/publish_topic", all_keys, args, int, repeatable=True, subject=target)
        keys = queue_keys(self.namespace, checked_name(target))
        queue_and_stage = (keys.messages, keys.settings, *stage, self._key)
        return Call("queue/bulk/publish", queue_and_stage, (most, keys.channel), int, repeatable=True, subject=target)

    def finish(self, run: str, *, forget: str = "") -> Call[tuple[int, int]]:
        """Return the call that ends the job; it returns the numbers of staged and of published rows.

        `forget` names an earlier job that cannot be repeated any more: a batch of a stream before the last one.
        """
        keys: tuple[str, ...] = (self._key, self._list(run), publishing_key(self.namespace))
        if forget:
            keys += (job_key(self.namespace, forget),)
        return Call(
            "queue/bulk/finish", keys, (self.name, JOB_TTL_S), lambda reply: (reply[0], reply[1]), repeatable=True
        )

    def abort(self, run: str) -> Call[int]:
        """Return the call after which nothing more is staged for this run; -1 when the job needs its stages."""
        return Call("queue/bulk/abort", (self._key, self._aborted(run)), (ABORTED_TTL_S,), int, repeatable=True)

    def drop(self, names: Sequence[str]) -> Call[int]:
        """Return the call that removes up to MAX_STAGES stages; -1 when the job needs them."""
        keys = (self._key, self._stages, *(key for name in names for key in self._stage_keys(name)))
        return Call("queue/bulk/drop", keys, tuple(names), int, repeatable=True)

    # -- Reads without a script --------------------------------------------------------------------------------------

    def read_record(self) -> tuple[str, str]:
        """Return the command that reads the job's hash."""
        return "HGETALL", self._key

    def read_list(self, run: str, first: int) -> tuple[str | int, ...]:
        """Return the command that reads up to MAX_STAGES names of a run's list."""
        return "LRANGE", self._list(run), first, first + MAX_STAGES - 1

    def read_some_stages(self) -> tuple[str | int, ...]:
        """Return the command that reads up to MAX_STAGES names of stages of any attempt."""
        return "SRANDMEMBER", self._stages, MAX_STAGES

    @property
    def _key(self) -> str:
        return job_key(self.namespace, self.name)

    @property
    def _stages(self) -> str:
        return f"{self._key}:open"

    def _list(self, run: str) -> str:
        return f"{self._key}:stages:{run}"

    def _aborted(self, run: str) -> str:
        return f"{self._key}:aborted:{run}"

    def _stage_keys(self, name: str) -> tuple[str, str]:
        stage = f"{self._key}:{name}"
        return stage, f"{stage}:bodies"


def checked_job_name(name: str) -> str:
    """Return `name`, or raise InvalidName. Names with a colon belong to streams."""
    if not _JOB_NAME.fullmatch(name):
        raise InvalidName(f"invalid job name: {name!r}; use 1 to 100 characters of A-Z a-z 0-9 '_' '.' and '-'")
    return name


def _read_begun(reply: list[Any]) -> Begun:
    return Begun(reply[0].decode("ascii"), reply[1].decode("ascii"))
