"""`./manage.py rsmq_pipeline STEP`: parse, run steps in one Spark session, tell what they did."""

from __future__ import annotations

import argparse
import datetime as dt
import importlib.util
import json
import re
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from django.core.exceptions import ImproperlyConfigured
from django.core.management.base import BaseCommand, CommandError, CommandParser

from ...conf import get_settings
from ...core.errors import RsmqError
from ...core.queue import list_queues
from ...core.texts import printable, printable_lines
from ...pipeline.config import export_address, find_lake, job_config, require_tables
from ...pipeline.dry_run import WOULD, Asked
from ...pipeline.health import examine, find_java, read_lag
from ...pipeline.meter import Meter
from ...queues import get_client
from ...spark.bulk import resume
from ...spark.config import JobConfig
from ...spark.job import ALL_STEPS, Pipeline, stop_on_signals
from ...spark.runs import DONE, FAILED, LOST_DATA, Run, read_runs, record
from ...spark.server import Server

SPARK_STEPS = ("archive", "rollup", "analyse", "compact", "snapshot", "dlq", "drain", "backfill")
PLAIN_STEPS = ("publish", "expire", "replay", "resume", "status", "doctor", "config")
#: What `run` does, in one session: start-up costs more than most steps.
RUN = (*ALL_STEPS, "publish")
#: An error about a queue that does not exist names so many others.
MOST_QUEUES_NAMED = 20
#: These show what they would do unless they are told --yes.
DANGEROUS = ("drain", "backfill", "replay")
#: Error -> what to do about it here.
HINTS = {
    "DataLoss": "rsmq_pipeline archive --allow-loss counts them and goes on with the rest",
    "LogReset": "rsmq_pipeline archive --new-checkpoint goes on behind what the lake has",
}

EPILOG = """
steps:
  run        archive, rollup, analyse, compact, expire and publish, in one Spark session
  archive    event log -> Parquet, exactly once; then the log is trimmed
  rollup     days that changed -> hourly rows and failure groups
  analyse    capacity advice, burn rates, odd hours
  publish    files -> database (no Java needed)
  snapshot   depth and age of the queues now
  dlq        dead letters that lie in their queues now -> Parquet: which task, what failed, when; they stay there
  compact    many small files -> one for each closed day; expire removes old days
  drain      --queue Q: messages -> Parquet, and out of the queue
  backfill   FILE --queue Q [--task T]: rows -> messages or task calls, each once
  replay     FINGERPRINT: dead letters of a failure group -> back to their queues
  resume     JOB: end a bulk job that died while it published
  status, doctor, config

drain, backfill and replay only count, unless --yes is given.

examples:
  manage.py rsmq_pipeline doctor                          what is missing, and what to do about it
  manage.py rsmq_pipeline run                             for cron, every quarter of an hour
  manage.py rsmq_pipeline archive --continuous 30s        instead of cron, beside a supervisor
  manage.py rsmq_pipeline rollup --since 2026-11-01       compute days anew
  manage.py rsmq_pipeline replay 6f1ed002ab5595859014ebf0951522d9 --yes
  manage.py rsmq_pipeline backfill orders.parquet --queue mail --task shop.tasks.send_receipt --yes

Exit status: 0 done, 1 failed, 2 wrong usage, 3 events were lost, 4 another run is at it.
"""


class Command(BaseCommand):
    """See the module."""

    help = "Archives and analyses the log of task attempts with Spark (docs/pipeline.md)."
    requires_system_checks: tuple[str, ...] = ()

    def create_parser(self, prog_name: str, subcommand: str, **kwargs: Any) -> CommandParser:
        """Keep the line breaks of the steps."""
        kwargs |= {"epilog": EPILOG, "formatter_class": argparse.RawDescriptionHelpFormatter}
        return super().create_parser(prog_name, subcommand, **kwargs)

    def add_arguments(self, parser: CommandParser) -> None:
        """Declare the options."""
        parser.add_argument("step", choices=("run", *SPARK_STEPS, *PLAIN_STEPS), metavar="STEP")
        parser.add_argument("what", nargs="?", default="", metavar="WHAT", help="file, fingerprint or job")
        parser.add_argument("--lake", metavar="PATH", help="directory of the archive")
        parser.add_argument("--master", metavar="M", help="where Spark runs: local[2], spark://host:7077")
        parser.add_argument("--conf", action="append", default=[], metavar="K=V", help="a setting of Spark")
        parser.add_argument("--since", type=_day, metavar="DAY", help="recompute days from here on")
        parser.add_argument("--queue", default="", metavar="A,B", help="which queues")
        parser.add_argument("--task", default="", metavar="PATH", help="backfill: the task that rows call")
        parser.add_argument("--limit", type=int, metavar="N", help="replay: at most so many messages")
        parser.add_argument("--lease", type=float, default=0.0, metavar="S", help="drain: hide instead of taking out")
        parser.add_argument("--continuous", type=_seconds, metavar="30s", help="archive until SIGTERM, so often")
        parser.add_argument("--new-checkpoint", action="store_true", help="archive: begin behind what the lake has")
        parser.add_argument("--allow-loss", action="store_true", help="count events that were trimmed unread; go on")
        parser.add_argument("--dry-run", action="store_true", help="only say what would be done")
        parser.add_argument("--yes", action="store_true", help="do it: drain, backfill, replay")
        parser.add_argument("--json", action="store_true", help="one line of JSON for each step")

    def handle(self, *, step: str, **options: Any) -> None:
        """Run the step and end with its exit status."""
        try:
            code = self._run(step, options)
        except (ImproperlyConfigured, RsmqError, OSError) as error:
            raise CommandError(str(error)) from error
        except ModuleNotFoundError as error:
            missing = (error.name or "").partition(".")[0]
            if missing not in ("pyarrow", "pandas", "pyspark"):
                raise
            raise CommandError(_not_installed(missing)) from error
        if code:
            sys.exit(code)

    def _run(self, step: str, options: dict[str, Any]) -> int:
        self.options = options
        _refuse_incomplete(step, options)
        config = job_config(lake=options["lake"], master=options["master"], conf=_pairs(options["conf"]))
        if options["allow_loss"]:
            config = replace(config, source={"failOnDataLoss": "false"})
        if step in ("drain", "backfill"):
            _refuse_unknown_queues(_server(config), _names(options["queue"]))
        self.is_dry = options["dry_run"] or (step in DANGEROUS and not options["yes"])
        if step in ("status", "doctor", "config", "resume", "replay"):
            return int(getattr(self, f"_{step}")(config))
        if self.is_dry:
            return self._dry_run(step, config)
        names = RUN if step == "run" else (step,)
        return self._work(names, config)

    # -- Steps --------------------------------------------------------------------------------------------------------

    def _work(self, names: tuple[str, ...], config: JobConfig) -> int:
        if set(names) & set(SPARK_STEPS):
            _require_spark()
            export_address()
        meter = self.meter = Meter(is_shown=False if self.options["json"] else None)
        pipeline = Pipeline(
            config,
            since=self.options["since"],
            queues=_names(self.options["queue"]),
            every_s=self.options["continuous"],
            new_checkpoint=self.options["new_checkpoint"],
            lease_s=self.options["lease"],
            on_progress=meter,
            backlog=read_lag(config, _server(config)).entries if meter.is_shown and "archive" in names else None,
        )
        if self.options["continuous"]:
            stop_on_signals(pipeline.stopped)
        worst = DONE
        try:
            for name in names:
                with meter.during(name):
                    run = self._one(name, pipeline, config)
                self._tell(run)
                worst = worst or run.exit_code
                if run.error:
                    break
        finally:
            pipeline.close()
        return worst

    def _one(self, name: str, pipeline: Pipeline, config: JobConfig) -> Run:
        own: dict[str, Callable[[Run], None]] = {
            "publish": self._publish,
            "backfill": lambda run: self._backfill(run, pipeline),
        }
        return record(config.find_lake(), name, own[name]) if name in own else pipeline.run(name)

    def _publish(self, run: Run) -> None:
        require_tables()
        from ...pipeline.publish import publish

        lake, since = find_lake(self.options["lake"]), self.options["since"]
        done = publish(lake, since=since, on_progress=lambda days: self.meter("publish", days))
        run.rows_in, run.rows_out = done.days, done.rows

    def _backfill(self, run: Run, pipeline: Pipeline) -> None:
        from ...spark.backfill import job_name, read_rows, send_rows

        path, queue, task = Path(self.options["what"]), self.options["queue"], self.options["task"]
        rows = read_rows(pipeline.spark, path, task=task)
        run.rows_in = rows.count()
        send_rows(rows, pipeline.config, queue=queue, task=task, job=job_name(path, f"{queue} {task}"))
        run.rows_out = run.rows_in

    def _replay(self, config: JobConfig) -> int:
        from ...pipeline.replay import replay

        done = replay(config.find_lake(), self.options["what"], dry_run=self.is_dry, limit=self.options["limit"])
        verb = "would go" if self.is_dry else "went"
        for queue, count in sorted(done.moved.items()):
            self.stdout.write(f"{count:,} dead letter{'' if count == 1 else 's'} {verb} back to {printable(queue)}")
        for why, count in sorted(done.stayed.items()):
            self.stdout.write(f"{count:,} stayed: {printable(why)}")
        if not done.known:
            self.stdout.write(f"the archive knows no dead letters of {self.options['what'] or 'an empty fingerprint'}")
        elif self.is_dry:
            self.stdout.write("nothing was changed; add --yes to do it")
        return DONE

    def _resume(self, config: JobConfig) -> int:
        server = _server(config)
        rows = resume(server, self.options["what"])
        self.stdout.write(f"{self.options['what']}: {rows:,} rows are published")
        return DONE

    def _dry_run(self, step: str, config: JobConfig) -> int:
        export_address()
        asked = Asked(
            config, _server(config), self.options["since"], _names(self.options["queue"]), self.options["what"]
        )
        for name in RUN if step == "run" else (step,):
            for line in WOULD[name](asked):
                self.stdout.write(printable(line))
        self.stdout.write("nothing was changed" + ("; add --yes to do it" if step in DANGEROUS else ""))
        return DONE

    # -- Looking ------------------------------------------------------------------------------------------------------

    def _status(self, config: JobConfig) -> int:
        lag = read_lag(config, _server(config))
        runs = read_runs(config.find_lake())
        code = FAILED if lag.is_reset else LOST_DATA if lag.lost_unseen else DONE
        if self.options["json"]:
            newest = {run.step: json.loads(run.to_json()) for run in reversed(runs)}
            self.stdout.write(
                json.dumps({"lag": lag.entries, "lost": lag.lost_unseen, "reset": lag.is_reset, "runs": newest})
            )
            return code
        self.stdout.write(f"{lag.entries:,} events wait to be archived")
        if lag.is_reset:
            self.stdout.write(self.style.ERROR("the log does not reach the archive's place any more, see doctor"))
        if lag.lost_unseen:
            self.stdout.write(self.style.ERROR(f"{lag.lost_unseen:,} events were trimmed before they were archived"))
        for name, run in {run.step: run for run in reversed(runs)}.items():
            state = run.error.partition("\n")[0] or f"{run.rows_in:,} in, {run.rows_out:,} out"
            started = f"{dt.datetime.fromisoformat(run.started_at):%Y-%m-%d %H:%M:%S} UTC"
            self.stdout.write(f"{name:10} {started} {run.seconds:8.1f} s  {printable(state)}")
        return code

    def _doctor(self, config: JobConfig) -> int:
        worst = DONE
        styles = {"ok": self.style.SUCCESS, "warning": self.style.WARNING, "problem": self.style.ERROR}
        for finding in examine(config, _server(config)):
            self.stdout.write(f"{styles[finding.state](f'{finding.state:8}')} {printable(finding.text)}")
            if finding.hint:
                self.stdout.write(f"         {printable(finding.hint)}")
            if finding.state == "problem":
                worst = LOST_DATA if "trimmed before" in finding.text else worst or FAILED
        return worst

    def _config(self, config: JobConfig) -> int:
        self.stdout.write(config.to_json())
        return DONE

    # -- Telling ------------------------------------------------------------------------------------------------------

    def _tell(self, run: Run) -> None:
        if self.options["json"]:
            self.stdout.write(run.to_json())
        elif run.error:
            self.stderr.write(self.style.ERROR(printable_lines(f"{run.step}: {run.error}")))
            for kind, hint in HINTS.items():
                if run.error.startswith(kind):
                    self.stderr.write(hint)
        else:
            lost = f", {run.lost:,} LOST" if run.lost else ""
            self.stdout.write(f"{run.step:10} {run.rows_in:>12,} in {run.rows_out:>12,} out {run.seconds:8.1f} s{lost}")


def _refuse_incomplete(step: str, options: dict[str, Any]) -> None:
    """Raise CommandError for a step that was not told what to work on."""
    needed = {"replay": "a fingerprint", "resume": "the name of a job", "backfill": "a file"}
    if step in needed and not options["what"]:
        raise CommandError(f"{step} needs {needed[step]}: rsmq_pipeline {step} WHAT", returncode=2)
    if step == "backfill" and not Path(options["what"]).exists():
        raise CommandError(f"there is no file {options['what']!r}", returncode=2)
    if step == "drain" and not options["queue"]:
        raise CommandError("drain needs to know which queues: --queue A,B", returncode=2)


def _refuse_unknown_queues(server: Server, names: tuple[str, ...]) -> None:
    """Raise CommandError for a queue that does not exist, rather than find nothing in it."""
    known = list_queues(server.client)
    if unknown := [name for name in names if name not in known]:
        there_are = ", ".join(known[:MOST_QUEUES_NAMED]) + (", ..." if len(known) > MOST_QUEUES_NAMED else "")
        raise CommandError(f"no queue is named {', '.join(unknown)}; there are {there_are or 'none'}", returncode=2)


def _server(config: JobConfig) -> Server:
    client = get_client(get_settings().pipeline.connection)
    return Server(client.connection.url, namespace=config.namespace, patience_s=5)


def _not_installed(package: str) -> str:
    return f"{package} is not installed; pip install 'rsmq-django[spark]', then: rsmq_pipeline doctor"


def _require_spark() -> None:
    if importlib.util.find_spec("pyspark") is None:
        raise CommandError(_not_installed("pyspark"))
    if find_java() is None:
        raise CommandError(
            "there is no Java; install Java 17 (Debian: apt-get install openjdk-17-jre-headless) or set JAVA_HOME. "
            "publish, status and replay work without it"
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
        raise argparse.ArgumentTypeError(f"{text!r} is no day; write 2026-11-01") from error


def _seconds(text: str) -> float:
    found = re.fullmatch(r"(\d+(?:\.\d+)?)(s|m)?", text)
    if not found or float(found[1]) <= 0:
        raise argparse.ArgumentTypeError(f"{text!r} is no time; write 30s or 5m")
    return float(found[1]) * (60 if found[2] == "m" else 1)
