"""The options of the data source: every mistake has a name, and the address stays secret."""

import pickle

import pytest

from rsmq_django.spark.errors import WrongOption
from rsmq_django.spark.options import Options

URL = "redis://user:hunter2@example.invalid:6379/0"


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"kind": "queues"}, "queue, dead, events, topic, drain, tasks"),
        ({"maxRowPerBatch": "5"}, "did you mean 'maxRowsPerBatch'"),
        ({"maxRowsPerBatch": "0"}, "from 1 on"),
        ({"failOnDataLoss": "maybe"}, "true or false"),
        ({"leaseS": "-1"}, "number of seconds"),
        ({"leaseS": "nan"}, "number of seconds"),
        ({"startAfter": "5-1"}, "use JSON such as"),
        ({"endAt": "yesterday"}, "use an id of the log"),
        ({"kind": "drain"}, "needs the option queue"),
        ({"kind": "topic"}, "needs the option topic"),
    ],
)
def test_wrong_option_is_reported_with_the_right_one(given: dict[str, str], said: str):
    with pytest.raises(WrongOption, match=said):
        Options.read({"url": URL, **given})


def test_names_of_options_are_read_in_any_case_as_spark_hands_them_over():
    options = Options.read({"url": URL, "MAXROWSPERBATCH": "7", "checkpointlocation": "/tmp/x"})

    assert options.max_rows == 7


def test_address_comes_from_the_environment_or_a_file_of_the_driver(monkeypatch, tmp_path):
    monkeypatch.setenv("MY_REDIS", URL)
    (tmp_path / "url").write_text(f"{URL}\n")

    from_environment = Options.read({"urlEnv": "MY_REDIS"})
    from_file = Options.read({"urlFile": str(tmp_path / "url")})

    assert from_environment.url == from_file.url == URL
    monkeypatch.delenv("MY_REDIS")
    assert pickle.loads(pickle.dumps(from_environment)).url == URL, "executors need no variable"
    with pytest.raises(WrongOption, match="MY_REDIS is not set on the driver"):
        Options.read({"urlEnv": "MY_REDIS"})


def test_password_shows_in_no_text(monkeypatch):
    options = Options.read({"url": URL, "patienceS": "0"})

    with pytest.raises(Exception) as failed:
        options.server().ask_one("PING")

    assert "hunter2" not in repr(options) + str(options) + str(failed.value) + repr(options.server().client)
