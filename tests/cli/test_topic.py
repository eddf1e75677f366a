"""`rsmqctl topic ...`: publishing, status, reading, replaying, trimming, bridging."""

import gzip
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from rsmq_django.core import Client, Queue
from rsmq_django.core.errors import OutcomeUnknown
from rsmq_django.core.topic import NewMessage, Topic
from tests.cli.conftest import Result, Terminal

Run = Callable[..., Result]


@pytest.fixture
def topic(client: Client) -> Topic:
    """A topic "orders" with five messages, one group that has read two of them, and one that holds one."""
    topic = Topic("orders", client)
    topic.publish(NewMessage("a", key="k", headers={"type": "x"}), "b", "c", "d", b"\xff")
    billing = topic.group("billing")
    billing.read(2)
    billing.leave()
    audit = topic.group("audit", at_least_once=True)
    audit.read(1)
    audit.leave()
    return topic


# -- Publishing --------------------------------------------------------------------------------------------------------


def test_publish_prints_the_index(rsmqctl: Run, client: Client):
    done = rsmqctl("topic", "publish", "--create", "-n", "orders", "-m", "hi", "-k", "c7", "-H", "a=1", "-H", "b=x=y")

    assert (done.exit_code, done.output) == (0, "1\n")
    (message,) = Topic("orders", client).read_range(1, 1).messages
    assert (message.body, message.key, message.headers) == (b"hi", "c7", {"a": "1", "b": "x=y"})


def test_publish_lines_of_a_file(rsmqctl: Run, client: Client):
    done = rsmqctl("topic", "publish", "--create", "-n", "orders", "--lines", "--json", stdin=b"a\n\nb\r\nc")

    assert done.json_lines == [{"index": 1}, {"index": 2}, {"index": 3}]
    assert [m.body for m in Topic("orders", client).read_range(1, 9).messages] == [b"a", b"b", b"c"]


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ([], "Missing option '-m'"),
        (["-m", "a", "--stdin"], "Give only one of"),
        (["-m", "a", "-H", "b"], "has no '='"),
    ],
)
def test_failed_publish_has_the_reason(rsmqctl: Run, words: list[str], says: str):
    done = rsmqctl("topic", "publish", "-n", "orders", *words)

    assert done.exit_code == 2 and says in done.errors


@pytest.mark.parametrize("name", ["a:b", "rsmq", ""])
def test_impossible_name_is_an_error_in_one_line(rsmqctl: Run, name: str):
    done = rsmqctl("topic", "publish", "-n", name, "-m", "a")

    assert done.exit_code == 1
    assert done.errors.startswith("Error: ") and done.errors.count("\n") == 1


def test_publish_to_a_topic_that_does_not_exist_names_the_nearest_one(rsmqctl: Run, topic: Topic, client: Client):
    misspelt = rsmqctl("topic", "publish", "-n", "ordres", "-m", "a")
    other = rsmqctl("topic", "publish", "-n", "stock", "-m", "a", "--json")

    assert (misspelt.exit_code, misspelt.errors) == (1, "Error: topic not found: ordres; did you mean orders?\n")
    assert other.exit_code == 1 and "'topic publish --create' creates one" in other.errors
    assert not Topic("ordres", client).status().exists and not Topic("stock", client).status().exists
    assert rsmqctl("topic", "publish", "-n", "orders", "-m", "a").output == "6\n"


def test_seek_of_a_group_that_does_not_exist_names_the_nearest_one(rsmqctl: Run, topic: Topic):
    misspelt = rsmqctl("topic", "seek", "-n", "orders", "-g", "biling", "--to", "latest")
    assert (misspelt.exit_code, misspelt.errors) == (1, "Error: group not found: biling; did you mean billing?\n")
    assert not topic.group("biling").status().exists

    assert rsmqctl("topic", "seek", "-n", "orders", "-g", "new", "--to", "3", "--create").exit_code == 0
    assert topic.group("new").status().exists


# -- Looking -----------------------------------------------------------------------------------------------------------


def test_list_shows_topics(rsmqctl: Run, topic: Topic):
    table, lines = rsmqctl("topic", "list"), rsmqctl("topic", "list", "--json").json_lines

    assert table.output.split()[:11] == "TOPIC KEPT FIRST LAST GROUPS NEWEST orders 5 1 5 2".split()
    assert [(line["topic"], line["messages"], line["groups"]) for line in lines] == [("orders", 5, 2)]


def test_empty_list_says_that_it_is_empty(rsmqctl: Run, client: Client):
    done = rsmqctl("topic", "list")

    assert (done.exit_code, done.output, done.errors) == (0, "", "No topics\n")


def test_info_shows_limits(rsmqctl: Run, topic: Topic):
    assert rsmqctl("topic", "set", "-n", "orders", "--max-count", "1000", "--max-age", "3600").json["max_age"] == 3600
    assert rsmqctl("topic", "set", "-n", "orders", "--max-age", "0", "--wait-for-groups").exit_code == 0

    text = rsmqctl("topic", "info", "-n", "orders").output
    fields = rsmqctl("topic", "info", "-n", "orders", "--json").json

    assert "5 kept, indexes 1 to 5" in text and "kept for all groups" in text
    assert (fields["max_count"], fields["max_age"], fields["wait_for_groups"]) == (1000, None, True)


def test_groups_prints_their_lag(rsmqctl: Run, topic: Topic):
    table = rsmqctl("topic", "groups", "-n", "orders").output
    lines = {line["group"]: line for line in rsmqctl("topic", "groups", "-n", "orders", "--json").json_lines}

    assert table.splitlines()[0].split() == "GROUP NEXT LAG OLDEST UNACKED SKIPPED DEAD LIVE SEEN".split()
    assert (lines["billing"]["next"], lines["billing"]["lag"], lines["billing"]["held"]) == (3, 3, 0)
    assert (lines["audit"]["lag"], lines["audit"]["held"]) == (4, 1)


def test_tail_prints_messages_and_moves_no_group(rsmqctl: Run, topic: Topic):
    all_lines = rsmqctl("topic", "tail", "-n", "orders").json_lines
    two = rsmqctl("topic", "tail", "-n", "orders", "--last", "2").json_lines
    from_three = rsmqctl("topic", "tail", "-n", "orders", "--from", "3").json_lines

    published = all_lines[0].pop("published")
    assert all_lines[0] == {"index": 1, "message": "a", "key": "k", "headers": {"type": "x"}}
    assert published > 1e12
    assert [line["index"] for line in two] == [4, 5] and [line["index"] for line in from_three] == [3, 4, 5]
    assert (two[1]["message"], two[1]["encoding"]) == ("/w==", "base64")
    assert topic.group("billing").status().position == 2


@pytest.mark.slow
def test_tail_follows_until_interrupted(terminal: Callable[..., Terminal], topic: Topic):
    following = terminal("topic", "tail", "-n", "orders", "--last", "1", "-f")
    following.wait_for('"index": 5')

    topic.publish("fresh")
    following.wait_for("fresh")

    assert following.finish(pressing="\x03") == 130


@pytest.mark.parametrize("words", [["info"], ["groups"], ["tail"], ["trim"], ["replay", "-g", "g"]])
def test_unknown_topic_is_an_error_with_the_nearest_name(rsmqctl: Run, topic: Topic, words: list[str]):
    done = rsmqctl("topic", *words, "-n", "order")

    assert (done.exit_code, done.errors) == (1, "Error: topic not found: order; did you mean orders?\n")


# -- Reading -----------------------------------------------------------------------------------------------------------


def test_read_moves_the_group(rsmqctl: Run, topic: Topic):
    first = rsmqctl("topic", "read", "-n", "orders", "-g", "billing", "--count", "2").json_lines
    second = rsmqctl("topic", "read", "-n", "orders", "-g", "billing").json_lines
    none = rsmqctl("topic", "read", "-n", "orders", "-g", "billing", "--wait", "0.05", "--json")

    assert [line["message"] for line in first] == ["c", "d"] and second[0]["index"] == 5
    assert (none.exit_code, none.output) == (0, "null\n")


def test_read_returns_the_number_of_missed_messages(rsmqctl: Run, topic: Topic):
    topic.publish("f", "g")
    for before, missed in (5, "2 messages"), (7, "1 message"):
        topic.trim(before=before)

        done = rsmqctl("topic", "read", "-n", "orders", "-g", "billing")

        assert done.json["index"] == before
        assert done.errors == f"the group missed {missed}, dropped before it read that far\n"


def test_replay_and_dry_run(rsmqctl: Run, topic: Topic):
    planned = rsmqctl("topic", "replay", "-n", "orders", "-g", "billing", "--dry-run")
    assert planned.output == "billing would read index 1 next instead of 3, 5 to read\n"
    assert topic.group("billing").status().position == 2

    done = rsmqctl("topic", "replay", "-n", "orders", "-g", "billing", "--json")

    numbers = {"before": 3, "after": 1, "ahead": 5, "held": 0, "live": 0}
    assert done.json == {"topic": "orders", "group": "billing", **numbers, "dry_run": False}
    assert topic.group("billing").status().position == 0


@pytest.mark.parametrize(
    ("where", "after"),
    [("4", 4), ("latest", 6), ("earliest", 1), ("+1", 4), ("-1", 2), ("1h", 1), ("2001-01-01T00:00", 1)],
)
def test_seek_goes_there(rsmqctl: Run, topic: Topic, where: str, after: int):
    assert rsmqctl("topic", "seek", "-n", "orders", "-g", "billing", "--to", where, "--json").json["after"] == after


def test_seek_reports_the_possible_targets(rsmqctl: Run, topic: Topic):
    done = rsmqctl("topic", "seek", "-n", "orders", "-g", "billing", "--to", "yesterday")

    assert done.exit_code == 2 and "an age such as 30m" in done.errors


def test_group_that_reads_is_not_moved_unless_forced(rsmqctl: Run, topic: Topic):
    topic.group("billing").read()

    refused = rsmqctl("topic", "replay", "-n", "orders", "-g", "billing")
    forced = rsmqctl("topic", "replay", "-n", "orders", "-g", "billing", "--force")

    assert refused.exit_code == 1 and "live consumers of group 'billing'" in refused.errors
    assert forced.exit_code == 0


def test_replay_of_an_unknown_group_is_an_error(rsmqctl: Run, topic: Topic):
    done = rsmqctl("topic", "replay", "-n", "orders", "-g", "biling", "--json")

    assert done.exit_code == 1 and '"groupNotFound"' in done.errors


# -- Keeping it small --------------------------------------------------------------------------------------------------


def test_trim_needs_a_confirmation_and_reports_the_result(rsmqctl: Run, topic: Topic):
    planned = rsmqctl("topic", "trim", "-n", "orders", "--keep", "2", "--dry-run")
    refused = rsmqctl("topic", "trim", "-n", "orders", "--keep", "2")
    done = rsmqctl("topic", "trim", "-n", "orders", "--keep", "2", "--yes")

    assert planned.output == "would drop 3 messages of orders\n"
    assert refused.exit_code == 1 and "add --yes" in refused.errors
    assert done.output == "dropped 3 messages of orders\n"
    assert topic.status().first == 4


def test_trim_keeps_to_the_settings_and_compacts(rsmqctl: Run, topic: Topic):
    topic.publish("newer", key="k")

    assert rsmqctl("topic", "trim", "-n", "orders", "--json").json == {"topic": "orders", "dropped": 0}
    assert rsmqctl("topic", "trim", "-n", "orders", "--compact").output == "dropped 1 message of orders\n"
    assert rsmqctl("topic", "trim", "-n", "orders", "--compact", "--keep", "1").exit_code == 2


def test_bridge_moves_messages_into_a_queue(rsmqctl: Run, topic: Topic, client: Client):
    queue = Queue("mail", client)
    assert "queue not found: mail" in rsmqctl("topic", "bridge", "-n", "orders", "-g", "node", "--to", "mail").errors
    queue.create()

    done = rsmqctl("topic", "bridge", "-n", "orders", "-g", "node", "--to", "mail")

    assert done.output == "moved 5 messages from orders to mail\n"
    assert [message.body for message in queue.receive_many(10)] == [b"a", b"b", b"c", b"d", b"\xff"]


@pytest.mark.parametrize("command", ["list", "info", "publish", "tail", "read", "replay", "seek", "trim", "groups"])
def test_every_command_has_a_help_that_says_more_than_its_name(rsmqctl: Run, command: str):
    done = rsmqctl("topic", command, "--help")

    assert done.exit_code == 0 and len(done.output.splitlines()) > 8


# -- Files -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["orders.ndjson", "orders.ndjson.gz"])
def test_topic_is_archived_and_restored(rsmqctl: Run, client: Client, topic: Topic, tmp_path: Path, name: str):
    file = str(tmp_path / name)

    archived = rsmqctl("topic", "archive", "-n", "orders", "--file", file)
    restored = rsmqctl("topic", "restore", "-n", "copy", "--file", file)

    assert archived.output == "archived 5 messages from topic orders\n"
    assert restored.output == "restored 5 messages to topic copy\n"
    messages = [Topic(each, client).read_range(1, 10).messages for each in ("orders", "copy")]
    before, after = ([(each.body, each.key, each.headers) for each in part] for part in messages)
    assert before == after
    assert (Path(file).read_bytes()[:2] == b"\x1f\x8b") is name.endswith(".gz")
    assert os.listdir(tmp_path) == [name]


def test_large_topic_is_archived_and_restored_in_portions(rsmqctl: Run, client: Client, tmp_path: Path):
    topic, file = Topic("orders", client), str(tmp_path / "file")
    for first in (0, 1000, 2000):
        topic.publish(*[str(number) for number in range(first, first + 1000)])
    topic.trim(before=11)

    assert rsmqctl("topic", "archive", "-n", "orders", "--file", file, "--json").json["archived"] == 2990
    assert rsmqctl("topic", "restore", "-n", "copy", "--file", file, "--json").json["restored"] == 2990
    assert [each.text() for each in Topic("copy", client).read_range(1, 1000).messages][:2] == ["10", "11"]
    assert Topic("copy", client).status().length == 2990


def test_restoring_into_a_topic_with_messages_needs_an_option(
    rsmqctl: Run, client: Client, topic: Topic, tmp_path: Path
):
    file = str(tmp_path / "file")
    rsmqctl("topic", "archive", "-n", "orders", "--file", file, "--from", "4")

    refused = rsmqctl("topic", "restore", "-n", "orders", "--file", file)

    assert (refused.exit_code, topic.status().last) == (1, 5)
    assert "add --append" in refused.errors
    assert rsmqctl("topic", "restore", "-n", "orders", "--file", file, "--append", "--skip", "1").exit_code == 0
    assert [each.body for each in topic.read_range(6, 10).messages] == [b"\xff"]


@pytest.mark.parametrize("line", [b"hello\n", b"[]\n", b"{}\n", b'{"message": 1}\n'])
def test_file_that_is_not_an_archive_is_refused(rsmqctl: Run, client: Client, tmp_path: Path, line: bytes):
    file = tmp_path / "file"
    file.write_bytes(line)

    refused = rsmqctl("topic", "restore", "-n", "orders", "--file", str(file))

    assert (refused.exit_code, Topic("orders", client).status().length) == (1, 0)
    assert "line 1 is not a message of an archive" in refused.errors


WRONG_LINES = [b"{}", b'{"message": "x", "headers": [1]}', b'{"message": "!", "encoding": "base64"}']


@pytest.mark.parametrize("line", WRONG_LINES)
def test_restoration_with_a_wrong_line_reports_the_next_step(rsmqctl: Run, client: Client, tmp_path: Path, line: bytes):
    file = tmp_path / "file"
    file.write_bytes(b"".join([b'{"message": "x"}\n'] * 1499 + [line + b"\n"]))

    stopped = rsmqctl("topic", "restore", "-n", "copy", "--file", str(file))

    assert (stopped.exit_code, Topic("copy", client).status().length) == (1, 1000)
    assert "line 1500 is not a message of an archive" in stopped.errors
    assert "continue with --append --skip 1000" in stopped.errors


def test_restoration_of_a_truncated_archive_reports_the_next_step(rsmqctl: Run, client: Client, tmp_path: Path):
    file = tmp_path / "file.gz"
    lines = b"".join(b'{"message": "%d"}\n' % number for number in range(2500))
    file.write_bytes(gzip.compress(lines)[:-3000])

    stopped = rsmqctl("topic", "restore", "-n", "copy", "--file", str(file))

    assert (stopped.exit_code, Topic("copy", client).status().length) == (1, 1000)
    assert "cannot be read to its end" in stopped.errors
    assert "continue with --append --skip 1000" in stopped.errors


def test_file_that_is_not_compressed_as_its_name_says_is_reported(rsmqctl: Run, client: Client, tmp_path: Path):
    file = tmp_path / "file.gz"
    file.write_bytes(b'{"message": "x"}\n')

    refused = rsmqctl("topic", "restore", "-n", "copy", "--file", str(file))

    assert (refused.exit_code, Topic("copy", client).status().length) == (1, 0)
    assert "Not a gzipped file" in refused.errors


def test_restoration_with_a_lost_reply_reports_which_messages_may_be_restored(
    rsmqctl: Run, client: Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    file = tmp_path / "file"
    file.write_bytes(b'{"message": "x"}\n' * 1700)
    publish = Topic.publish

    def lose(topic: Topic, *entries: NewMessage) -> range:
        indexes = publish(topic, *entries)
        if len(indexes) < 1000:
            raise OutcomeUnknown("no reply")
        return indexes

    monkeypatch.setattr(Topic, "publish", lose)
    stopped = rsmqctl("topic", "restore", "-n", "copy", "--file", str(file))

    assert stopped.exit_code == 1
    assert "1000 messages restored, and the next 700 may be" in stopped.errors
    assert "--skip 1000 or 1700" in stopped.errors


def test_archive_that_does_not_fit_on_the_disk_is_reported(rsmqctl: Run, topic: Topic, tmp_path: Path):
    (tmp_path / "file.part").symlink_to("/dev/full")

    failed = rsmqctl("topic", "archive", "-n", "orders", "--file", str(tmp_path / "file"))

    assert failed.exit_code == 1
    assert "No space left on device" in failed.errors
    assert os.listdir(tmp_path) == []


def test_file_that_is_not_there_is_reported(rsmqctl: Run, client: Client, topic: Topic, tmp_path: Path):
    assert rsmqctl("topic", "restore", "-n", "orders", "--append", "--file", str(tmp_path / "none")).exit_code == 1
    assert rsmqctl("topic", "archive", "-n", "orders", "--file", str(tmp_path / "none" / "file")).exit_code == 1
    (tmp_path / "file").touch()
    assert rsmqctl("topic", "archive", "-n", "orders", "--file", str(tmp_path / "file" / "inside")).exit_code == 1


@pytest.mark.parametrize("words", [("--from", "1"), ("--last", "5000")])
def test_tail_of_a_topic_that_was_trimmed_leaves_nothing_out(rsmqctl: Run, client: Client, words: tuple[str, str]):
    topic = Topic("orders", client)
    for _ in range(3):
        topic.publish(*["x"] * 1000)
    topic.trim(before=11)

    printed = rsmqctl("topic", "tail", "-n", "orders", *words).json_lines

    assert [each["index"] for each in printed] == list(range(11, 3001))
