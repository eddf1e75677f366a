"""A file as messages or task calls: each row once, even if the job is run repeatedly."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

from .config import JobConfig
from .errors import PipelineError

FORMATS = {".parquet": "parquet", ".json": "json", ".jsonl": "json", ".csv": "csv"}
#: Columns with metadata of a row.
ABOUT = ("queue", "delay_s", "task", "task_id")


def job_name(path: Path, target: str) -> str:
    """Return a name derived from content and target, so that a second run sends nothing."""
    digest = hashlib.sha256(target.encode())
    for file in sorted(path.rglob("*") if path.is_dir() else [path]):
        if file.is_file():
            with file.open("rb") as content:
                digest.update(hashlib.file_digest(content, "sha256").digest())
    return f"backfill-{digest.hexdigest()[:32]}"


def read_rows(spark: Any, path: Path, *, task: str) -> Any:
    """Return the rows of a file in the writer's form: a body, or the keyword arguments of a task.

    Without such a column, all columns except metadata become one JSON object.
    """
    from pyspark.sql import functions as F

    suffix = path.suffix.lower() if path.is_file() else ".parquet"
    if suffix not in FORMATS:
        raise PipelineError(f"{path} has an unsupported format; convert it to one of {', '.join(FORMATS)}")
    reader = spark.read.option("header", "true") if suffix == ".csv" else spark.read
    rows = reader.format(FORMATS[suffix]).load(str(path))
    wanted = "kwargs" if task or "task" in rows.columns else "body"
    about = [name for name in ABOUT if name in rows.columns]
    if wanted in rows.columns:
        return rows.select(wanted, *about, *[name for name in ("args",) if name in rows.columns])
    packed = F.to_json(F.struct(*[name for name in rows.columns if name not in about]))
    return rows.select(packed.alias(wanted), *about)


def send_rows(rows: Any, config: JobConfig, *, queue: str, task: str, job: str) -> None:
    """Send the rows, all of them once."""
    given = {"kind": "tasks", "task": task} if "kwargs" in rows.columns else {"kind": "queue"}
    options = config.options(job=job, **given) | ({"queue": queue} if queue else {})
    rows.write.format("rsmq").mode("append").options(**options).save()
