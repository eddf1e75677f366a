"""After a lost reply, a call that only reads is sent again; a call that writes only if it is marked as repeatable."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

import pytest

from tests.scripts import FILES

PACKAGE = Path(__file__).parents[2] / "rsmq_django"
#: Commands that change nothing.
READS = set(
    """
    DBSIZE EXISTS GET GETRANGE HEXISTS HGET HGETALL HKEYS HLEN HMGET HSCAN HSTRLEN INFO LINDEX LLEN LRANGE MEMORY MGET
    PTTL SCAN SCARD SISMEMBER SMEMBERS SMISMEMBER SSCAN STRLEN TIME TTL TYPE XINFO XLEN XRANGE XREVRANGE ZCARD ZCOUNT
    ZMSCORE ZRANGE ZRANGEBYSCORE ZRANK ZREVRANGE ZREVRANGEBYSCORE ZSCAN ZSCORE
    """.split()
)
#: Scripts whose second run takes further messages, sends again, or answers that there was nothing to do.
DONE_ONCE = set(
    """
    queue/browse/claim_step queue/bulk/adopt queue/create queue/delete_queue queue/moves/discard queue/moves/move
    queue/moves/purge queue/moves/redrive queue/retry/begin queue/retry/return queue/testing/pass_time reliable/move
    reliable/pop stats/events/append tasks/cancel tasks/enqueue tasks/enqueue_unique tasks/limits/take
    tasks/outbox/cancel tasks/worker/crash tasks/worker/fetch topic/forward topic/lease topic/read topic/seek
    """.split()
)


@cache
def source_of(script: str) -> str:
    text = FILES[script].read_text("utf-8")
    return text + "".join(source_of(line.split()[1]) for line in text.splitlines() if line.startswith("--#include "))


def only_reads(script: str) -> bool:
    """Return whether a script, or a command in capitals, changes nothing."""
    if script.isupper():
        return script in READS
    commands = set(re.findall(r'redis\.p?call\(\s*"?([A-Za-z_]+)', source_of(script)))
    return bool(commands) and commands <= READS


def is_known(script: str) -> bool:
    return script in FILES or script.isupper()


def calls() -> list[tuple[str, str, object]]:
    """Return where each call is made, its script, and whether it says that it may be repeated."""
    found: list[tuple[str, str, object]] = []
    for path in sorted(PACKAGE.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            match node:
                case ast.Call(ast.Name("Call"), [ast.Constant(str() as script), *more], keywords):
                    said = more[3] if len(more) > 3 else None
                    said = next((each.value for each in keywords if each.arg == "repeatable"), said)
                    value = said.value if isinstance(said, ast.Constant) else said is not None
                    found.append((f"{path.relative_to(PACKAGE)}:{node.lineno}", script, value))
    return found


@pytest.mark.parametrize(
    ("where", "is_repeatable"),
    [
        pytest.param(where, is_repeatable, id=f"{script} in {where.partition(':')[0]}")
        for where, script, is_repeatable in calls()
        if is_known(script) and only_reads(script)
    ],
)
def test_a_call_that_only_reads_is_repeated_when_its_reply_was_lost(where: str, is_repeatable: object):
    assert is_repeatable is True, where


@pytest.mark.parametrize(
    ("script", "where", "is_repeatable"),
    [
        pytest.param(script, where, is_repeatable, id=f"{script} in {where.partition(':')[0]}")
        for where, script, is_repeatable in calls()
        if is_known(script) and not only_reads(script)
    ],
)
def test_a_call_that_writes_is_repeated_unless_the_second_time_does_or_answers_something_else(
    script: str, where: str, is_repeatable: object
):
    assert is_repeatable is (script not in DONE_ONCE), where
