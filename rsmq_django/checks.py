"""System checks of the tag "rsmq": what is wrong with the settings, found without a connection.

Knows the rules that need more than the value of RSMQ: other settings, installed versions. Refuses to talk to a
server, so that `migrate` and `check` work while it is down. Every id is explained in docs/settings.md.
"""

from collections.abc import Iterator, Sequence
from importlib.util import find_spec
from typing import Any

import redis
from django.apps import AppConfig, apps
from django.conf import settings as django_settings
from django.core import checks
from django.core.checks import CheckMessage
from django.core.exceptions import ImproperlyConfigured
from django.utils.module_loading import autodiscover_modules
from django.utils.version import get_version_tuple

from .caches import cache_url
from .conf import ConnectionSettings, Settings, read_settings
from .options import nearest, shown
from .task_modules import unimported_modules
from .timetable import can_read_cron

TAG = "rsmq"
BACKEND = "rsmq_django.tasks.backend.RSMQBackend"
#: redis-py releases that the tests run with. Others may repeat commands, or wait, in ways we have not seen.
OLDEST_REDIS_PY, FIRST_UNKNOWN_REDIS_PY = (5, 2), (9,)
#: Kubernetes' terminationGracePeriodSeconds, after which it kills.
ORCHESTRATOR_GRACE_S = 30


def check_project(app_configs: Sequence[AppConfig] | None, **_: Any) -> list[CheckMessage]:
    """Return everything that is wrong with the project's settings."""
    settings, problems = read_settings(getattr(django_settings, "RSMQ", None))
    if problems:
        return [checks.Error(f"{problem.message}.", hint=problem.hint, id=problem.id) for problem in problems]
    return [
        *check_caches(settings),
        *check_backend(),
        *check_task_queues(settings),
        *check_database(settings),
        *check_embedded(settings),
        *check_namespaces(settings),
        *check_tracing(settings),
        *check_middleware(),
        *check_visibility_timeouts(settings),
        *check_shutdown(settings),
        *check_functions(settings),
        *check_schedules(settings),
        *check_outbox(settings),
        *check_redis_version(redis.__version__),
    ]


def check_middleware() -> Iterator[CheckMessage]:
    """Check that every middleware can be made: without one, no task could run as it should."""
    from .tasks.middleware import chain  # tasks import the application's settings

    try:
        chain()
    except ImproperlyConfigured as error:
        yield checks.Error(str(error), hint="docs/middleware.md shows what an entry may be.", id="rsmq.E011")


def check_caches(settings: Settings) -> Iterator[CheckMessage]:
    """Check that the alias of each CACHE is a Redis cache."""
    for connection in settings.connections.values():
        if connection.cache is not None:
            try:
                cache_url(connection.cache)
            except ImproperlyConfigured as error:
                where = f"RSMQ['CONNECTIONS'][{connection.alias!r}]['CACHE']"
                yield checks.Error(f"{where} cannot be used.", hint=str(error), id="rsmq.E008")


def uses_our_backend() -> bool:
    """Return whether a backend in TASKS is ours."""
    return any(backend.get("BACKEND") == BACKEND for backend in _backends().values())


def _backends() -> dict[str, Any]:
    return getattr(django_settings, "TASKS", {})


def check_backend() -> Iterator[CheckMessage]:
    """Warn when no Tasks backend is ours: tasks then run where they are enqueued, in the middle of the request."""
    if not uses_our_backend():
        found = (
            ", ".join(f"{alias!r} is {each.get('BACKEND')}" for alias, each in _backends().items()) or "TASKS is empty"
        )
        said = f"No backend in TASKS is RSMQBackend, so no task goes through RSMQ: {found}."
        hint = f"Add TASKS = {{'default': {{'BACKEND': {BACKEND!r}, 'QUEUES': []}}}}, unless you only use queues."
        yield checks.Warning(said, hint=hint, id="rsmq.W006")


def check_task_queues(settings: Settings) -> Iterator[CheckMessage]:
    """Check that every queue which TASKS allows on our backend is one of ours."""
    for alias, backend in getattr(django_settings, "TASKS", {}).items():
        if backend.get("BACKEND") != BACKEND:
            continue
        # Django allows only the queue named "default" when QUEUES is left out.
        for name in backend.get("QUEUES", ["default"]):
            if name not in settings.queues:
                said = f"TASKS[{alias!r}] allows the queue {name!r}, which is not in RSMQ['QUEUES']."
                hint = f"{nearest(name, settings.queues)} 'QUEUES': [] in TASKS allows every queue of RSMQ."
                yield checks.Error(said, hint=hint, id="rsmq.E009")


def check_database(settings: Settings) -> Iterator[CheckMessage]:
    """Check that ENQUEUE_ON_COMMIT names a database, without which no task could be sent."""
    alias = settings.tasks.enqueue_on_commit
    if isinstance(alias, str) and alias not in django_settings.DATABASES:
        said = f"RSMQ['TASKS']['ENQUEUE_ON_COMMIT'] is {shown(alias)}, which is not in DATABASES."
        yield checks.Error(said, hint=nearest(alias, django_settings.DATABASES), id="rsmq.E010")


def check_embedded(settings: Settings) -> Iterator[CheckMessage]:
    """Warn of an embedded server in production: it lives and dies with the processes that use it."""
    for connection in settings.connections.values():
        if connection.embedded and not django_settings.DEBUG:
            said = f"RSMQ['CONNECTIONS'][{connection.alias!r}] starts a server of its own although DEBUG is off."
            hint = "The embedded server is for development. Give the URL of a server that is looked after."
            yield checks.Warning(said, hint=hint, id="rsmq.W001")


def check_namespaces(settings: Settings) -> Iterator[CheckMessage]:
    """Warn of two connections to one namespace of one server: most likely a copy that was not finished."""
    seen: dict[tuple[str, str], str] = {}
    for connection in settings.connections.values():
        first = seen.setdefault((_place(connection), connection.namespace), connection.alias)
        if first != connection.alias:
            said = f"The connections {first!r} and {connection.alias!r} are the same namespace of the same server."
            hint = "Give one of them another NAMESPACE or another server, or use one connection for both."
            yield checks.Warning(said, hint=hint, id="rsmq.W002")


def check_visibility_timeouts(settings: Settings) -> Iterator[CheckMessage]:
    """Warn of a visibility timeout of 0, which hides no message while it is worked on."""
    for queue in settings.queues.values():
        if queue.visibility_timeout_s == 0:
            said = f"RSMQ['QUEUES'][{queue.name!r}]['VISIBILITY_TIMEOUT_S'] is 0: every worker gets the same messages."
            hint = "Set some seconds; workers renew them while a task runs."
            yield checks.Warning(said, hint=hint, id="rsmq.W003")


def check_shutdown(settings: Settings) -> Iterator[CheckMessage]:
    """Warn of a grace period that the orchestrator may cut short: SIGKILL, and a second run elsewhere."""
    grace_s = settings.worker.shutdown_timeout_s
    if grace_s >= ORCHESTRATOR_GRACE_S:
        said = f"RSMQ['WORKER']['SHUTDOWN_TIMEOUT_S'] is {grace_s:g}; Kubernetes kills after {ORCHESTRATOR_GRACE_S} s."
        hint = "Lower it, or let your orchestrator wait longer (terminationGracePeriodSeconds) and silence this check."
        yield checks.Warning(said, hint=hint, id="rsmq.W004")


def check_functions(settings: Settings) -> Iterator[CheckMessage]:
    """Check that the modules named tasks can be imported: among them, no queue has both tasks and a consumer."""
    if not (uses_our_backend() or settings.schedules):
        return  # the Tasks framework is not needed by projects that only use queues
    from .tasks.registry import QueueConflict

    try:
        autodiscover_modules("tasks")
    except QueueConflict as error:
        hint = "Until then no worker starts: the consumer would delete the calls of the task."
        yield checks.Error(f"{error}", hint=hint, id="rsmq.E012")
    except Exception as error:  # whatever importing the project's tasks raises
        said = f"The project's tasks cannot be imported: {error!r}"
        yield checks.Warning(said, hint="The worker will not start, either.", id="rsmq.W030")
    else:
        for app, module in unimported_modules():
            hint = f"Import it in ready() of the AppConfig of {app.name!r}, or in {app.name}.tasks."
            said = f"{module} declares tasks, and workers do not import it: only modules named tasks are imported."
            yield checks.Warning(said, hint=hint, id="rsmq.W031")


def check_schedules(settings: Settings) -> Iterator[CheckMessage]:
    """Check that what RSMQ["SCHEDULES"] names exists."""
    if not settings.schedules:
        return
    if any(entry.cron for entry in settings.schedules.values()) and not can_read_cron():
        hint = "Install rsmq-django[cron]."
        yield checks.Error("RSMQ['SCHEDULES'] has cron expressions, which need cronsim.", hint=hint, id="rsmq.E033")
    from .tasks.schedule import UnusableSchedule, task_of

    for entry in settings.schedules.values():
        try:
            task_of(entry)
        except UnusableSchedule as error:
            hint = "Correct it in RSMQ['SCHEDULES']; until then it does not fire, and the others do."
            yield checks.Error(f"{error}", hint=hint, id="rsmq.E032")
        except Exception:  # importing the project's tasks failed, which check_functions() reports
            return


def check_outbox(settings: Settings) -> Iterator[CheckMessage]:
    """Check that the outbox is installed where a queue uses it."""
    users = [queue.name for queue in settings.queues.values() if queue.outbox]
    if users and not apps.is_installed("rsmq_django.outbox"):
        said = f"Queue {users[0]!r} sends through the outbox, which is not installed."
        hint = "Add 'rsmq_django.outbox' to INSTALLED_APPS and run `manage.py migrate`."
        yield checks.Error(said, hint=hint, id="rsmq.E034")


def check_redis_version(version: str) -> Iterator[CheckMessage]:
    """Warn of a release of redis-py whose behaviour the tests have not seen."""
    if not OLDEST_REDIS_PY <= get_version_tuple(version) < FIRST_UNKNOWN_REDIS_PY:
        yield checks.Warning(
            f"redis-py {version} is outside the range that rsmq-django is tested with.",
            hint="Install redis>=5.2,<9.",
            id="rsmq.W005",
        )


def _place(connection: ConnectionSettings) -> str:
    if connection.cache is not None:
        try:
            return cache_url(connection.cache)
        except ImproperlyConfigured:  # reported by check_caches
            return f"cache:{connection.cache}"
    return connection.url or f"embedded:{connection.state_dir}"


def check_tracing(settings: Settings) -> Iterator[CheckMessage]:
    """Check that there is something to trace with."""
    if settings.tracing.enabled and find_spec("opentelemetry") is None:
        said = "RSMQ['TRACING'] is enabled, but OpenTelemetry is not installed: nothing is traced."
        yield checks.Warning(said, hint="pip install 'rsmq-django[otel]', or switch it off.", id="rsmq.W040")
