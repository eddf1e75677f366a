"""Plans of workflows: their calls, checked and prepared before they are sent. Does no I/O.

The ids of all its tasks are created here, so that each message can contain the ids of the next calls.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby
from typing import Any

from ..conf.settings import get_settings
from ..core import Client
from ..core.ids import random_suffix
from ..core.limits import MAX_BATCH, MAX_TRIP_BYTES
from ..core.numbers import is_number
from ..core.queue.bands import band_name
from ..core.tasks.workflows import MAX_MEMBERS, create, expect, prepare, seal, skip, start
from ..core.transport.call import Call
from ..core.transport.portions import portions
from ..queues import get_client
from .arguments import check_arguments
from .backend import RSMQBackend
from .compat import InvalidTask
from .lanes import by_lane, lane_of_call, lane_of_later_call
from .membership import META, Membership, Ref, Takes, callbacks
from .outgoing import Outgoing
from .outgoing import prepare as prepare_calls
from .proofs import owner_of
from .results import UNFINISHED_TTL_S
from .round_trips import in_portions
from .route import ms_until, result_ttl_s
from .shards import check_first_shard
from .task import Task
from .tracing import sending
from .typed_arguments import as_sent, types_of_task
from .workflow_proofs import member_fields, proven
from .workflow_shape import shape_text
from .workflow_state import Workflow

#: How long a workflow is kept after its last step: as long as a task that waits. Its callback has to find the results.
KEEP_S = UNFINISHED_TTL_S
LONGEST_KEEP_S = 1_000_000_000
#: Steps that are stored in one call.
STEPS_AT_ONCE = 400
#: Limit of one script; a larger one would block the server's other clients.
MOST_BYTES = MAX_TRIP_BYTES

#: A call that is sent later: its field, and the value that tasks/lua/workflow/parts/state.lua describes.
Step = tuple[str, bytes]


@dataclass(frozen=True, slots=True)
class Invocation:
    """A task with the arguments of one call. Created with call()."""

    task: Task[..., Any]
    args: tuple[Any, ...] = ()
    kwargs: Mapping[str, Any] = field(default_factory=dict)
    takes_result: bool = True

    def without_result(self) -> Invocation:
        """Return a call that does not get the previous result as its first argument."""
        return replace(self, takes_result=False)

    def checked(self, *, is_given_result: bool) -> Invocation:
        """Return it with its arguments as JSON; the function may get a result in front of them.

        Raises TypeError when the function does not take them.
        """
        is_given_result = is_given_result and self.takes_result
        check_arguments(self.task, self.args, self.kwargs, is_given_result=is_given_result)
        if types_of_task(self.task).arguments is None:
            return self
        args, kwargs = as_sent(self.task, self.args, self.kwargs, is_given_result=is_given_result)
        return replace(self, args=tuple(args), kwargs=kwargs)

    @property
    def lane(self) -> int | None:
        """Return the lane that it is sent to as a later step or as a callback."""
        find = lane_of_later_call if self.takes_result else lane_of_call
        return find(self.task, self.args, self.kwargs)

    @property
    def queue_name(self) -> str:
        """Return the queue, or the band or lane of it, that it is sent to as a later step or as a callback."""
        return band_name(self.task.queue_name, int(self.task.priority), self.lane)


Steps = tuple[Invocation, ...]


@dataclass(frozen=True, slots=True)
class Member:
    """One member, with the ids that its steps will have."""

    number: int
    steps: Steps
    task_ids: Sequence[str]


class WorkflowPlan:
    """One workflow before it is sent."""

    def __init__(
        self,
        kind: str,
        members: Sequence[Steps] = (),
        *,
        name: str,
        keep_s: float,
        then: Invocation | None = None,
        on_failure: Invocation | None = None,
        then_always: bool = False,
        keeps_results: bool = True,
    ) -> None:
        _check_options(name, keep_s)
        self.kind, self.name, self.keep_s = kind, name, keep_s
        self.then_always, self.keeps_results = bool(then_always), bool(keeps_results)
        #: Dotted path of the task of a map.
        self.mapped = ""
        self._id = random_suffix()
        self._alias: str | None = None
        #: A delayed call must find the workflow when it is due.
        self._longest_delay_s = 0.0
        self._checked: dict[int, Task[..., Any]] = {}
        self._then, self._on_failure = self._checked_callback(then), self._checked_callback(on_failure)
        self.then_ref, self.on_failure_ref = _ref(self._then), _ref(self._on_failure)
        self.members = self.numbered(members, first=0)

    @property
    def workflow(self) -> Workflow:
        """Return the `Workflow` object."""
        return Workflow(self._id, self._alias or "default")

    @property
    def client(self) -> Client:
        """Return the client of the workflow's connection."""
        return get_client(self.workflow.connection)

    # -- Members ------------------------------------------------------------------------------------------------------

    def numbered(self, members: Sequence[Steps], *, first: int) -> list[Member]:
        """Check members and give them their numbers and ids."""
        if first + len(members) > MAX_MEMBERS:
            raise InvalidTask(f"a workflow of more than {MAX_MEMBERS} members; make several of it")
        checked = [self._checked_steps(steps) for steps in members]
        return [Member(first + n, steps, [random_suffix() for _ in steps]) for n, steps in enumerate(checked)]

    def _checked_steps(self, steps: Steps) -> Steps:
        checked = []
        for position, step in enumerate(steps):
            self.check(step.task, may_be_unique=len(steps) == 1 and self.kind != "chain")
            checked.append(step.checked(is_given_result=position > 0))
            self.check_giver(step.task)
            if position > 0:
                _check_feeding(steps[position - 1].task, step)
        return tuple(checked)

    def _checked_callback(self, callback: Invocation | None) -> Invocation | None:
        if callback is None:
            return None
        self.check(callback.task)
        return callback.checked(is_given_result=True)

    def check(self, task: Task[..., Any], *, may_be_unique: bool = False) -> None:
        """Raise InvalidTask when a task cannot be in this workflow."""
        unique = task.options.unique
        if unique is not None and not (may_be_unique and unique.mode == "reject"):
            raise InvalidTask(
                f"Task {task.module_path} is unique; in a workflow only those members of a group or map can be that "
                "are a single call, and only with mode 'reject'; use task.using(unique=None)"
            )
        if self._checked.get(id(task)) is task:
            return
        own = task.get_backend()
        if not isinstance(own, RSMQBackend):
            raise InvalidTask(f"Task {task.module_path}: backend {task.backend!r} is no RSMQBackend")
        own.validate_task(task)
        check_first_shard(task, "a workflow")
        queue = get_settings().queue(task.queue_name)
        self._alias = self._alias or queue.connection
        if queue.connection != self._alias:
            raise InvalidTask(
                f"Task {task.module_path}: queue {task.queue_name!r} is on connection {queue.connection!r}, the "
                f"workflow on {self._alias!r}; all tasks of a workflow need queues of one connection"
            )
        if queue.outbox:
            raise InvalidTask(
                f"Task {task.module_path}: queue {task.queue_name!r} has an outbox, which knows nothing of workflows; "
                "use a queue without OUTBOX"
            )
        if task.run_after is not None:
            self._longest_delay_s = max(self._longest_delay_s, ms_until(task.run_after) / 1000)
        self._checked[id(task)] = task

    def check_giver(self, task: Task[..., Any]) -> None:
        """Raise InvalidTask when a callback on a sealed queue would get a result of a member without proof."""
        for callback in (self._then, self._on_failure):
            if callback is not None:
                _check_feeding(task, callback)

    def batches(self, members: Sequence[Member]) -> Iterator[tuple[list[Member], Outgoing]]:
        """Prepare the first steps of members, those of one task and lane together."""
        for _, same in groupby(members, key=lambda member: id(member.steps[0].task)):
            rest = list(same)
            for at in range(0, len(rest), MAX_BATCH):
                part = rest[at : at + MAX_BATCH]
                calls = [(member.steps[0].args, member.steps[0].kwargs) for member in part]
                for lane, positions in by_lane(part[0].steps[0].task, calls).items():
                    own = [part[position] for position in positions]
                    for portion in in_portions(self._outgoing(own, lane)):
                        yield own[: len(portion.ids)], portion
                        own = own[len(portion.ids) :]

    def _outgoing(self, members: Sequence[Member], lane: int | None) -> Outgoing:
        firsts = [member.steps[0] for member in members]
        outgoing = prepare_calls(
            firsts[0].task,
            [(each.args, each.kwargs) for each in firsts],
            ids=[member.task_ids[0] for member in members],
            said=[{META: self.membership(member, 0).words()} for member in members],
            lane=lane,
        )
        return replace(outgoing, are_members=True)

    def membership(self, member: Member, step: int) -> Membership:
        """Return the membership of a step."""
        following = None
        if step + 1 < len(member.steps):
            following = Ref(member.task_ids[step + 1], member.steps[step + 1].queue_name)
        return Membership(
            workflow_id=self._id,
            member=member.number,
            step=step,
            takes="result" if step and member.steps[step].takes_result else "",
            following=following,
            then=self.then_ref,
            on_failure=self.on_failure_ref,
        )

    # -- Calls --------------------------------------------------------------------------------------------------------

    def creating(self) -> Call[list[str]]:
        """Return the call that creates the workflow; its result are the queues that do not exist."""
        names = self._later_queues()
        namespace = self.client.namespace
        return create(namespace, self._id, keep_ms=self._keep_ms, fields=self._fields(), queue_names=names)

    def starting(self, batches: Sequence[Outgoing], steps: Sequence[Step]) -> Call[list[str]] | None:
        """Return the call that makes, sends and seals all of it, in one step; None when it is too much for that.

        It tells which of its queues do not exist; nothing was done if there is one.
        """
        calls = sum(len(member.steps) for member in self.members)
        size = sum(len(body) for outgoing in batches for body in outgoing.bodies) + sum(len(body) for _, body in steps)
        is_unique = any(outgoing.digests for outgoing in batches)
        if not batches or calls > MAX_BATCH or size > MOST_BYTES or is_unique:
            return None
        numbers = {member.task_ids[0]: member.number for member in self.members}
        return start(
            self.client.namespace,
            self._id,
            keep_ms=self._keep_ms,
            calls=calls,
            fields=self._fields() | self._proofs(len(self.members)),
            steps=steps,
            later_queues=self._later_queues(),
            batches=[outgoing.batch(numbers) for outgoing in batches],
        )

    @property
    def _keep_ms(self) -> int:
        return max(1, round((self.keep_s + self._longest_delay_s) * 1000))

    def _fields(self) -> dict[str, str]:
        return {
            "kind": self.kind,
            "name": self.name,
            "keeps": str(int(self.keeps_results)),
            "always": str(int(self.then_always)),
            "then": self.then_ref.task_id if self.then_ref else "",
            "on_failure": self.on_failure_ref.task_id if self.on_failure_ref else "",
            "shape": self._shape(),
        }

    def _shape(self) -> str:
        return shape_text(
            [([step.task.module_path for step in member.steps], member.task_ids) for member in self.members],
            mapped=self.mapped,
            then=self._then.task.module_path if self._then else "",
            on_failure=self._on_failure.task.module_path if self._on_failure else "",
        )

    def _proofs(self, members: int) -> dict[str, str]:
        return member_fields(self._id, members, then=self.then_ref, on_failure=self.on_failure_ref)

    def _later_queues(self) -> list[str]:
        # Workers do not poll a priority band that was never used; sending creates that of the first step.
        later = [step for member in self.members for step in member.steps[1:]]
        callbacks = [each for each in (self._then, self._on_failure) if each is not None]
        return list(dict.fromkeys(each.queue_name for each in [*later, *callbacks]))

    def steps(self) -> list[Step]:
        """Return the later calls: callbacks, and all steps of members but the first."""
        return self._callbacks() + [
            (f"{member.number}.{step}", self._prepared(member.steps[step], member.task_ids[step], membership))
            for member in self.members
            for step in range(1, len(member.steps))
            for membership in (self.membership(member, step),)
        ]

    def expecting(self, members: Sequence[Member]) -> list[Call[Any]]:
        """Return the calls that register members."""
        calls: list[Call[Any]] = []
        for at in range(0, len(members), MAX_BATCH):
            part = members[at : at + MAX_BATCH]
            task_ids = [_standing(member) for member in part]
            count = sum(len(member.steps) for member in part)
            calls.append(expect(self.client.namespace, self._id, first=part[0].number, calls=count, task_ids=task_ids))
        return calls

    def sealing(self, members: int) -> Call[bool]:
        """Return the call that seals the workflow with this number of members."""
        namespace = self.client.namespace
        targets = callbacks(namespace, self.then_ref, self.on_failure_ref)
        return seal(namespace, self._id, members=members, targets=targets, fields=self._proofs(members))

    def skipping(self, member: Member) -> Call[bool]:
        """Return the call for a member whose call was not sent, because it is a duplicate."""
        namespace = self.client.namespace
        membership = self.membership(member, 0)
        value = proven("null", membership, "value")
        return skip(namespace, self._id, member.number, _standing(member), membership.targets(namespace), value)

    def _callbacks(self) -> list[Step]:
        found: list[Step] = []
        ways: list[tuple[str, Invocation | None, Ref | None, Takes]] = [
            ("then", self._then, self.then_ref, "results"),
            ("on_failure", self._on_failure, self.on_failure_ref, "failures"),
        ]
        for name, invocation, ref, takes in ways:
            if invocation is not None and ref is not None:
                membership = Membership(workflow_id=self._id, takes=takes if invocation.takes_result else "")
                found.append((name, self._prepared(invocation, ref.task_id, membership)))
        return found

    def _prepared(self, invocation: Invocation, task_id: str, membership: Membership) -> bytes:
        """Return a step as tasks/lua/workflow/parts/state.lua describes it."""
        task = invocation.task
        outgoing = prepare_calls(
            task,
            [(invocation.args, invocation.kwargs)],
            ids=[task_id],
            said=[{META: membership.words()}],
            lane=invocation.lane,
        )
        with sending(outgoing.span, is_alone=False):
            pass  # ends the span of the call now, because no span is open when it is sent
        when = outgoing.queue.vt_unit if task.run_after is None else f"{task.run_after.timestamp() * 1000:.0f}"
        record_ttl_s = UNFINISHED_TTL_S if result_ttl_s(task) else 0
        return f"{when} {record_ttl_s} ".encode() + outgoing.bodies[0]

    def preparing(self, steps: Sequence[Step]) -> list[Call[Any]]:
        """Return the calls that store the later steps."""
        namespace = self.client.namespace
        parts = portions(steps, lambda step: len(step[1]), count=STEPS_AT_ONCE)
        return [prepare(namespace, self._id, part) for part in parts]


def _check_options(name: object, keep_s: object) -> None:
    """Raise ValueError for options that would fail only when the transaction has committed."""
    try:
        name.encode()  # type: ignore[attr-defined]
    except (AttributeError, UnicodeEncodeError) as error:
        raise ValueError(f"name is {name!r}; it must be a text that UTF-8 can hold") from error
    if not is_number(keep_s) or not 0 < keep_s <= LONGEST_KEEP_S:
        raise ValueError(f"keep_s is {keep_s!r}; it must be a number of seconds above 0, at most {LONGEST_KEEP_S}")


def _standing(member: Member) -> str:
    """Return the owner of a member: its first task, and the queue that it must end from if that is sealed."""
    return member.task_ids[0] + owner_of(member.steps[0].task.queue_name)


def _check_feeding(giver: Task[..., Any], taker: Invocation) -> None:
    """Raise InvalidTask when a call on a sealed queue would get a result from a queue without keys."""
    settings = get_settings()
    is_safe = settings.is_sealed(giver.queue_name) or not settings.is_sealed(taker.task.queue_name)
    if taker.takes_result and not is_safe:
        raise InvalidTask(
            f"Task {taker.task.module_path}: its queue {taker.task.queue_name!r} is signed or encrypted, and it "
            f"would get the result of {giver.module_path}, whose queue {giver.queue_name!r} is not: every program that "
            "may write to that one would choose its argument; give both queues keys, or use call(...).without_result()"
        )


def _ref(invocation: Invocation | None) -> Ref | None:
    return None if invocation is None else Ref(random_suffix(), invocation.queue_name)
