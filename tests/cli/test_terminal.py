"""On a terminal: colours, alignment, questions, progress; and none of them where they do not belong."""

import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from rsmq_django.core import Client, Queue
from tests.cli.conftest import STYLES, Result, Terminal
from tests.support import wait_until

pytestmark = pytest.mark.slow

OnTerminal = Callable[..., Terminal]
Run = Callable[..., Result]

#: The command line without the bar that it shows when something takes half a second, as on a busy machine all may.
PATIENT = "import sys; from rsmq_django.cli import app, output; output.PATIENCE_S = 3600; sys.exit(app.main())"


# -- Colours and alignment ------------------------------------------------------------------------------------------


def test_tables_are_coloured_and_fit_the_terminal(terminal: OnTerminal, queue: Queue):
    queue.send_many([b"x" * 500, "日本語のメッセージ".encode() * 20])

    listing = terminal("message", "list", "-n", "jobs")

    assert listing.finish() == 0, listing.text
    assert "\x1b[32mready\x1b[0m" in listing.screen
    lines = listing.text.splitlines()
    assert len(lines) == 3
    assert len(lines[1]) == 100
    assert 75 < len(lines[2]) < 90, "wide letters take two columns"
    assert lines[1].endswith("…")
    assert lines[2].endswith("…")


def test_columns_are_aligned_with_any_colours(terminal: OnTerminal, client: Client):
    for name in ("a", "a-much-longer-name"):
        Queue(name, client).create()
    Queue("a", client).send(b"x")

    stats = terminal("queue", "stats")
    stats.finish()

    header, *rows = stats.text.splitlines()
    end_of_ready = header.index("READY") + len("READY")
    assert [row[end_of_ready - 1] for row in rows] == ["1", "0"]


@pytest.mark.parametrize("switch", [{"NO_COLOR": "1"}, {"TERM": "dumb"}], ids=str)
def test_colours_can_be_switched_off(terminal: OnTerminal, queue: Queue, switch: dict[str, str]):
    queue.send(b"x")

    listing = terminal("message", "list", "-n", "jobs", **switch)

    assert listing.finish() == 0, listing.text
    assert not STYLES.search(listing.screen)


def test_errors_are_red_on_a_terminal(terminal: OnTerminal):
    failing = terminal("queue", "describe", "-n", "nope")

    assert failing.finish() == 1
    assert failing.screen.startswith("\x1b[31mError:\x1b[0m queue not found: nope; ")


def test_forms_of_the_first_rsmqctl_are_the_same_on_a_terminal(terminal: OnTerminal, rsmqctl: Run, queue: Queue):
    queue.send(b"x")

    for words in (("queue", "list"), ("queue", "describe", "-n", "jobs"), ("message", "peek", "-n", "jobs")):
        shown = terminal(*words)
        shown.finish()
        assert shown.screen == rsmqctl(*words).output.replace("\n", "\r\n")


# -- Questions --------------------------------------------------------------------------------------------------------


def test_purge_runs_after_a_confirmation(terminal: OnTerminal, queue: Queue):
    queue.send_many([b"x"] * 3)

    purging = terminal("queue", "purge", "-n", "jobs")
    purging.wait_for("Delete 3 messages of queue jobs? [y/N]")
    purging.type("y\n")

    assert purging.finish() == 0
    assert queue.attributes().messages == 0


@pytest.mark.parametrize(("answer", "exit_code"), [("n\n", 1), ("\n", 1), ("\x03", 1), ("\x04", 1)], ids=repr)
def test_purge_does_nothing_after_anything_else(terminal: OnTerminal, queue: Queue, answer: str, exit_code: int):
    queue.send(b"x")

    purging = terminal("queue", "purge", "-n", "jobs")
    purging.wait_for("[y/N]")

    assert purging.finish(pressing=answer) == exit_code
    assert "nothing was changed" in purging.text
    assert queue.attributes().messages == 1


def test_purge_with_yes_runs_without_a_confirmation(terminal: OnTerminal, queue: Queue):
    queue.send(b"x")

    assert terminal("queue", "purge", "-n", "jobs", "--yes").finish() == 0

    assert queue.attributes().messages == 0


def test_deleting_a_queue_needs_a_confirmation_only_when_it_has_messages(
    terminal: OnTerminal, queue: Queue, client: Client
):
    Queue("empty", client).create()
    queue.send(b"x")

    assert terminal("queue", "delete", "-n", "empty").finish() == 0
    deleting = terminal("queue", "delete", "-n", "jobs")
    deleting.wait_for("Delete queue jobs with 1 message? [y/N]")
    deleting.type("n\n")

    assert deleting.finish() == 1
    assert queue.attributes().messages == 1
    assert terminal("queue", "delete", "-n", "jobs", "--yes").finish() == 0


def test_password_on_the_command_line_is_warned_about_on_a_terminal(terminal: OnTerminal):
    failing = terminal("-r", "redis://user:geheim@127.0.0.1:1", "queue", "list")

    assert failing.finish() == 1
    assert "The password is visible to other users; REDIS_URL hides it." in failing.text
    assert "geheim" not in failing.text


# -- Progress ---------------------------------------------------------------------------------------------------------


def test_long_work_shows_a_bar_and_ends_with_a_sentence(terminal: OnTerminal, queue: Queue, client: Client):
    Queue("other", client).create()
    queue.send_many([b"x"] * 30)

    moving = terminal("message", "move", "-n", "jobs", "--to", "other", "--rate", "30")

    assert moving.finish() == 0
    assert "30/30" in moving.text
    assert moving.text.endswith("moved 30 messages from jobs: 30 to other\n")


def test_short_work_shows_no_bar(terminal: OnTerminal, queue: Queue, client: Client):
    Queue("other", client).create()
    queue.send(b"x")

    moving = terminal("message", "move", "-n", "jobs", "--to", "other", program=(sys.executable, "-c", PATIENT))
    moving.finish()

    assert moving.text == "moved 1 message from jobs: 1 to other\n"


def test_ids_of_a_file_do_not_scroll_by(terminal: OnTerminal, queue: Queue, tmp_path: Path):
    (tmp_path / "lines").write_text("a\nb\n")

    words = ("message", "send", "-n", "jobs", "--lines", "--file", str(tmp_path / "lines"))
    sending = terminal(*words, program=(sys.executable, "-c", PATIENT))
    sending.finish()

    assert sending.text == "sent 2 messages to jobs\n"


def test_lines_typed_on_the_terminal_are_counted_when_they_are_sent(terminal: OnTerminal, queue: Queue):
    sending = terminal("message", "send", "-n", "jobs", "--lines")
    sending.type("one\n")
    wait_until(lambda: queue.attributes().messages == 1)
    sending.type("two\n\x04")

    assert sending.finish() == 0
    assert queue.attributes().messages == 2


# -- Watch ------------------------------------------------------------------------------------------------------------


def test_watch_redraws_in_place(terminal: OnTerminal, queue: Queue):
    watching = terminal("queue", "stats", "--watch", "--interval", "0.1")
    watching.wait_for("SENT/S")
    queue.send(b"x")
    watching.wait_for("\x1b[32m1\x1b[0m")

    assert watching.finish(pressing="\x03") == 0
    assert watching.screen.count("\x1b[H") >= 2
    assert "Error" not in watching.text


def test_watch_redraws_without_colours_too(terminal: OnTerminal, queue: Queue):
    watching = terminal("queue", "stats", "--watch", "--interval", "0.1", NO_COLOR="1")
    watching.wait_for("SENT/S")

    assert watching.finish(pressing="\x03") == 0
    assert "\x1b[H" in watching.screen
    assert "\x1b[1m" not in watching.screen
