"""A file as messages or task calls: each row once, however often the job is run."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

from .config import JobConfig
from .errors import PipelineError

FORMATS = {".parquet": "parquet", ".json": "json", ".jsonl": "json", ".csv": "csv"}
#: Columns that say something about a row beside what it holds.
ABOUT = ("queue", "delay_s", "task", "task_id")


def job_name(path: Path, target: str) -> str:
    """Return a name that is the same for the same content and target: a second run then sends nothing."""
    digest = hashlib.sha256(target.encode())
    for file in sorted(path.rglob("*") if path.is_dir() else [path]):
        if file.is_file():
            with file.open("rb") as content:
                digest.update(hashlib.file_digest(content, "sha256").digest())
    return f"backfill-{digest.hexdigest()[:32]}"


def read_rows(spark: Any, path: Path, *, task: str) -> Any:
    """Return the rows of a file as what the writer takes: a body, or the keyword arguments of a task.

    Without a column of that name, all columns but those about the row become one JSON object.
    """
    from pyspark.sql import functions as F

    suffix = path.suffix.lower() if path.is_file() else ".parquet"
    if suffix not in FORMATS:
        raise PipelineError(f"{path} is none of {', '.join(FORMATS)}; convert it first")
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
