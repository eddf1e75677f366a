"""`rsmqctl task`: attempts by every filter, and retries of dead letters."""

import json
import signal
import subprocess
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

from rsmq_django.core import Queue
from rsmq_django.core.queue.retry_plans import plans_of
from rsmq_django.core.stats.events import FIELDS
from rsmq_django.core.stats.fingerprint import fingerprint
from tests.cli.conftest import SCRIPT, Result, Terminal
from tests.redis_server import PrivateServer
from tests.support import wait_until

Run = Callable[..., Result]
PAY = "shop.tasks.pay"
GROUP = fingerprint(PAY, "builtins.ConnectionError", "no answer")


@pytest.fixture
def mail(queue: Queue) -> Queue:
    mail = Queue("mail", queue.client)
    mail.create()
    return mail


@pytest.fixture
def dead(mail: Queue, server: PrivateServer) -> Queue:
    """Four dead letters with results and runs: t0 to t2 of one failure, t3 of another."""
    dead = Queue("mail-dead", mail.client)
    dead.create()
    for number in range(4):
        body = {"task": PAY, "id": f"t{number}", "args": [], "kwargs": {"order": f"order-{number}"}}
        died = dead.send(json.dumps(body).encode())
        error = "builtins.ConnectionError" if number < 3 else "builtins.ValueError"
        record: dict[str, object] = {
            "reason": "gave_up",
            "queue": "mail",
            "task": PAY,
            "task_id": f"t{number}",
            "error": error,
        }
        record |= {"message": "no answer", "died_ms": time.time() * 1000}
        server.redis.hset("rsmq::dead:mail-dead", died, json.dumps(record))
        server.redis.hset(f"rsmq::result:t{number}", mapping={"status": "FAILED", "queue": "mail", "message": died})
        ran(server, number, e="dead", m=died, x=error, y="no answer", k="web1-7")
    return dead


def ran(server: PrivateServer, number: int, **changes: Any) -> str:
    """Write the event of an attempt, as workers do."""
    fields = dict.fromkeys(FIELDS, "") | {"e": "succeeded", "q": "mail", "t": PAY, "i": f"t{number}", "a": "1"}
    fields |= {"m": f"m{number}", "w": "2000", "r": "1500000", **changes}
    return server.redis.xadd("rsmq::events", {"v": "\n".join(fields.values())}).decode()


def bodies_in(queue: Queue) -> int:
    return queue.attributes().messages


# -- list, show, tail -------------------------------------------------------------------------------------------------


def test_runs_are_listed_newest_first_and_filtered(rsmqctl: Run, dead: Queue, server: PrivateServer):
    ran(server, 9, t="shop.tasks.ship", q="default")

    listed = rsmqctl("task", "list")
    assert listed.exit_code == 0 and len(listed.output.splitlines()) == 6
    assert "ship" in listed.output.splitlines()[1] and "1.5s" in listed.output and "2ms" in listed.output
    assert "ConnectionError: no answer" in listed.output

    def ids(*words: str) -> list[str]:
        return [run["task_id"] for run in rsmqctl("task", "list", "--json", *words).json_lines]

    assert ids("--outcome", "failed") == ["t3", "t2", "t1", "t0"]
    assert ids("--outcome", "succeeded", "--outcome", "dead") == ["t9", "t3", "t2", "t1", "t0"]
    assert ids("-n", "mail", "--limit", "2") == ["t3", "t2"]
    assert ids("--group", GROUP) == ["t2", "t1", "t0"]
    assert ids("--task", "shop.tasks.ship") == ids("--until", "0s", "--task", "shop.tasks.ship") == ["t9"]
    assert ids("--worker", "web1-7", "order-2") == ids("ORDER-2") == ["t2"]
    assert ids("--since", "2099-01-01") == [] and "No matching runs." in rsmqctl("task", "list", "nothing").errors


def test_a_list_shows_the_next_command(rsmqctl: Run, dead: Queue):
    first = rsmqctl("task", "list", "--limit", "3")

    (hint,) = first.errors.splitlines()
    more = rsmqctl("task", "list", *hint.split()[:2])

    assert len(first.output.splitlines()) == 4 and len(more.output.splitlines()) == 2
    assert rsmqctl("task", "list", "--before", "x").exit_code == 2


@pytest.mark.parametrize("kind", ["task", "message", "run"])
def test_a_run_is_shown_with_attempts_and_arguments(rsmqctl: Run, dead: Queue, server: PrivateServer, kind: str):
    run = rsmqctl("task", "list", "--json", "order-2").json
    ran(server, 2, e="retried", m=run["message_id"])
    name = {"task": "t2", "message": run["message_id"], "run": run["run"]}[kind]

    shown, found = rsmqctl("task", "show", name), rsmqctl("task", "show", name, "--json").json

    assert shown.exit_code == 0 and "order-2" in shown.output and "retried" in shown.output
    assert len(found["attempts"]) == 2 and json.loads(found["body"])["kwargs"] == {"order": "order-2"}
    assert rsmqctl("task", "show", "nope").errors.startswith("Error: run not found: nope")


def test_terminals_get_no_control_characters_of_another_program(rsmqctl: Run, queue: Queue, server: PrivateServer):
    ran(server, 1, i="\x1b[31mred", t="\x1b]0;x", x="\x1b[2J", y="\u202e")

    for words in (("list",), ("show", "\x1b[31mred"), ("list", "--json")):
        done = rsmqctl("task", *words)
        assert done.exit_code == 0 and "\x1b" not in done.output and "\u202e" not in done.output


def test_tail_prints_runs_as_they_end(terminal: Callable[..., Terminal], queue: Queue, server: PrivateServer):
    ran(server, 1)
    screen = terminal("task", "tail", "--json", "--interval", "0.1", "--outcome", "dead")

    def is_shown() -> bool:
        ran(server, 2)
        ran(server, 3, e="dead", i="late")
        screen._read(0.2)
        return "late" in screen.screen

    wait_until(is_shown)
    assert screen.finish(pressing="\x03") == 0
    assert '"t1"' not in screen.screen and '"t2"' not in screen.screen


# -- retry ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["task", "message", "run"])
def test_one_is_retried_by_its_id(rsmqctl: Run, mail: Queue, dead: Queue, server: PrivateServer, kind: str):
    run = rsmqctl("task", "list", "--json", "order-2").json
    name = {"task": "t2", "message": run["message_id"], "run": run["run"]}[kind]

    assert rsmqctl("task", "retry", name, "--dry-run").output == "would retry 1 message from mail-dead: 1 to mail\n"
    assert bodies_in(mail) == 0
    assert rsmqctl("task", "retry", name).output == "retried 1 message from mail-dead: 1 to mail\n"

    assert (bodies_in(mail), bodies_in(dead)) == (1, 3)
    again = rsmqctl("task", "retry", name)
    assert again.exit_code == 1 and again.errors.startswith(f"Error: no dead letter of {name}")


def test_nothing_is_retried_when_one_of_the_ids_is_unknown(rsmqctl: Run, mail: Queue, dead: Queue):
    failed = rsmqctl("--json", "task", "retry", "t1", "nope")

    assert failed.exit_code == 1 and json.loads(failed.errors)["error"] == "deadLetterNotFound"
    assert bodies_in(mail) == 0


def test_one_that_stays_keeps_no_other_from_being_retried(
    rsmqctl: Run, mail: Queue, dead: Queue, server: PrivateServer
):
    other = Queue("other-dead", mail.client)
    other.create()
    homeless = other.send("of another program")
    server.redis.hset("rsmq::dead:other-dead", homeless, json.dumps({"task": PAY}))

    failed = rsmqctl("task", "retry", homeless, "t1")

    assert failed.exit_code == 1 and "1 message not moved from other-dead" in failed.errors
    assert "retried 1 message from mail-dead: 1 to mail\n" in failed.output
    assert (bodies_in(mail), bodies_in(other)) == (1, 1)


def test_a_group_is_retried_at_a_rate(rsmqctl: Run, mail: Queue, dead: Queue):
    assert rsmqctl("task", "retry", "-n", "mail-dead", "--group", GROUP, "--dry-run").output == (
        "would retry 3 messages from mail-dead: 3 to mail\n"
    )
    assert bodies_in(mail) == 0

    done = rsmqctl("task", "retry", "-n", "mail-dead", "--group", GROUP, "--rate", "0.01", "--json")

    assert done.exit_code == 0 and done.json["sent"] == done.json["open"] == 3 and 100 < done.json["left_s"] <= 200
    assert (bodies_in(mail), mail.attributes().ready_messages, bodies_in(dead)) == (3, 1, 1)
    assert [plan.failure for plan in plans_of(mail.client, "mail-dead")] == [GROUP]


def test_filters_and_a_limit_choose(rsmqctl: Run, mail: Queue, dead: Queue):
    assert rsmqctl("task", "retry", "-n", "mail-dead", "--error", "ValueError").output.startswith("retried 1 message")
    assert rsmqctl("task", "retry", "-n", "mail-dead", "--limit", "2").output.startswith("retried 2 messages")
    assert (bodies_in(mail), bodies_in(dead)) == (3, 1)


def test_a_retry_is_cancelled(rsmqctl: Run, mail: Queue, dead: Queue):
    rsmqctl("task", "retry", "-n", "mail-dead", "--rate", "0.01")

    assert rsmqctl("task", "retry", "-n", "mail-dead", "--cancel", "--dry-run").output == (
        "would return 3 messages to mail-dead\n"
    )
    assert rsmqctl("task", "retry", "-n", "mail-dead", "--cancel", "--json").json == {"returned": 3}
    assert (bodies_in(mail), bodies_in(dead)) == (1, 3)


def test_waiting_reports_the_outcomes(
    terminal: Callable[..., Terminal], mail: Queue, dead: Queue, server: PrivateServer
):
    screen = terminal("task", "retry", "-n", "mail-dead", "--limit", "2", "--rate", "100", "--wait")
    wait_until(lambda: bodies_in(mail) == 2)
    first, second = (bytes.decode(each) for each in server.redis.zrange("rsmq:mail", 0, -1))
    server.redis.hset("rsmq::result:t0", "status", "SUCCESSFUL")
    server.redis.hset("rsmq::result:t1", "status", "FAILED")
    mail.delete(first)
    mail.delete(second)

    assert screen.finish() == 1
    assert "retried 2 messages from mail-dead: 1 succeeded, 1 failed again" in screen.text
    assert "Error: 1 message failed again" in screen.text


def test_retry_continues_after_ctrl_c_while_waiting(terminal: Callable[..., Terminal], mail: Queue, dead: Queue):
    screen = terminal("task", "retry", "-n", "mail-dead", "--rate", "0.01", "--wait")
    wait_until(lambda: bodies_in(mail) == 4)

    assert screen.finish(pressing="\x03") == 130
    assert "4 messages retried and still scheduled" in screen.text and bodies_in(mail) == 4


@pytest.mark.parametrize(
    "words",
    [
        (),
        ("t1", "-n", "mail-dead"),
        ("t1", "--rate", "1"),
        ("-n", "mail-dead", "--rate", "0"),
        ("-n", "mail-dead", "--cancel", "--wait"),
    ],
    ids=" ".join,
)
def test_mistakes_are_reported_before_any_change(rsmqctl: Run, mail: Queue, dead: Queue, words: tuple[str, ...]):
    assert rsmqctl("task", "retry", *words).exit_code == 2
    assert bodies_in(mail) == 0


def test_tail_writes_each_run_as_one_line_of_json_at_once(environment: None, server: PrivateServer):
    words = [str(SCRIPT), "task", "tail", "--json", "--interval", "0.1"]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        ended = threading.Event()

        def run() -> None:
            number = 1
            while not ended.wait(0.2):
                ran(server, number)
                number += 1

        runner = threading.Thread(target=run)
        runner.start()
        try:
            # The program goes on: a line that waited in a buffer would not arrive.
            lines = [json.loads(process.stdout.readline()) for _ in range(2)]
        finally:
            ended.set()
            runner.join()
            process.send_signal(signal.SIGINT)

    assert [line["outcome"] for line in lines] == ["succeeded", "succeeded"]
    assert lines[0]["run"] != lines[1]["run"]
