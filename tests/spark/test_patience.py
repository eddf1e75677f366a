"""Queries are started again when Spark did not wait for its own process, and in no other case."""

import pytest

from rsmq_django.spark.patience import STARTS, started_patiently


def test_query_whose_process_was_too_slow_is_started_again():
    tries = []

    def run() -> str:
        tries.append(1)
        if len(tries) < 3:
            raise RuntimeError("[STREAM_FAILED] Python worker failed to connect back.")
        return "done"

    assert (started_patiently(run), len(tries)) == ("done", 3)


@pytest.mark.parametrize(("said", "wanted"), [("Python worker failed to connect back", STARTS), ("no such key", 1)])
def test_error_without_a_possible_repeat_is_raised(said: str, wanted: int):
    tries = []

    def run() -> None:
        tries.append(1)
        raise RuntimeError(said)

    with pytest.raises(RuntimeError, match=said):
        started_patiently(run)
    assert len(tries) == wanted
