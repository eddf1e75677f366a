"""The Spark session of the pipeline, and the environment that it needs before its start."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

__all__ = ["start_session"]

APP_NAME = "rsmq"
#: Settings that differ from Spark's defaults, with reasons.
DEFAULTS = {
    "spark.driver.memory": "1g",
    "spark.ui.enabled": "false",  # a port and 30 MB
    "spark.ui.showConsoleProgress": "false",
    "spark.log.level": "ERROR",
    "spark.sql.session.timeZone": "UTC",  # the day of an event must not depend on the machine
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",  # INT96 has no statistics, and others read it as ns
    "spark.sql.streaming.stopTimeout": "60s",  # so that a stop returns
}
#: On one machine, 200 tiny tasks cost seconds. On a cluster, Spark derives their number from cores and bytes.
OF_LOCAL_MASTERS = {"spark.sql.shuffle.partitions": "2", "spark.default.parallelism": "2"}
#: A single machine needs no host name, and a wrong entry in /etc/hosts would prevent the start.
LOOPBACK = {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}
#: Counts as no --master of spark-submit, like none at all: it is Spark's default.
NO_MASTER = "local[*]"
#: Rows of a micro-batch of the archive: each core of the cluster gets a task, and each batch costs about a second.
ROWS_PER_CORE, LEAST_ROWS = 25_000, 50_000


def is_local(master: str) -> bool:
    """Return whether driver and executors are on this machine."""
    return master.startswith("local")


def is_submitted() -> bool:
    """Return whether spark-submit started this process, with master, files and settings already chosen."""
    return "PYSPARK_GATEWAY_PORT" in os.environ


def prepare_environment(master: str) -> None:
    """Set the environment variables that Spark reads before its first session.

    Otherwise its workers run the first `python3` on PATH, which may be another version or lack pyarrow.
    """
    for name in ("PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON"):
        os.environ.setdefault(name, sys.executable)
    if is_local(master):
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    # Executors without an installed package use the driver's path, which works on one machine only. Before it, the
    # directory of startup/sitecustomize.py, which makes the start of Python processes four times as fast.
    ours = [str(Path(__file__).with_name("startup")), str(Path(__file__).resolve().parents[2])]
    paths = [path for path in os.environ.get("PYTHONPATH", "").split(os.pathsep) if path and path not in ours]
    if is_local(master):
        os.environ["PYTHONPATH"] = os.pathsep.join([*ours, *paths])


def few_words() -> dict[str, str]:
    """Return the setting for a quiet start of Spark; empty if its logging is configured."""
    home = os.environ.get("SPARK_HOME")
    places = [os.environ.get("SPARK_CONF_DIR"), home and f"{home}/conf"]
    ours = Path(__file__).resolve().with_name("startup") / "log4j2.properties"
    if not ours.exists() or any(Path(place, "log4j2.properties").exists() for place in places if place):
        return {}
    return {"spark.driver.extraJavaOptions": f"-Dlog4j2.configurationFile={ours.as_uri()}"}


def settings_of(master: str, conf: Mapping[str, str], said: Mapping[str, str] | None) -> dict[str, str]:
    """Return the settings of a session. `said` are those of spark-submit, which take precedence; None without it."""
    given = said or {}
    if given.get("spark.master", NO_MASTER) != NO_MASTER:
        master = given["spark.master"]
    ours = DEFAULTS | (OF_LOCAL_MASTERS if is_local(master) else {})
    if said is None:
        ours |= few_words() | (LOOPBACK if is_local(master) else {})
    chosen = {name: value for name, value in (ours | dict(conf)).items() if name not in given}
    return chosen | {"spark.master": master}


def start_session(master: str = "local[2]", *, conf: Mapping[str, str] | None = None, py_files: str = "") -> Any:
    """Return a session with the data source registered.

    `py_files` is a zip of the package for executors without it. The source is registered explicitly, because Spark's
    lookup ignores shipped files. Options of spark-submit take precedence over `master`, `conf` and our defaults.
    """
    if not is_submitted():
        prepare_environment(master)
    from pyspark.sql import SparkSession

    from .source import DefaultSource

    builder = SparkSession.builder.appName(APP_NAME)
    settings = settings_of(master, conf or {}, _options_of_submit() if is_submitted() else None)
    if py_files:
        settings["spark.submit.pyFiles"] = py_files
    for name, value in settings.items():
        builder = builder.config(name, value)
    session = builder.getOrCreate()
    if level := settings.get("spark.log.level"):
        session.sparkContext.setLogLevel(level)
    if py_files or is_submitted():
        _show_shipped_files(session.sparkContext)
        session.dataSource.register(DefaultSource)
    return session


def _options_of_submit() -> dict[str, str]:
    """Return the options of spark-submit, which only its JVM has."""
    from pyspark import SparkConf, SparkContext

    SparkContext._ensure_initialized()  # without the JVM there are none, and the master of the JSON would win
    return dict(SparkConf().getAll())


def batch_options(spark: Any) -> dict[str, str]:
    """Return the number of rows of a batch that uses all cores."""
    return {"maxRowsPerBatch": str(max(LEAST_ROWS, ROWS_PER_CORE * spark.sparkContext.defaultParallelism))}


def _show_shipped_files(context: Any) -> None:
    """Add shipped files to the path of the processes in which Spark plans streams at the driver."""
    from pyspark import SparkFiles

    shipped = filter(None, context.getConf().get("spark.submit.pyFiles", "").split(","))
    if paths := [SparkFiles.get(Path(file).name) for file in shipped]:
        context.environment["PYTHONPATH"] = os.pathsep.join(paths)
