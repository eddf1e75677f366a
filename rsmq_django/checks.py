"""System checks with the tag "rsmq": problems of the settings that are found without a connection.

These checks use more than the value of RSMQ: other settings and installed versions. They connect to no server, so that
`migrate` and `check` work while it is down; only check_durability() does, with `check --deploy`.
docs/reference/settings.md explains every id.
"""

from collections.abc import Iterator, Sequence
from contextlib import suppress
from importlib.util import find_spec
from typing import Any
from urllib.parse import urlsplit

import redis
from django.apps import AppConfig, apps
from django.conf import settings as django_settings
from django.core import checks, mail
from django.core.checks import CheckMessage
from django.core.exceptions import ImproperlyConfigured
from django.utils.module_loading import autodiscover_modules
from django.utils.version import get_version_tuple

from .conf.caches import cache_url
from .conf.options import URL, nearest, shown
from .conf.problem_ids import UNKNOWN_CONNECTION
from .conf.sections import ADMINS
from .conf.settings import ConnectionSettings, PipelineSettings, Settings, read_settings
from .conf.timetable import can_read_cron
from .core import RsmqError
from .core.errors import InvalidValue
from .core.transport.factories import database_of, has_credentials, service_of
from .core.transport.handshake import find_provider
from .live.durability import shortfalls
from .tasks.task_modules import unimported_modules

TAG = "rsmq"
BACKEND = "rsmq_django.tasks.backend.RSMQBackend"
#: redis-py releases covered by the tests. Other releases may repeat commands or block in untested ways.
OLDEST_REDIS_PY, FIRST_UNKNOWN_REDIS_PY = (5, 2), (9,)
#: Default of Kubernetes' terminationGracePeriodSeconds, after which it sends SIGKILL.
ORCHESTRATOR_GRACE_S = 30


def check_project(app_configs: Sequence[AppConfig] | None, **_: Any) -> list[CheckMessage]:
    """Return all problems of the project's settings."""
    settings, problems = read_settings(getattr(django_settings, "RSMQ", None))
    if problems:
        return [checks.Error(f"{problem.message}.", hint=problem.hint, id=problem.id) for problem in problems]
    return [
        *check_caches(settings),
        *check_sentinels(settings),
        *check_credential_providers(settings),
        *check_backend(),
        *check_backend_options(),
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
        *check_pipeline(settings),
        *check_alarms(settings),
        *check_redis_version(redis.__version__),
    ]


def check_middleware() -> Iterator[CheckMessage]:
    """Check that every middleware can be created: tasks must not run without them."""
    from .tasks.middleware import chain  # tasks import the application's settings

    try:
        chain()
    except ImproperlyConfigured as error:
        yield checks.Error(str(error), hint="docs/how-to/middleware.md shows valid entries.", id="rsmq.E011")


def check_caches(settings: Settings) -> Iterator[CheckMessage]:
    """Check that the alias of each CACHE is a Redis cache."""
    for connection in settings.own_connections.values():
        if connection.cache is not None:
            try:
                cache_url(connection.cache)
            except ImproperlyConfigured as error:
                where = f"RSMQ['CONNECTIONS'][{connection.alias!r}]['CACHE']"
                yield checks.Error(f"{where} cannot be used.", hint=str(error), id="rsmq.E008")


def check_sentinels(settings: Settings) -> Iterator[CheckMessage]:
    """Warn of a connection with a single sentinel: without it, no process finds the primary."""
    for connection in settings.own_connections.values():
        try:
            url = connection.url if connection.cache is None else cache_url(connection.cache)
        except ImproperlyConfigured:
            continue  # an error of check_caches()
        service = service_of(url) if url is not None else None
        if service is not None and len(service.sentinels) == 1:
            said = f"RSMQ['CONNECTIONS'][{connection.alias!r}] names a single sentinel, {service.where}."
            hint = "While it is down, no process finds the primary. Name all sentinels of the service."
            yield checks.Warning(said, hint=hint, id="rsmq.W007")


def uses_our_backend() -> bool:
    """Return whether a backend in TASKS is an RSMQBackend."""
    return any(backend.get("BACKEND") == BACKEND for backend in _backends().values())


def _backends() -> dict[str, Any]:
    """Return the entries of TASKS; one that is no dictionary, which Django refuses, has its type as its backend."""
    entries = getattr(django_settings, "TASKS", {}).items()
    return {
        alias: each if isinstance(each, dict) else {"BACKEND": f"of type {type(each).__name__}"}
        for alias, each in entries
    }


def check_credential_providers(settings: Settings) -> Iterator[CheckMessage]:
    """Check that credential providers can be created, and that no URL has a user or password besides one."""
    for connection in settings.own_connections.values():
        where = f"RSMQ['CONNECTIONS'][{connection.alias!r}]"
        if connection.credential_provider is None:
            continue
        try:
            find_provider(connection.credential_provider)
        except InvalidValue as error:
            hint = "Give the dotted path of a subclass of redis.credentials.CredentialProvider, or of a function."
            yield checks.Error(f"{where}: {error}", hint=hint, id="rsmq.E016")
        named = {"username", "password"} & {*connection.options}
        if named or has_credentials(_place(connection)):
            said = f"{where} has a CREDENTIAL_PROVIDER and a user or password."
            yield checks.Error(said, hint="Remove the user and password, or the provider.", id="rsmq.E016")


def check_backend() -> Iterator[CheckMessage]:
    """Warn if no backend in TASKS is an RSMQBackend: tasks then run where they are enqueued, during the request."""
    if not uses_our_backend():
        found = (
            ", ".join(f"{alias!r} is {each.get('BACKEND')}" for alias, each in _backends().items()) or "TASKS is empty"
        )
        said = f"No backend in TASKS is RSMQBackend, so no task is sent to RSMQ: {found}."
        hint = f"Add TASKS = {{'default': {{'BACKEND': {BACKEND!r}, 'QUEUES': []}}}}, unless you use queues only."
        yield checks.Warning(said, hint=hint, id="rsmq.W006")


def check_backend_options() -> Iterator[CheckMessage]:
    """Check the OPTIONS of each RSMQBackend."""
    from .tasks.backend_options import read_backend_options  # tasks import the application's settings

    for alias, backend in _backends().items():
        if backend.get("BACKEND") != BACKEND:
            continue
        for said, hint in read_backend_options(alias, backend.get("OPTIONS", {})).problems:
            yield checks.Error(f"{said}.", hint=hint, id="rsmq.E014")


def check_task_queues(settings: Settings) -> Iterator[CheckMessage]:
    """Check that every queue which TASKS allows for RSMQBackend is in RSMQ["QUEUES"]."""
    for alias, backend in _backends().items():
        if backend.get("BACKEND") != BACKEND:
            continue
        # Django allows only the queue named "default" when QUEUES is left out.
        for name in backend.get("QUEUES", ["default"]):
            if name not in settings.queues:
                said = f"TASKS[{alias!r}] allows the queue {name!r}, which is not in RSMQ['QUEUES']."
                hint = f"{nearest(name, settings.queues)} 'QUEUES': [] in TASKS allows every queue of RSMQ."
                yield checks.Error(said, hint=hint, id="rsmq.E009")


def check_database(settings: Settings) -> Iterator[CheckMessage]:
    """Check that ENQUEUE_ON_COMMIT is the alias of a database; otherwise no task could be sent."""
    alias = settings.tasks.enqueue_on_commit
    if isinstance(alias, str) and alias not in django_settings.DATABASES:
        said = f"RSMQ['TASKS']['ENQUEUE_ON_COMMIT'] is {shown(alias)}, which is not in DATABASES."
        yield checks.Error(said, hint=nearest(alias, django_settings.DATABASES), id="rsmq.E010")


def check_embedded(settings: Settings) -> Iterator[CheckMessage]:
    """Warn of an embedded server in production: it stops with the last process that uses it."""
    # Test runners switch DEBUG off, which says nothing about production. They give mail an outbox.
    if django_settings.DEBUG or hasattr(mail, "outbox"):
        return
    for connection in settings.own_connections.values():
        if connection.embedded:
            said = f"RSMQ['CONNECTIONS'][{connection.alias!r}] starts an embedded server although DEBUG is off."
            hint = "The embedded server is for development. Give the URL of a managed server."
            yield checks.Warning(said, hint=hint, id="rsmq.W001")


def check_namespaces(settings: Settings) -> Iterator[CheckMessage]:
    """Warn of two connections to the same namespace of one server: most likely an unfinished copy of an entry."""
    seen: dict[tuple[str, str], str] = {}
    for connection in settings.own_connections.values():
        first = seen.setdefault((_place(connection), connection.namespace), connection.alias)
        if first != connection.alias:
            said = f"The connections {first!r} and {connection.alias!r} use the same namespace of the same server."
            hint = "Give one of them another NAMESPACE or another server, or use one connection for both."
            yield checks.Warning(said, hint=hint, id="rsmq.W002")


def check_visibility_timeouts(settings: Settings) -> Iterator[CheckMessage]:
    """Warn of a visibility timeout of 0, which does not hide messages while they are processed."""
    for queue in settings.queues.values():
        if queue.visibility_timeout_s == 0:
            said = f"RSMQ['QUEUES'][{queue.name!r}]['VISIBILITY_TIMEOUT_S'] is 0: every worker gets the same messages."
            hint = "Set some seconds; workers renew them while a task runs."
            yield checks.Warning(said, hint=hint, id="rsmq.W003")


def check_shutdown(settings: Settings) -> Iterator[CheckMessage]:
    """Warn of a shutdown timeout longer than the orchestrator's: after SIGKILL, tasks run a second time."""
    grace_s = settings.worker.shutdown_timeout_s
    if grace_s >= ORCHESTRATOR_GRACE_S:
        said = f"RSMQ['WORKER']['SHUTDOWN_TIMEOUT_S'] is {grace_s:g}; Kubernetes kills after {ORCHESTRATOR_GRACE_S} s."
        hint = "Lower it, or raise terminationGracePeriodSeconds of your orchestrator and silence this check."
        yield checks.Warning(said, hint=hint, id="rsmq.W004")


def check_functions(settings: Settings) -> Iterator[CheckMessage]:
    """Check that the modules named tasks can be imported, and that no queue has both tasks and a consumer."""
    if not (uses_our_backend() or settings.schedules):
        return  # projects that use queues only do not need the Tasks framework
    from .tasks.registry import QueueConflict

    try:
        autodiscover_modules("tasks")
    except QueueConflict as error:
        hint = "No worker starts until this is fixed: the consumer would delete the calls of the task."
        yield checks.Error(f"{error}", hint=hint, id="rsmq.E012")
    except Exception as error:  # importing the project's tasks may raise anything
        said = f"The project's tasks cannot be imported: {error!r}"
        yield checks.Warning(said, hint="The worker will not start until this is fixed.", id="rsmq.W030")
    else:
        yield from check_topics()
        for app, module in unimported_modules():
            hint = f"Import it in ready() of the AppConfig of {app.name!r}, or in {app.name}.tasks."
            said = f"{module} declares tasks, but workers do not import it: they import only modules named tasks."
            yield checks.Warning(said, hint=hint, id="rsmq.W031")


def check_topics() -> Iterator[CheckMessage]:
    """Check that declared topic tasks and bridges name topics, queues and connections of the settings."""
    from .tasks.topic_task import check_topic_tasks

    try:
        check_topic_tasks()
    except ImproperlyConfigured as error:
        hint = "No worker starts until this is fixed: correct the topic task or bridge that names it, or the settings."
        yield checks.Error(f"{error}", hint=hint, id="rsmq.E015")


def check_schedules(settings: Settings) -> Iterator[CheckMessage]:
    """Check that the tasks and queues in RSMQ["SCHEDULES"] exist."""
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
            hint = "Correct it in RSMQ['SCHEDULES']; until then it does not fire. Other schedules do."
            yield checks.Error(f"{error}", hint=hint, id="rsmq.E032")
        except Exception:  # importing the project's tasks failed, which check_functions() reports
            return


def check_outbox(settings: Settings) -> Iterator[CheckMessage]:
    """Check that the outbox is installed if a queue uses it."""
    users = [queue.name for queue in settings.queues.values() if queue.outbox]
    if users and not apps.is_installed("rsmq_django.outbox"):
        said = f"Queue {users[0]!r} sends through the outbox, which is not installed."
        hint = "Add 'rsmq_django.outbox' to INSTALLED_APPS and run `manage.py migrate`."
        yield checks.Error(said, hint=hint, id="rsmq.E034")


def check_pipeline(settings: Settings) -> Iterator[CheckMessage]:
    """Check that the connections of RSMQ["PIPELINE"] exist; otherwise its first run would fail."""
    chosen = settings.pipeline
    named = [("CONNECTIONS", alias) for alias in chosen.connections or ()]
    # A project without a pipeline need not have the connection that is its default.
    if chosen.connection != PipelineSettings.connection or apps.is_installed("rsmq_django.pipeline"):
        named.append(("CONNECTION", chosen.connection))
    for option, alias in named:
        if alias not in settings.connections:
            said = f"RSMQ['PIPELINE'][{option!r}] has {shown(alias)}, which is not in RSMQ['CONNECTIONS']."
            yield checks.Error(said, hint=nearest(alias, settings.connections), id=UNKNOWN_CONNECTION)


def check_alarms(settings: Settings) -> Iterator[CheckMessage]:
    """Warn of burn alarms without objectives, tables or recipients."""
    pipeline = settings.pipeline
    if not pipeline.sends_alarms:
        return
    missing = [] if apps.is_installed("rsmq_django.pipeline") else ["'rsmq_django.pipeline' in INSTALLED_APPS"]
    missing += [] if pipeline.objectives else ["RSMQ['PIPELINE']['OBJECTIVES']"]
    missing += ["ADMINS"] if pipeline.alarm_email == ADMINS and not django_settings.ADMINS else []
    if missing:
        only_email = missing == ["ADMINS"] and pipeline.alarm_webhook is not None
        said = f"Burn alarms are not sent{' by e-mail' if only_email else ''}: {', '.join(missing)} is missing."
        remove = "ALARM_EMAIL" if only_email else "ALARM_EMAIL and ALARM_WEBHOOK"
        yield checks.Warning(said, hint=f"Add it, or remove {remove}.", id="rsmq.W009")


def check_redis_version(version: str) -> Iterator[CheckMessage]:
    """Warn of a release of redis-py that is not covered by the tests."""
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
    """Check that OpenTelemetry is installed if tracing is enabled."""
    if settings.tracing.enabled and find_spec("opentelemetry") is None:
        said = "RSMQ['TRACING'] is enabled, but OpenTelemetry is not installed: nothing is traced."
        yield checks.Warning(said, hint="pip install 'rsmq-django[otel]', or disable it.", id="rsmq.W040")


# -- With `manage.py check --deploy` ---------------------------------------------------------------------------------


def check_cache_databases(app_configs: Sequence[AppConfig] | None, **_: Any) -> list[CheckMessage]:
    """Warn of connections to the database of a cache, because clear() of Redis caches deletes the whole database."""
    settings, problems = read_settings(getattr(django_settings, "RSMQ", None))
    return [] if problems else [*_check_cache_databases(settings)]


def _check_cache_databases(settings: Settings) -> Iterator[CheckMessage]:
    caches: dict[tuple[str, int], str] = {}
    for alias in django_settings.CACHES:
        with suppress(ImproperlyConfigured):  # it is not in Redis
            caches.setdefault(_database_of(cache_url(alias)), alias)
    for connection in settings.own_connections.values():
        place = _place(connection)
        cache = caches.get(_database_of(place)) if URL.accepts(place) else None
        if cache is not None:
            said = (
                f"The connection {connection.alias!r} uses the database of CACHES[{cache!r}], whose clear() empties it."
            )
            hint = "Give it a URL with another database or server, or never clear that cache and silence this check."
            yield checks.Warning(said, hint=hint, id="rsmq.W010")


def _database_of(url: str) -> tuple[str, int]:
    """Return the server and the number of the database in a valid URL."""
    parts = urlsplit(url)
    is_tcp = parts.scheme in ("redis", "rediss")
    server = f"{parts.hostname}:{parts.port or 6379}" if is_tcp else parts.netloc.rpartition("@")[2] + parts.path
    return server, database_of(url)


# -- Questions to servers, with `manage.py check --deploy` -----------------------------------------------------------


def check_durability(app_configs: Sequence[AppConfig] | None, **_: Any) -> list[CheckMessage]:
    """Return what servers lack. Wrong settings are reported by check_project()."""
    settings, problems = read_settings(getattr(django_settings, "RSMQ", None))
    return [] if problems else [*_check_servers(settings)]


def _check_servers(settings: Settings) -> Iterator[CheckMessage]:
    for alias in settings.own_connections:
        try:
            found = shortfalls(settings, alias)
        except (RsmqError, redis.RedisError) as error:
            said = f"The server of the connection {alias!r} could not be asked about its replicas: {error}"
            yield checks.Warning(said, hint="Start it, or allow its user ROLE, and check again.", id="rsmq.W008")
            continue
        for each in found:
            text = f"{each.text[0].upper()}{each.text[1:]}."
            yield checks.Warning(text, hint=each.hint, id="rsmq.W008")
