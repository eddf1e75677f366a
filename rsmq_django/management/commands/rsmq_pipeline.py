"""`./manage.py rsmq_pipeline STEP`: run steps in one Spark session and report their results."""

from __future__ import annotations

import argparse
import datetime as dt
import importlib.util
import json
import re
import shlex
import subprocess
import sys
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from django.apps import apps
from django.core.exceptions import ImproperlyConfigured
from django.core.management.base import CommandError, CommandParser
from django.db import DatabaseError

from ...conf.settings import get_settings
from ...core.errors import RsmqError
from ...core.queue.queue import list_queues
from ...core.texts import printable, printable_lines
from ...core.transport.handshake import set_process_role
from ...pipeline.config import archived_connections, export_address, find_lake, job_config, require_tables
from ...pipeline.dry_run import DRY_RUNS, StepOptions
from ...pipeline.health import (
    Lag,
    as_age,
    examine,
    find_java,
    in_all,
    not_archived,
    read_lags,
    together,
    unarchived_connections,
)
from ...pipeline.meter import Meter
from ...pipeline.state import steps_of
from ...queues import get_client
from ...spark.bulk import resume
from ...spark.config import JobConfig
from ...spark.job import ALL_STEPS, Pipeline, stop_on_signals
from ...spark.runs import DONE, FAILED, LOST_DATA, StepRun, read_runs, record, status_of
from ...spark.server import Server
from ...spark.session import prepare_environment
from ..arguments import SuggestingCommand

SPARK_STEPS = ("archive", "drain", "backfill", "archive-topic")
PLAIN_STEPS = (
    "snapshot", "dlq", "rollup", "analyse", "publish", "notify", "compact", "expire", "convert", "replay", "resume",
    "status", "doctor", "config", "submit", "restore-topic",
)  # fmt: skip
#: Steps of `run`, in one session: start-up costs more than most steps. `notify` is left out without a recipient.
RUN = (*ALL_STEPS, "publish", "notify")
#: Maximum number of queues that an error about an unknown queue lists.
MOST_QUEUES_NAMED = 20
#: Steps that only preview their changes without --yes.
DANGEROUS = ("drain", "backfill", "replay", "submit", "restore-topic")
#: Error -> its remedy on this command line.
HINTS = {
    "DataLoss": "without --strict, rsmq_pipeline archive counts them and continues with the rest",
}

NOTHING_ACCEPTED = (
    "--accept-reset changed nothing: the log has no entries after the archived ones; give it again when it has"
)

EPILOG = """
steps:
  run        archive, snapshot, dlq, rollup, analyse, compact, expire, publish and notify in one Spark session
  archive    event log -> lake, exactly once; then trim the log
  rollup     new events -> sums of five minutes and of hours, failure groups
  analyse    capacity advice, burn rates, anomalies
  publish    lake -> database
  notify     burn alarms that begin or end -> e-mail, webhook
  snapshot   current depth and age of the queues
  dlq        current dead letters -> lake: task, error, time; they stay in their queues
  compact    small files -> files of 128 to 256 MB; expire deletes old days
  convert    turn the lake of an earlier version into Delta tables
  drain      --queue Q: move messages from the queue into the lake
  backfill   FILE --queue Q [--task T]: rows -> messages or task calls, each once
  replay     FINGERPRINT: send the dead letters of a failure group back to their queues
  resume     JOB: finish a bulk job that crashed while it published
  archive-topic  NAME: new messages of a topic -> lake, each once; they stay in the topic
  restore-topic  NAME --into OTHER: archived messages -> a topic without messages, all or none
  submit     [STEPS]: write the files for spark-submit and print its command line; with --yes run it
  status, doctor, config

Only archive, drain, backfill and archive-topic start Spark, which needs Java.
Without --yes, drain, backfill, replay and restore-topic only count, and submit only writes its files.

examples:
  manage.py rsmq_pipeline doctor                          list what is missing and how to install it
  manage.py rsmq_pipeline run                             for cron, every quarter of an hour
  manage.py rsmq_pipeline archive --continuous 30s        instead of cron, run by a process supervisor
  manage.py rsmq_pipeline rollup --since 2026-11-01       recompute days
  manage.py rsmq_pipeline replay 6f1ed002ab5595859014ebf0951522d9 --yes
  manage.py rsmq_pipeline submit archive,rollup --master spark://host:7077 --yes
  manage.py rsmq_pipeline backfill orders.parquet --queue mail --task shop.tasks.send_receipt --yes

Exit status: 0 done, 1 failed, 2 wrong usage, 3 events were lost, 4 another run is active.
"""


class Command(SuggestingCommand):
    """The management command."""

    help = "Archives and analyses the log of task attempts with Spark (docs/how-to/pipeline.md)."
    requires_system_checks: tuple[str, ...] = ()

    def create_parser(self, prog_name: str, subcommand: str, **kwargs: Any) -> CommandParser:
        """Keep the line breaks of the steps."""
        kwargs |= {"epilog": EPILOG, "formatter_class": argparse.RawDescriptionHelpFormatter}
        return super().create_parser(prog_name, subcommand, **kwargs)

    def add_arguments(self, parser: CommandParser) -> None:
        """Declare the options."""
        parser.add_argument("step", choices=("run", *SPARK_STEPS, *PLAIN_STEPS), metavar="STEP")
        parser.add_argument("what", nargs="?", default="", metavar="WHAT", help="file, fingerprint, name or steps")
        parser.add_argument("--lake", metavar="PLACE", help="path or address of the lake")
        parser.add_argument("--master", metavar="M", help="Spark master: local[2], spark://host:7077")
        parser.add_argument("--conf", action="append", default=[], metavar="K=V", help="Spark setting")
        parser.add_argument("--since", type=_day, metavar="DAY", help="recompute days since DAY")
        parser.add_argument("--queue", default="", metavar="A,B", help="queue names")
        parser.add_argument("--task", default="", metavar="PATH", help="backfill: task to call for each row")
        parser.add_argument("--limit", type=int, metavar="N", help="replay: maximum number of messages")
        parser.add_argument(
            "--lease",
            type=float,
            default=0.0,
            metavar="S",
            help="drain: hide messages for S seconds instead of deleting them",
        )
        parser.add_argument("--continuous", type=_seconds, metavar="30s", help="archive at this interval until SIGTERM")
        parser.add_argument(
            "--accept-reset", action="store_true", help="archive: continue a log that a failover shortened"
        )
        parser.add_argument(
            "--strict",
            action="store_true",
            help="archive: stop when events were trimmed before, instead of counting them",
        )
        parser.add_argument("--into", default="", metavar="OTHER", help="restore-topic: the topic to publish to")
        parser.add_argument("--to", default="rsmq_submit", metavar="DIR", help="submit: directory of the written files")
        parser.add_argument("--dry-run", action="store_true", help="print what would be done, and change nothing")
        parser.add_argument("--yes", action="store_true", help="apply drain, backfill, replay, restore-topic or submit")
        parser.add_argument("--json", action="store_true", help="print one JSON object per step")

    def handle(self, *, step: str, **options: Any) -> None:
        """Run the step and exit with its status."""
        if getattr(self, "_called_from_command_line", False):
            set_process_role("pipeline")
        try:
            code = self._run(step, options)
        except (ImproperlyConfigured, RsmqError, OSError) as error:
            raise CommandError(str(error)) from error
        except ModuleNotFoundError as error:
            missing = (error.name or "").partition(".")[0]
            if missing not in ("deltalake", "pyarrow", "pandas", "pyspark"):
                raise
            raise CommandError(_not_installed(missing)) from error
        if code:
            sys.exit(code)

    def _run(self, step: str, options: dict[str, Any]) -> int:
        self.options = options
        _refuse_incomplete(step, options)
        config = job_config(lake=options["lake"], master=options["master"], conf=_pairs(options["conf"]))
        if options["strict"]:
            config = replace(config, source={"failOnDataLoss": "true"})
        if step in ("drain", "backfill"):
            _refuse_unknown_queues(_server(config), _names(options["queue"]))
        if step == "backfill":
            _refuse_shards(_names(options["queue"]))
        self.is_dry = options["dry_run"] or (step in DANGEROUS and not options["yes"])
        if step in ("status", "doctor", "config", "resume", "replay", "convert", "submit", "restore-topic"):
            return int(getattr(self, f"_{step.replace('-', '_')}")(config))
        if self.is_dry:
            return self._dry_run(step, config)
        return self._work(_names_of(step), config)

    # -- Steps --------------------------------------------------------------------------------------------------------

    def _work(self, names: tuple[str, ...], config: JobConfig) -> int:
        if set(names) & set(SPARK_STEPS):
            _require_spark()
        export_address()
        if "backfill" not in names:  # all others use the lake
            self._refuse_vanished(config)
        if "archive" in names and (aliases := unarchived_connections()):
            self.stderr.write(self.style.WARNING(not_archived(aliases)))
        if self.options["verbosity"] < 2:  # the error that ends a run is reported; Spark's log has it with Java's stack
            config = replace(config, conf={"spark.log.level": "OFF", **config.conf})
        meter = self.meter = Meter(is_shown=False if self.options["json"] else None)
        pipeline = Pipeline(
            config,
            since=self.options["since"],
            queues=_names(self.options["queue"]),
            every_s=self.options["continuous"],
            accept_reset=self.options["accept_reset"],
            lease_s=self.options["lease"],
            on_progress=meter,
            backlog=self._backlog(config) if meter.is_shown and "archive" in names else None,
        )
        if self.options["continuous"]:
            stop_on_signals(pipeline.stopped)
        runs = []
        try:
            for name in names:  # all of them: without new events there are those of the last run to publish
                with meter.during(name):
                    run = self._one(name, pipeline, config)
                runs.append(run)
                self._print_run(run)
                if name == "archive" and self.options["accept_reset"] and not (run.error or run.rows_in):
                    self.stderr.write(self.style.WARNING(NOTHING_ACCEPTED))
        finally:
            pipeline.close()
        return status_of(runs)

    def _refuse_vanished(self, config: JobConfig) -> None:
        """Raise PipelineError for a lake that is gone; what the database does not know delays no step."""
        if self.options["since"] is None and apps.is_installed("rsmq_django.pipeline"):
            from ...pipeline.publish import refuse_vanished

            with suppress(DatabaseError):
                refuse_vanished(config.find_lake())

    def _backlog(self, config: JobConfig) -> int | None:
        try:
            lags, failed = read_lags(config, _servers())
        except RsmqError:  # the archive says so
            return None
        return None if failed else together(list(lags.values())).entries

    def _one(self, name: str, pipeline: Pipeline, config: JobConfig) -> StepRun:
        own: dict[str, Callable[[StepRun], None]] = {
            "publish": self._publish,
            "notify": self._notify,
            "backfill": lambda run: self._backfill(run, pipeline),
            "archive-topic": lambda run: self._archive_topic(run, pipeline),
        }
        return record(config.find_lake(), name, own[name]) if name in own else pipeline.run(name)

    def _publish(self, run: StepRun) -> None:
        require_tables()
        from ...pipeline.publish import publish

        lake, since = find_lake(self.options["lake"]), self.options["since"]
        done = publish(lake, since=since, on_progress=lambda days: self.meter("publish", days))
        run.rows_in, run.rows_out = done.days, done.rows

    def _notify(self, run: StepRun) -> None:
        require_tables()
        from ...pipeline.notify import notify

        done = notify()
        run.rows_in, run.rows_out = done.alarms, done.sent

    def _backfill(self, run: StepRun, pipeline: Pipeline) -> None:
        from ...spark.backfill import job_name, read_rows, send_rows

        path, queue, task = Path(self.options["what"]), self.options["queue"], self.options["task"]
        rows = read_rows(pipeline.spark, path, task=task)
        if "queue" in rows.columns:
            _refuse_shards(row["queue"] for row in rows.select("queue").distinct().collect())
        run.rows_in = rows.count()
        send_rows(rows, pipeline.config, queue=queue, task=task, job=job_name(path, f"{queue} {task}"))
        run.rows_out = run.rows_in

    def _archive_topic(self, run: StepRun, pipeline: Pipeline) -> None:
        from ...spark.topics import topic_transfer, transfer_topic

        job = topic_transfer(pipeline.spark, pipeline.config, self.options["what"])
        job.on_progress = lambda rows: self.meter("archive-topic", rows)
        try:
            transfer_topic(job)
        finally:
            run.rows_in = run.rows_out = job.result.rows
            run.lost, run.offsets = job.result.lost, job.result.offsets

    def _restore_topic(self, config: JobConfig) -> int:
        from ...spark.topics import restore_topic

        export_address()
        done = restore_topic(config, self.options["what"], into=self.options["into"], dry_run=self.is_dry)
        said = f"{done.sent:,} messages published" if not self.is_dry else f"{done.known:,} messages would be published"
        self.stdout.write(f"{said} to {printable(self.options['into'])}")
        if self.is_dry:
            self.stdout.write("nothing was changed; add --yes to apply")
        return DONE

    def _replay(self, config: JobConfig) -> int:
        from ...pipeline.replay import replay

        done = replay(config.find_lake(), self.options["what"], dry_run=self.is_dry, limit=self.options["limit"])
        verb = "would be sent" if self.is_dry else "sent"
        for queue, count in sorted(done.moved.items()):
            self.stdout.write(f"{count:,} dead letter{'' if count == 1 else 's'} {verb} back to {printable(queue)}")
        for why, count in sorted(done.stayed.items()):
            self.stdout.write(f"{count:,} not sent: {printable(why)}")
        if not done.known:
            self.stdout.write(f"the archive has no dead letters of {self.options['what'] or 'an empty fingerprint'}")
        elif self.is_dry:
            self.stdout.write("nothing was changed; add --yes to apply")
        return DONE

    def _convert(self, config: JobConfig) -> int:
        from ...core.transport.streams import name_log
        from ...spark.convert import convert

        lake, server = config.find_lake(), _server(config)
        if not lake.is_of_earlier_version():
            self.stdout.write(f"the lake {lake.uri} was not written by an earlier version: nothing to convert")
        elif self.is_dry:
            self.stdout.write(f"the lake {lake.uri} would be converted")
            return DONE
        for table, rows in convert(lake, lambda stream: server.run(name_log(stream))).items():
            self.stdout.write(f"{table:16} {rows:>12,} rows")
        return DONE

    def _resume(self, config: JobConfig) -> int:
        rows = resume(_server(config), self.options["what"], dry_run=self.is_dry)
        said = "would be published" if self.is_dry else "are published"
        self.stdout.write(f"{self.options['what']}: {rows:,} rows {said}")
        return DONE

    def _dry_run(self, step: str, config: JobConfig) -> int:
        export_address()
        step_options = StepOptions(
            config, _servers(), self.options["since"], _names(self.options["queue"]), self.options["what"]
        )
        for name in _names_of(step):
            for line in DRY_RUNS[name](step_options):
                self.stdout.write(printable(line))
        self.stdout.write("nothing was changed" + ("; add --yes to apply" if step in DANGEROUS else ""))
        return DONE

    # -- Status ------------------------------------------------------------------------------------------------------

    def _status(self, config: JobConfig) -> int:
        lags, failed = read_lags(config, _servers())
        for name, error in failed.items():
            self.stderr.write(self.style.ERROR(printable_lines(f"{name}: {error}")))
        if not lags:
            return FAILED
        lag = together(list(lags.values()))
        runs = read_runs(config.find_lake())
        code = FAILED if lag.is_reset or failed else LOST_DATA if lag.lost_unseen else DONE
        if self.options["json"]:
            self._status_as_json(lags, runs)
            return code
        if len(lags) > 1:
            self.stdout.write(printable(in_all(lags)))
        for name, each in lags.items():
            prefix = f"{name}: " if len(lags) + len(failed) > 1 else ""
            oldest = f", the oldest for {as_age(each.log.lag_s)}" if each.entries else ""
            state = f"{each.entries:,} events not archived yet{oldest}; the log is {each.log.fill:.0%} full"
            self.stdout.write(printable(f"{prefix}{state}"))
        if lag.is_reset:
            self.stdout.write(self.style.ERROR("the log no longer contains the archive's position, see doctor"))
        if lag.lost_unseen:
            self.stdout.write(self.style.ERROR(f"{lag.lost_unseen:,} events were trimmed before they were archived"))
        for name, run in {run.step: run for run in reversed(runs)}.items():
            state = run.error.partition("\n")[0] or f"{run.rows_in:,} in, {run.rows_out:,} out"
            started = f"{dt.datetime.fromisoformat(run.started_at):%Y-%m-%d %H:%M:%S} UTC"
            self.stdout.write(f"{name:10} {started} {run.seconds:8.1f} s  {printable(state)}")
        return code

    def _status_as_json(self, lags: dict[str, Lag], runs: list[StepRun]) -> None:
        state = _as_json(together(list(lags.values())))
        state |= {"logs": {name: _as_json(each) for name, each in lags.items()}}
        successes = {step.step: step.succeeded_at for step in steps_of(runs)}
        done: dict[str, Any] = {step: at.isoformat() if at else None for step, at in successes.items()}
        newest = {run.step: json.loads(run.to_json()) for run in reversed(runs)}
        self.stdout.write(json.dumps(state | {"last_success": done, "runs": newest}))

    def _doctor(self, config: JobConfig) -> int:
        worst = DONE
        styles = {"ok": self.style.SUCCESS, "warning": self.style.WARNING, "problem": self.style.ERROR}
        for finding in examine(config, _servers()):
            self.stdout.write(f"{styles[finding.state](f'{finding.state:8}')} {printable(finding.text)}")
            if finding.hint:
                self.stdout.write(f"         {printable(finding.hint)}")
            if finding.state == "problem":
                worst = LOST_DATA if "trimmed before" in finding.text else worst or FAILED
        return worst

    def _config(self, config: JobConfig) -> int:
        self.stdout.write(config.to_json())
        return DONE

    def _submit(self, config: JobConfig) -> int:
        from ...spark.submission import find_program, submit_words, write_submission

        options, folder = self.options, Path(self.options["to"])
        more = [f"--since={options['since']}"] if options["since"] else []
        more += [f"--queue={options['queue']}"] if options["queue"] else []
        more += [f"--continuous={options['continuous']:g}"] if options["continuous"] else []
        more += [f"--lease={options['lease']:g}"] if options["lease"] else []
        more += ["--accept-reset"] if options["accept_reset"] else []
        words = submit_words(folder, config, options["what"], more)
        if not options["dry_run"]:
            write_submission(folder, config)
        self.stdout.write(shlex.join(words))
        if self.is_dry:
            written = f"{folder} would be" if options["dry_run"] else f"{folder} was"
            self.stdout.write(f"{written} written, nothing was run; {config.url_env} must have the address of Redis")
            return DONE
        _require_spark()
        export_address()
        prepare_environment(config.master)
        self.stdout.flush()
        return subprocess.run([find_program(), *words[1:]], check=False).returncode

    # -- Output ------------------------------------------------------------------------------------------------------

    def _print_run(self, run: StepRun) -> None:
        if self.options["json"]:
            self.stdout.write(run.to_json())
        elif run.error:
            error = run.whole_error if self.options["verbosity"] > 1 and run.whole_error else run.error
            self.stderr.write(self.style.ERROR(printable_lines(f"{run.step}: {error}")))
            for kind, hint in HINTS.items():
                if run.error.startswith(kind):
                    self.stderr.write(hint)
        else:
            lost = f", {run.lost:,} LOST" if run.lost else ""
            self.stdout.write(f"{run.step:10} {run.rows_in:>12,} in {run.rows_out:>12,} out {run.seconds:8.1f} s{lost}")


def _as_json(lag: Lag) -> dict[str, Any]:
    """Return the state of a log, or of all together."""
    log = {"lag": lag.entries, "lag_s": round(lag.log.lag_s, 3), "log_fill": lag.log.fill}
    return log | {"clock_s": round(lag.log.clock_s, 3), "lost": lag.lost_unseen, "reset": lag.is_reset}


def _names_of(step: str) -> tuple[str, ...]:
    """Return the steps of `run`, or the step itself."""
    if step != "run":
        return (step,)
    return RUN if get_settings().pipeline.sends_alarms else RUN[:-1]


def _refuse_incomplete(step: str, options: dict[str, Any]) -> None:
    """Raise CommandError for a step that was not told what to work on."""
    needed = {"replay": "a fingerprint", "resume": "the name of a job", "backfill": "a file"}
    needed |= dict.fromkeys(("archive-topic", "restore-topic"), "the name of a topic")
    if step in needed and not options["what"]:
        raise CommandError(f"{step} needs {needed[step]}: rsmq_pipeline {step} WHAT", returncode=2)
    if step == "backfill" and not Path(options["what"]).exists():
        raise CommandError(f"there is no file {options['what']!r}", returncode=2)
    if step == "restore-topic" and not options["into"]:
        raise CommandError("restore-topic needs to know the topic to publish to: --into OTHER", returncode=2)
    if step == "drain" and not options["queue"]:
        raise CommandError("drain needs to know which queues: --queue A,B", returncode=2)


def _refuse_unknown_queues(server: Server, names: tuple[str, ...]) -> None:
    """Raise CommandError for a queue that does not exist, rather than find nothing in it."""
    known = list_queues(server.client)
    if unknown := [name for name in names if name not in known]:
        there_are = ", ".join(known[:MOST_QUEUES_NAMED]) + (", ..." if len(known) > MOST_QUEUES_NAMED else "")
        raise CommandError(f"no queue is named {', '.join(unknown)}; there are {there_are or 'none'}", returncode=2)


def _refuse_shards(names: Iterable[str]) -> None:
    """Raise CommandError for a queue with shards: a bulk job is in one namespace, and knows no keys of tasks."""
    settings = get_settings()
    if found := [name for name in names if settings.knows_queue(name) and settings.queue(name).shards > 1]:
        raise CommandError(f"backfill: queue {found[0]!r} has SHARDS; use enqueue_many() of the task", returncode=2)


def _servers() -> dict[str, Server]:
    """Return the server of each archived log, by the alias of its connection."""
    return {alias: _server_of(alias) for alias in archived_connections()}


def _server(config: JobConfig) -> Server:
    return _server_of(get_settings().pipeline.connection)


def _server_of(alias: str) -> Server:
    client = get_client(alias)
    return Server(
        client.connection.url,
        namespace=client.namespace,
        patience_s=5,
        credential_provider=client.connection.credential_provider,
    )


def _not_installed(package: str) -> str:
    return f"{package} is not installed; pip install 'rsmq-django[spark]', then: rsmq_pipeline doctor"


def _require_spark() -> None:
    if importlib.util.find_spec("pyspark") is None:
        raise CommandError(_not_installed("pyspark"))
    if find_java() is None:
        raise CommandError(
            "Java is missing; install Java 17 (Debian: apt-get install openjdk-17-jre-headless) or set JAVA_HOME. "
            f"Without it: {', '.join(PLAIN_STEPS)} (submit without --yes)"
        )


def _names(text: str) -> tuple[str, ...]:
    return tuple(name.strip() for name in text.split(",") if name.strip())


def _pairs(words: list[str]) -> dict[str, str]:
    for word in words:
        if "=" not in word:
            raise CommandError(f"--conf {word}: write name=value", returncode=2)
    return dict(word.split("=", 1) for word in words)


def _day(text: str) -> dt.date:
    try:
        return dt.date.fromisoformat(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"{text!r} is not a date; write 2026-11-01") from error


def _seconds(text: str) -> float:
    found = re.fullmatch(r"(\d+(?:\.\d+)?)(s|m)?", text)
    if not found or float(found[1]) <= 0:
        raise argparse.ArgumentTypeError(f"{text!r} is not a duration; write 30s or 5m")
    return float(found[1]) * (60 if found[2] == "m" else 1)
