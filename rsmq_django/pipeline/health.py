"""Health of the pipeline: findings with hints about its requirements and its lag. Does not start Spark."""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from django.apps import apps

from ..conf.settings import Settings, get_settings
from ..core.errors import RsmqError
from ..core.keys import events_key
from ..core.transport.streams import BEGINNING, id_order, step
from ..spark.bulk import unfinished_jobs
from ..spark.config import JobConfig
from ..spark.delta import Table
from ..spark.errors import PipelineError
from ..spark.files import is_local
from ..spark.lake import Lake
from ..spark.options import named_log
from ..spark.runs import DAYS_READ, read_runs
from ..spark.schemas import EVENTS, TABLES
from ..spark.server import NO_ANSWER, Server
from ..spark.transfer import is_latest_log, read_offset
from .config import archived_connections
from .state import MOST_CLOCK_S, LogHealth, StepState, log_state, steps_of, worst_log, worst_of

OLDEST_JAVA = 17
#: A log that is this full may be trimmed before the next run.
FULL_SHARE = 0.5


@dataclass(frozen=True, slots=True)
class CheckResult:
    """The result of a check."""

    state: Literal["ok", "warning", "problem"]
    text: str
    #: The remedy.
    hint: str = ""


@dataclass(frozen=True, slots=True)
class Lag:
    """The lag of the archive."""

    #: Entries that are not archived.
    entries: int
    length: int
    #: Entries that were trimmed before they were archived, and are not recorded as lost yet.
    lost_unseen: int
    log: LogHealth
    #: The log no longer contains the archive's position: it was recreated, or a failover lost its end.
    is_reset: bool = False
    #: The latest batch is of another log: of another server, or of a log that was deleted since.
    is_other: bool = False


def examine(config: JobConfig, servers: Mapping[str, Server]) -> Iterator[CheckResult]:
    """Yield the findings, requirements of Spark first. The first one of the servers has the bulk jobs."""
    said: set[str] = set()
    for check in (_packages, _java, _python, lambda: _lake(config.find_lake()), _tables, _recording, _connections):
        for finding in check():
            said.add(finding.text)
            yield finding
    if importlib.util.find_spec("deltalake") is None:
        return  # the position of the archive is in the lake
    first, server = next(iter(servers.items()))
    try:
        lags, failed = read_lags(config, servers)
        for name, lag in lags.items():
            yield from _lag(lag, name if len(servers) > 1 else "")
        if len(lags) > 1:
            yield CheckResult("ok", in_all(lags))
        for name, error in failed.items():
            yield _no_answer(name, error)
        if first in lags:
            yield from _redis(config, server)
    except PipelineError as error:
        if str(error) not in said:
            yield CheckResult("problem", str(error))
    except RsmqError as error:
        yield _no_answer(first, error)


def _no_answer(name: str, error: RsmqError) -> CheckResult:
    return CheckResult("problem", f"{name}: {error}", "Start the server, or correct RSMQ['CONNECTIONS'].")


def read_lags(config: JobConfig, servers: Mapping[str, Server]) -> tuple[dict[str, Lag], dict[str, RsmqError]]:
    """Return the lag of each log whose server answers, and the errors of the others.

    A server that did not answer gets no time to come back for its other logs.
    """
    lags: dict[str, Lag] = {}
    failed: dict[str, RsmqError] = {}
    table = config.find_lake().open(EVENTS)
    for name, server in servers.items():
        try:
            lags[name] = read_lag(table, server, name if name in config.logs else "")
        except RsmqError as error:
            failed[name] = error
            if isinstance(error, NO_ANSWER):
                for other in servers.values():
                    other.patience_s = 0.0 if other.url == server.url else other.patience_s
    return lags, failed


def read_lag(table: Table, server: Server, connection: str = "") -> Lag:
    """Return the lag of the archive of a log. Before its first run, that is the whole log."""
    stream = events_key(server.namespace)
    log = server.run(step(stream, after=BEGINNING, most=1)).log
    end = read_offset(table, stream, log)
    found = server.run(step(stream, after=end["id"], most=1))
    is_other = not is_latest_log(table, named_log(connection, stream), log)
    log_now = log_state(server.client, after=end["id"])
    length = log_now.length
    if id_order(found.newest_id) < id_order(end["id"]) or 0 <= found.added < end["n"]:
        return Lag(length, length, 0, log_now, is_reset=True, is_other=is_other)
    if end["n"] < 0 or found.added < 0:
        return Lag(length, length, 0, log_now, is_other=is_other)
    lost = max(0, found.gone - end["n"])
    return Lag(max(0, found.added - end["n"] - lost), length, lost, log_now, is_other=is_other)


def together(lags: Sequence[Lag]) -> Lag:
    """Return the lag of all logs: their entries, and the worst of the other figures."""
    return Lag(
        sum(lag.entries for lag in lags),
        sum(lag.length for lag in lags),
        sum(lag.lost_unseen for lag in lags),
        worst_log([lag.log for lag in lags]),
        is_reset=any(lag.is_reset for lag in lags),
        is_other=any(lag.is_other for lag in lags),
    )


def in_all(lags: Mapping[str, Lag]) -> str:
    """Return a sentence about several logs that names the worst ones."""
    lag = together(list(lags.values()))
    latest = worst_of({name: each.log.lag_s for name, each in lags.items()})
    fullest = worst_of({name: each.log.fill for name, each in lags.items()})
    lossiest = worst_of({name: each.lost_unseen for name, each in lags.items()})
    oldest = f", the oldest for {as_age(lag.log.lag_s)} ({latest})" if latest else ""
    lost = f", {lag.lost_unseen:,} were trimmed before, most of them in {lossiest}" if lossiest else ""
    fill = f"the fullest log is {lag.log.fill:.0%} full" + (f" ({fullest})" if fullest else "")
    return f"in {len(lags)} logs: {lag.entries:,} events not archived yet{oldest}{lost}; {fill}"


def unarchived_connections() -> list[str]:
    """Return the connections of queues whose log of attempts no pipeline of these settings archives."""
    settings = get_settings()
    if settings.events.record == "off":
        return []
    logs = {
        alias: (each.url, each.cache, each.embedded, each.namespace) for alias, each in settings.connections.items()
    }
    archived = {logs[alias] for alias in archived_connections()}
    return [alias for alias in settings.used_connections() if logs[alias] not in archived]


def not_archived(aliases: Sequence[str]) -> str:
    """Return the sentence that names connections whose log is not archived."""
    archived = ", ".join(archived_connections())
    return (
        f"the events of queues on {', '.join(aliases)} are not archived: the pipeline reads the log of {archived} only"
    )


# -- This machine -----------------------------------------------------------------------------------------------------


def _packages() -> Iterator[CheckResult]:
    missing = [name for name in ("pyspark", "pyarrow", "pandas", "deltalake") if importlib.util.find_spec(name) is None]
    if missing:
        yield CheckResult("problem", f"not installed: {', '.join(missing)}", "pip install 'rsmq-django[spark]'")
    else:
        yield CheckResult("ok", "pyspark, pyarrow, pandas and deltalake are installed")


def _java() -> Iterator[CheckResult]:
    java = find_java()
    hint = "Install Java 17 or newer (Debian: apt-get install openjdk-17-jre-headless), or set JAVA_HOME."
    if java is None:
        yield CheckResult("problem", "no Java: neither JAVA_HOME/bin/java nor java on PATH", hint)
        return
    said = subprocess.run([java, "-version"], capture_output=True, text=True).stderr
    version = java_version(said)
    if version is None or version < OLDEST_JAVA:
        first = said.splitlines()[0] if said else "it says nothing"
        yield CheckResult("problem", f"{java} is too old or not Java: {first}", hint)
    else:
        yield CheckResult("ok", f"Java {version} ({java})")


def find_java() -> str | None:
    """Return the path of the Java that Spark would start."""
    home = os.environ.get("JAVA_HOME")
    if home:
        return str(Path(home) / "bin" / "java") if (Path(home) / "bin" / "java").exists() else None
    return shutil.which("java")


def java_version(said: str) -> int | None:
    """Return the major version from the output of `java -version`; Java 8 reports 1.8."""
    found = re.search(r'version "(?:1\.)?(\d+)', said)
    return int(found[1]) if found else None


def _python() -> Iterator[CheckResult]:
    chosen = os.environ.get("PYSPARK_PYTHON")
    if chosen and Path(chosen).resolve() != Path(sys.executable).resolve():
        text = f"PYSPARK_PYTHON is {chosen}, this is {sys.executable}: Spark's workers run another Python"
        yield CheckResult("warning", text, "Unset it; the command sets it to its own Python.")
    else:
        yield CheckResult("ok", f"Spark's workers run this Python ({sys.version_info.major}.{sys.version_info.minor})")


def _lake(lake: Lake) -> Iterator[CheckResult]:
    if importlib.util.find_spec("deltalake") is None:
        return
    problems: list[str] = []
    for table in TABLES:
        try:
            lake.open(table)
        except (PipelineError, OSError) as error:
            problems.append(str(error))
            if not is_local(lake.uri):
                break  # each table would wait for the same store
    for text in dict.fromkeys(problems):
        yield CheckResult("problem", text)
    if problems:
        return
    if not is_local(lake.uri):
        yield CheckResult("ok", f"the lake {lake.uri} can be read")
        return
    place = lake.root
    existing = next(path for path in (place, *place.parents) if path.exists())
    if not existing.is_dir() or not os.access(existing, os.W_OK):
        yield CheckResult("problem", f"the lake {place} cannot be written", f"Make {existing} a writable directory.")
        return
    free_mb = shutil.disk_usage(existing).free // 2**20
    state: Literal["ok", "warning"] = "ok" if free_mb > 1024 else "warning"
    yield CheckResult(state, f"the lake {place} can be written, {free_mb:,} MB are free")


# -- This project -----------------------------------------------------------------------------------------------------


def _tables() -> Iterator[CheckResult]:
    if apps.is_installed("rsmq_django.pipeline"):
        yield CheckResult("ok", "rsmq_django.pipeline is installed")
    else:
        hint = (
            "Add 'rsmq_django.pipeline' to INSTALLED_APPS and run migrate; without it there is nothing to publish to."
        )
        yield CheckResult("warning", "rsmq_django.pipeline is not in INSTALLED_APPS", hint)


def _connections() -> Iterator[CheckResult]:
    if aliases := unarchived_connections():
        hint = "Add them to RSMQ['PIPELINE']['CONNECTIONS'], or leave it out: all are archived."
        yield CheckResult("warning", not_archived(aliases), hint)


def _recording() -> Iterator[CheckResult]:
    settings: Settings = get_settings()
    if settings.events.record == "all":
        yield CheckResult("ok", "all attempts are logged")
    elif settings.events.record == "recent":
        yield CheckResult(
            "ok", "failures and the last successes of each task are logged: RSMQ['EVENTS']['RECORD'] is 'recent'"
        )
        hint = "For percentiles, objectives and capacity advice, set RSMQ['EVENTS']['RECORD'] to 'all'."
        if settings.pipeline.objectives:
            yield CheckResult("warning", "RSMQ['PIPELINE']['OBJECTIVES'] needs every attempt in the log", hint)
    else:
        hint = "Set RSMQ['EVENTS']['RECORD'] to 'all': percentiles, objectives and advice need every attempt."
        yield CheckResult("warning", f"RSMQ['EVENTS']['RECORD'] is {settings.events.record!r}", hint)


# -- Redis ------------------------------------------------------------------------------------------------------------


def _redis(config: JobConfig, server: Server) -> Iterator[CheckResult]:
    for job in unfinished_jobs(server):
        hint = f"Run it again, or: manage.py rsmq_pipeline resume {job}"
        yield CheckResult("warning", f"the bulk job {job!r} started to publish and did not finish", hint)
    (reply,) = server.client.connection.exchange([("CONFIG", "GET", "maxmemory-policy")])
    if isinstance(reply, list) and len(reply) == 2 and reply[1] not in (b"noeviction", b""):
        hint = "Set it to noeviction: Redis may evict queues and logs when its memory is full."
        yield CheckResult("problem", f"maxmemory-policy is {reply[1].decode()}", hint)
    runs = read_runs(config.find_lake())
    yield from _late_steps(steps_of(runs))
    lost = sum(run.lost for run in runs)
    if lost:
        hint = "Run the archive more often, or raise RSMQ['EVENTS']['MAX_LENGTH']."
        yield CheckResult("warning", f"{lost:,} events were lost in the last {DAYS_READ} days", hint)


def _lag(lag: Lag, name: str) -> Iterator[CheckResult]:
    """Yield the findings about a log; about one of several, which has a name, only warnings and problems."""
    for finding in _findings_of(lag):
        if not name:
            yield finding
        elif finding.state != "ok":
            yield replace(finding, text=f"{name}: {finding.text}")


def _findings_of(lag: Lag) -> Iterator[CheckResult]:
    most = get_settings().events.length
    more_often = "Run the archive more often, or raise RSMQ['EVENTS']['MAX_LENGTH']."
    if lag.lost_unseen:
        text = f"{lag.lost_unseen:,} events were trimmed before they were archived"
        hint = f"The next run archives the others, and counts these as lost. {more_often}"
        yield CheckResult("problem", text, hint)
    if lag.is_other:
        text = "the log is not the one of the latest batch: another server, or the log was deleted since"
        hint = "If RSMQ['CONNECTIONS'] is right, nothing has to be done: the next run archives it from its first entry."
        yield CheckResult("warning", text, hint)
    if lag.is_reset:
        text = "the log no longer contains the archive's position: it was recreated, or a failover lost its end"
        yield CheckResult("problem", text, "Find the cause; then: rsmq_pipeline archive --accept-reset")
    state: Literal["ok", "warning"] = "warning" if lag.entries > FULL_SHARE * most else "ok"
    hint = more_often if state == "warning" else ""
    oldest = f", the oldest for {as_age(lag.log.lag_s)}" if lag.entries else ""
    yield CheckResult(state, f"{lag.entries:,} events not archived yet{oldest}; the log holds up to {most:,}", hint)
    yield from _clock(lag.log)


def _clock(log: LogHealth) -> Iterator[CheckResult]:
    if abs(log.clock_s) > MOST_CLOCK_S:
        direction = "ahead of" if log.clock_s > 0 else "behind"
        text = f"the clock of Redis is {as_age(abs(log.clock_s))} {direction} that of this machine"
        yield CheckResult("warning", text, "Synchronize the clocks (NTP): times of events are those of Redis.")
    if log.ahead_s > MOST_CLOCK_S:
        text = f"the newest event is dated {as_age(log.ahead_s)} after the clock of Redis, as are all events until then"
        hint = (
            "Its clock was ahead. After more than an hour, the archive begins the log again when it has trimmed all "
            "of it: stop the workers during a run if events never pause."
        )
        yield CheckResult("warning", text, hint)


def _late_steps(steps: Sequence[StepState]) -> Iterator[CheckResult]:
    """Yield the steps whose latest run failed."""
    for each in steps:
        if each.error:
            first = each.error.partition("\n")[0]
            since = f"Its last success was at {each.succeeded_at:%Y-%m-%d %H:%M} UTC." if each.succeeded_at else ""
            yield CheckResult("warning", f"the latest run of {each.step} failed: {first}", since)


def as_age(seconds: float) -> str:
    """Return a time in the largest unit that fits, such as "12 min"."""
    for size, unit in ((86_400, "d"), (3600, "h"), (60, "min")):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds:.0f} s"
