"""`rsmq_pipeline backfill`: a file as calls of a task or as messages, each row once after any number of runs."""

import json
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from django.core.management import call_command

from rsmq_django.core import Queue
from rsmq_django.spark.job import Pipeline

pytestmark = pytest.mark.spark


@pytest.fixture
def backfill(spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Run the command in the session of all tests; return how many rows went in and out."""
    monkeypatch.setattr("rsmq_django.spark.job.start_session", lambda *_, **__: spark)
    monkeypatch.setattr(Pipeline, "close", lambda _: None)

    def run(*words: str) -> tuple[int, int]:
        out = StringIO()
        call_command("rsmq_pipeline", "backfill", *words, "--yes", "--json", lake=str(tmp_path / "lake"), stdout=out)
        done = json.loads(out.getvalue())
        return done["rows_in"], done["rows_out"]

    return run


def test_file_becomes_calls_once_and_messages_once(backfill: Any, mail: Queue, tmp_path: Path):
    orders = tmp_path / "orders.csv"
    orders.write_text("order_id,delay_s\n7,0\n8,3600\n")
    texts = tmp_path / "texts.jsonl"
    texts.write_text('{"body": "first"}\n{"body": "second"}\n')

    for _ in range(2):
        assert backfill(str(orders), "--queue", "mail", "--task", "shop.tasks.send_receipt") == (2, 2)
    call = json.loads(mail.pop().body)
    hidden = mail.attributes().hidden_messages
    for _ in range(2):
        assert backfill(str(texts), "--queue", "mail") == (2, 2)

    assert (call["task"], call["kwargs"], hidden) == ("shop.tasks.send_receipt", {"order_id": "7"}, 1)
    assert {mail.pop().body, mail.pop().body} == {b"first", b"second"}
    assert mail.attributes().total_sent == 4
