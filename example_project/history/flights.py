"""The departures of 2013 as a file, and as calls of a task. Knows Spark only where it is handed a session."""

import csv
import zipfile
from pathlib import Path
from typing import Any

from example_project.flightboard.departures import data_directory

AIRPORTS = ("EWR", "JFK", "LGA")
ALL_FLIGHTS = 336_776
TASK = "example_project.history.tasks.record_departure"


def write_flights(target: Path, most: int) -> tuple[int, int]:
    """Unpack the first flights of the year; return how many there are, and how many of them were cancelled."""
    rows = cancelled = 0
    with zipfile.ZipFile(data_directory() / "flights.csv.zip") as archive, archive.open("flights.csv") as raw:
        lines = csv.reader(line.decode() for line in raw)
        with target.open("w", newline="") as out:
            writer = csv.writer(out)
            writer.writerow(next(lines))
            for row in lines:
                if rows == most:
                    break
                writer.writerow(row)
                rows, cancelled = rows + 1, cancelled + (row[3] == "NA")
    return rows, cancelled


def as_calls(spark: Any, path: Path) -> Any:
    """Return the flights as keyword arguments of the task, and the queue of their airport."""
    from pyspark.sql import functions as F

    flights = spark.read.csv(str(path), header=True, nullValue="NA").repartition(4)
    packed = F.to_json(F.struct("carrier", "flight", "dep_time", "time_hour"), {"ignoreNullFields": "false"})
    return flights.select(F.concat(F.lit("dep-"), "origin").alias("queue"), packed.alias("kwargs"))
