"""The blocks of docs/how-to/pipeline.md that use Spark run in order."""

import datetime as dt
import re
from pathlib import Path
from typing import Any

import pytest

from rsmq_django.core import Queue
from rsmq_django.spark.lake import Lake
from rsmq_django.spark.options import _KNOWN
from rsmq_django.spark.schemas import HOURLY

pytestmark = pytest.mark.spark

PAGE = (Path(__file__).parents[3] / "docs" / "how-to" / "pipeline.md").read_text("utf-8")
ALL_BLOCKS = re.findall(r"^```python\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
BLOCKS = [block for block in ALL_BLOCKS if "spark" in block and "RSMQ = " not in block]


def test_blocks_that_use_spark_run_in_order(spark: Any, mail: Queue):
    mail.send("first")
    namespace: dict[str, Any] = {}

    for block in BLOCKS:
        if "start_session" in block:  # there is one session in a process, and it is running
            block = block.replace('start_session("local[2]")', "given")
            namespace["given"] = spark
        exec(block, namespace)  # noqa: S102 - our own documentation

    assert mail.attributes().total_sent == 1101
    assert mail.attributes().hidden_messages == 1000


def test_block_about_readers_of_the_lake_reads_a_table(tmp_path: Path):
    lake, day = Lake.at(tmp_path), dt.date(2026, 11, 20)
    lake.write_day(
        HOURLY, day, [{"hour": dt.datetime.combine(day, dt.time(8), dt.UTC), "queue": "mail", "attempts": 7}]
    )
    (block,) = (block for block in ALL_BLOCKS if "DeltaTable" in block)
    namespace: dict[str, Any] = {}

    exec(block.replace("/var/lib/shop/lake", lake.uri), namespace)  # noqa: S102 - our own documentation

    assert namespace["hours"][["dt", "queue", "attempts"]].values.tolist() == [[day, "mail", 7]]


def test_every_option_is_explained():
    explained = set(re.findall(r"`(\w+)`", PAGE))

    assert set(_KNOWN.values()) - {"kind"} <= explained
