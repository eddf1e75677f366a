"""What the admin shows: unmanaged models whose rows are read from Redis at the moment they are asked for.

Nothing here has a table. There are no foreign keys between them, because deleting would follow those with SQL; and
nothing can be saved, because a change in Redis is a script that compares with what somebody saw.
"""

from __future__ import annotations

from typing import Any, ClassVar

from django.db import NotSupportedError, models
from django.utils.translation import gettext_lazy as _

from .core.browse import StoredMessage
from .core.listing import WorkerBeat
from .core.processes import ProcessRecord
from .live.listed import ReliableQueueSource, TopicSource
from .live.messages import DEAD, DELAYED, IN_FLIGHT, READY, MessageSource
from .live.past import QueuePast
from .live.places import Place, place_of
from .live.queryset import LiveQuerySet, Source
from .live.queues import QueueSource
from .live.results import ResultSource
from .live.schedules import ScheduleSource
from .live.tasks import TaskSource
from .live.workers import WorkerSource


class LiveManager(models.Manager[Any]):
    """Makes querysets that read from a source."""

    def __init__(self, source_class: type[Any]) -> None:
        super().__init__()
        self.source_class = source_class

    def get_queryset(self) -> LiveQuerySet:
        """Return a queryset with a source of its own, which remembers what it has read."""
        queryset = LiveQuerySet(self.model, using=self._db)
        source: Source = self.source_class(self.model)
        queryset.source = source
        return queryset


class LiveModel(models.Model):
    """The base of all models here."""

    class Meta:
        abstract = True
        managed = False
        # dumpdata reads through the base manager; ours answers it with nothing.
        base_manager_name = "objects"
        default_permissions: ClassVar[tuple[str, ...]] = ("view",)

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._state.adding = False  # the admin takes it for a new one otherwise
        self._state.db = "default"

    def save(self, *args: Any, **kwargs: Any) -> None:
        """Refuse."""
        raise NotSupportedError(f"{self._meta.label} lives in Redis and cannot be saved")

    def delete(self, *args: Any, **kwargs: Any) -> tuple[int, dict[str, int]]:
        """Refuse: the admin deletes with a script that compares with what was seen."""
        raise NotSupportedError(f"{self._meta.label} lives in Redis; use rsmq_django.core to delete it")

    def refresh_from_db(self, *args: Any, **kwargs: Any) -> None:
        """Read the row anew. Raises DoesNotExist."""
        fresh = type(self)._default_manager.get(pk=self.pk)
        self.__dict__.update(fresh.__dict__)


class Queue(LiveModel):
    """An RSMQ queue."""

    key = models.CharField(primary_key=True, max_length=500, editable=False)
    name = models.CharField(_("name"), max_length=160, editable=False)
    connection = models.CharField(_("connection"), max_length=100, editable=False)
    is_configured = models.BooleanField(_("configured"), default=False, editable=False)
    holds_dead_letters = models.BooleanField(_("dead letters"), default=False, editable=False)
    is_paused = models.BooleanField(_("paused"), default=False, editable=False)
    is_broken = models.BooleanField(_("broken"), default=False, editable=False)
    visibility_timeout_s = models.FloatField(_("visibility timeout (s)"), default=0)
    delay_s = models.FloatField(_("delay (s)"), default=0)
    max_size_bytes = models.IntegerField(_("maximum size (bytes)"), default=0)
    messages = models.BigIntegerField(_("messages"), default=0, editable=False)
    ready = models.BigIntegerField(_("ready"), default=0, editable=False)
    hidden = models.BigIntegerField(_("delayed or in flight"), default=0, editable=False)
    oldest_ready_s = models.FloatField(_("oldest ready (s)"), null=True, editable=False)
    next_due_s = models.FloatField(_("next due (s)"), null=True, editable=False)
    total_sent = models.BigIntegerField(_("sent"), default=0, editable=False)
    total_received = models.BigIntegerField(_("received"), default=0, editable=False)
    created_at = models.DateTimeField(_("created"), null=True, editable=False)
    modified_at = models.DateTimeField(_("changed"), null=True, editable=False)

    objects = LiveManager(QueueSource)

    #: Only on rows of the list: what happened lately, and how many processes take messages from it.
    past: QueuePast | None
    processes: int

    class Meta(LiveModel.Meta):
        abstract = False
        verbose_name = _("queue")
        verbose_name_plural = _("queues")
        ordering = ("name",)
        default_permissions = ("view", "change", "delete")
        permissions = (
            ("send_message", _("Can send messages and enqueue tasks")),
            ("purge_queue", _("Can purge queue")),
            ("pause_queue", _("Can pause and resume queue")),
        )

    def __str__(self) -> str:
        return self.key

    @property
    def place(self) -> Place:
        """Return where it is."""
        place = place_of(self.key)
        assert place is not None, f"{self.key!r} came from a place"
        return place


class Message(LiveModel):
    """A message in a queue, or a dead letter."""

    STATES: ClassVar = [
        (READY, _("Ready")),
        (DELAYED, _("Delayed")),
        (IN_FLIGHT, _("In flight")),
        (DEAD, _("Dead letter")),
    ]

    key = models.CharField(primary_key=True, max_length=700, editable=False)
    queue = models.CharField(_("queue"), max_length=500)
    message_id = models.CharField(_("message id"), max_length=200)
    state = models.CharField(_("state"), max_length=9, choices=STATES)
    task = models.CharField(_("task"), max_length=500)
    error = models.CharField(_("error"), max_length=500)
    receive_count = models.PositiveIntegerField(_("receive count"))
    visible_at = models.DateTimeField(_("visible from"), null=True)
    sent_at = models.DateTimeField(_("sent"), null=True)
    first_received_at = models.DateTimeField(_("first received"), null=True)
    size_bytes = models.BigIntegerField(_("size"), null=True)

    objects = LiveManager(MessageSource)

    #: What the row was made of; only on rows that were read.
    place: Place
    stored: StoredMessage
    now_ms: int

    class Meta(LiveModel.Meta):
        abstract = False
        verbose_name = _("message")
        verbose_name_plural = _("messages")
        ordering = ("queue", "visible_at")
        default_permissions = ("view", "delete")
        permissions = (
            ("view_body", _("Can view bodies, results and errors")),
            ("move_message", _("Can run messages now, delay and move them")),
            ("redrive_message", _("Can redrive dead letters")),
        )

    def __str__(self) -> str:
        return self.key


class Worker(LiveModel):
    """A worker process."""

    STATES: ClassVar = [
        ("working", _("Working")),
        ("quiet", _("Quiet")),
        ("stopping", _("Stopping")),
        ("silent", _("Silent")),
        ("unknown", _("Unknown")),
    ]

    key = models.CharField(primary_key=True, max_length=700, editable=False)
    worker_id = models.CharField(_("worker"), max_length=500)
    connection = models.CharField(_("connection"), max_length=100)
    last_beat_at = models.DateTimeField(_("last heard of"), null=True)
    is_alive = models.BooleanField(_("alive"))
    state = models.CharField(_("state"), max_length=8, choices=STATES)
    host = models.CharField(_("host"), max_length=200)
    pid = models.PositiveIntegerField(_("process id"), null=True)
    version = models.CharField(_("version"), max_length=50)
    queues = models.TextField(_("queues"))
    running = models.PositiveIntegerField(_("running"), null=True)
    longest_run_s = models.FloatField(_("the longest for (s)"), null=True)
    memory_bytes = models.BigIntegerField(_("memory"), null=True)
    started_at = models.DateTimeField(_("started"), null=True)

    objects = LiveManager(WorkerSource)

    #: What the row was made of; only on rows that were read. A worker without a supervisor has no record.
    beat: WorkerBeat
    record: ProcessRecord | None

    class Meta(LiveModel.Meta):
        abstract = False
        verbose_name = _("worker")
        verbose_name_plural = _("workers")
        ordering = ("worker_id",)
        permissions = (("control_worker", _("Can control workers")),)

    def __str__(self) -> str:
        return self.worker_id


class Result(LiveModel):
    """What became of a task."""

    task_id = models.CharField(_("task id"), primary_key=True, max_length=64, editable=False)
    connection = models.CharField(_("connection"), max_length=100)
    status = models.CharField(_("status"), max_length=20)
    queue = models.CharField(_("queue"), max_length=160)
    message_id = models.CharField(_("message id"), max_length=200)
    attempts = models.PositiveIntegerField(_("attempts"))
    enqueued_at = models.DateTimeField(_("enqueued"), null=True)
    started_at = models.DateTimeField(_("started"), null=True)
    finished_at = models.DateTimeField(_("finished"), null=True)

    objects = LiveManager(ResultSource)

    #: The record as it is stored; only on rows that were read.
    record: dict[str, str]

    class Meta(LiveModel.Meta):
        abstract = False
        verbose_name = _("task result")
        verbose_name_plural = _("task results")
        ordering = ("task_id",)

    def __str__(self) -> str:
        return self.task_id


class Topic(LiveModel):
    """A log of messages that any number of groups read."""

    key = models.CharField(primary_key=True, max_length=500, editable=False)
    name = models.CharField(_("name"), max_length=160)
    connection = models.CharField(_("connection"), max_length=100)
    is_broken = models.BooleanField(_("broken"), default=False)
    messages = models.BigIntegerField(_("messages"), default=0)
    first = models.BigIntegerField(_("first index"), default=0)
    last = models.BigIntegerField(_("last index"), default=0)
    groups = models.PositiveIntegerField(_("groups"), default=0)
    oldest_at = models.DateTimeField(_("oldest"), null=True)
    newest_at = models.DateTimeField(_("newest"), null=True)

    objects = LiveManager(TopicSource)

    class Meta(LiveModel.Meta):
        abstract = False
        verbose_name = _("topic")
        verbose_name_plural = _("topics")
        ordering = ("name",)
        permissions = (("seek_topic", _("Can replay topics and set groups")),)

    def __str__(self) -> str:
        return self.key


class ReliableQueue(LiveModel):
    """A queue whose messages stay on record until they are acknowledged."""

    key = models.CharField(primary_key=True, max_length=500, editable=False)
    name = models.CharField(_("name"), max_length=160)
    connection = models.CharField(_("connection"), max_length=100)
    waiting = models.BigIntegerField(_("waiting"), default=0)
    delayed = models.BigIntegerField(_("delayed"), default=0)
    pending = models.BigIntegerField(_("pending"), default=0)
    dead = models.BigIntegerField(_("dead"), default=0)
    oldest_pending_s = models.FloatField(_("oldest pending (s)"), null=True)
    max_deliveries = models.PositiveIntegerField(_("most deliveries"), default=0)

    objects = LiveManager(ReliableQueueSource)

    class Meta(LiveModel.Meta):
        abstract = False
        verbose_name = _("reliable queue")
        verbose_name_plural = _("reliable queues")
        ordering = ("name",)
        permissions = (
            ("settle_reliablequeue", _("Can acknowledge, give back and bury pending messages")),
            ("redrive_reliablequeue", _("Can redrive dead messages")),
            ("discard_reliablequeue", _("Can discard dead messages")),
        )

    def __str__(self) -> str:
        return self.key


class Schedule(LiveModel):
    """What runs a task again and again."""

    name = models.CharField(_("name"), primary_key=True, max_length=200, editable=False)
    connection = models.CharField(_("connection"), max_length=100)
    task = models.CharField(_("task"), max_length=500)
    queue = models.CharField(_("queue"), max_length=160)
    when = models.CharField(_("when"), max_length=200)
    is_declared = models.BooleanField(_("declared in code"), default=False)
    is_paused = models.BooleanField(_("paused"), default=False)
    next_at = models.DateTimeField(_("next"), null=True)
    last_planned_at = models.DateTimeField(_("planned"), null=True)
    last_fired_at = models.DateTimeField(_("last"), null=True)
    last_task_id = models.CharField(_("last task id"), max_length=64)
    fired = models.BigIntegerField(_("fired"), default=0)
    skipped = models.BigIntegerField(_("skipped"), default=0)
    problem = models.TextField(_("problem"))

    objects = LiveManager(ScheduleSource)

    #: What the row was made of (schedules.Entry); only on rows that were read.
    entry: Any

    class Meta(LiveModel.Meta):
        abstract = False
        verbose_name = _("schedule")
        verbose_name_plural = _("schedules")
        ordering = ("name",)
        permissions = (
            ("run_schedule", _("Can run a schedule now")),
            ("pause_schedule", _("Can pause and resume schedules")),
        )

    def __str__(self) -> str:
        return self.name


class RegisteredTask(LiveModel):
    """A task of the project."""

    path = models.CharField(_("task"), primary_key=True, max_length=500, editable=False)
    queue = models.CharField(_("queue"), max_length=500)
    is_registered = models.BooleanField(_("declared"), default=True)
    succeeded = models.BigIntegerField(_("succeeded"), default=0)
    failed = models.BigIntegerField(_("failed attempts"), default=0)
    dead = models.BigIntegerField(_("dead letters"), default=0)
    run_median_s = models.FloatField(_("median run time (s)"), null=True)
    run_p95_s = models.FloatField(_("p95 run time (s)"), null=True)

    objects = LiveManager(TaskSource)

    #: The task as it was declared, None for one that is only counted; and where it was counted. On rows that were read.
    task: Any
    queue_names: list[str]

    class Meta(LiveModel.Meta):
        abstract = False
        verbose_name = _("task")
        verbose_name_plural = _("tasks")
        ordering = ("path",)

    def __str__(self) -> str:
        return self.path
