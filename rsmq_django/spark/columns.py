"""Columns of the tables as plain data, and their conversion to Spark and Arrow schemas.

A schema is a tuple of `Column`; readers yield dictionaries of lists. So reading works, and is tested, without Spark.
Times are epoch microseconds in UTC.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

#: The output of readers: column -> values, all of the same length.
Rows = dict[str, list[Any]]


@dataclass(frozen=True, slots=True)
class Column:
    """One column.

    `kind` is a type of Spark SQL: STRING, BINARY, BOOLEAN, INT, BIGINT, DOUBLE, DATE, TIMESTAMP,
    MAP<INT,BIGINT> or ARRAY<STRING>.
    """

    name: str
    kind: str


def columns(text: str) -> tuple[Column, ...]:
    """Return the columns of a text such as "queue STRING, sent_at TIMESTAMP"."""
    return tuple(Column(*part.split(None, 1)) for part in text.replace("\n", " ").split(", "))


def spark_schema(schema: Iterable[Column]) -> Any:
    """Return the schema as a StructType. Not from its text: Spark's parser needs a running JVM."""
    from pyspark.sql import types

    kinds: Mapping[str, Any] = {
        "STRING": types.StringType(),
        "BINARY": types.BinaryType(),
        "BOOLEAN": types.BooleanType(),
        "INT": types.IntegerType(),
        "BIGINT": types.LongType(),
        "DOUBLE": types.DoubleType(),
        "DATE": types.DateType(),
        "TIMESTAMP": types.TimestampType(),
        "MAP<INT,BIGINT>": types.MapType(types.IntegerType(), types.LongType()),
        "ARRAY<STRING>": types.ArrayType(types.StringType()),
    }
    return types.StructType([types.StructField(column.name, kinds[column.kind]) for column in schema])


def arrow_schema(schema: Iterable[Column]) -> Any:
    """Return the schema for Arrow and Parquet files."""
    import pyarrow as pa

    kinds = {
        "STRING": pa.string(),
        "BINARY": pa.binary(),
        "BOOLEAN": pa.bool_(),
        "INT": pa.int32(),
        "BIGINT": pa.int64(),
        "DOUBLE": pa.float64(),
        "DATE": pa.date32(),
        "TIMESTAMP": pa.timestamp("us", tz="UTC"),
        "MAP<INT,BIGINT>": pa.map_(pa.int32(), pa.int64()),
        "ARRAY<STRING>": pa.list_(pa.string()),
    }
    return pa.schema([pa.field(column.name, kinds[column.kind]) for column in schema])
