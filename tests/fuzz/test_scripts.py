"""Every Lua script on keys of random types and values, and with random arguments: a reply or an error of ours, soon.

The calls are those that tests make (calls.jsonl, noted by recorder.py). Their keys hold what the call talks about, in
any type and with any values; in the second target arguments are replaced, too. FUZZ=100 makes a long run.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rsmq_django.core import Client, Connection
from rsmq_django.core.errors import OutcomeUnknown, QueueFull, RsmqError
from rsmq_django.core.transport.call import Call
from tests.fuzz.budget import examples
from tests.redis_server import PrivateServer
from tests.scripts import FILES

#: Time to find the smallest example of what fails.
pytestmark = pytest.mark.deadline(600)

_TEXTS = {name: path.read_text() for name, path in FILES.items()}
_INCLUDED = {name for text in _TEXTS.values() for name in re.findall(r"^--#include (\S+)$", text, re.MULTILINE)}
CALLS: dict[str, list[tuple[list[str], list[str]]]] = {}
for _line in (Path(__file__).parent / "calls.jsonl").read_text().splitlines():
    _script, _keys, _args = json.loads(_line)
    CALLS.setdefault(_script, []).append((_keys, _args))
#: Parts of others, and a library of functions, which runs nothing when it is loaded.
SCRIPTS = sorted(set(_TEXTS) - (_INCLUDED - set(CALLS)) - {"reliable/parts/library"})
#: A script that needs longer holds up everybody; one that needs more memory fills the server.
TIMEOUT_S, ROOM_BYTES = 20, 64 << 20
LUA_ERROR = re.compile(r"attempt to|bad argument|stack overflow|too many results|must be strings or integers")

NUMBERS = "0 1 -1 1.5 1e400 inf -inf nan 1e14 -1e17 1700000000000 9223372036854775807 9223372036854775808 0x10".split()
NUMBERS += ["", "-", " ", "9" * 400]
SCORES = [0, 1, -1, 0.5, 1e300, -1e300, float("inf"), float("-inf"), 1.7e12, 4e12]
LATIN = st.text(st.characters(codec="latin-1"), max_size=8)
#: What scripts name, as fields of hashes mostly.
NAMED = sorted({name for text in _TEXTS.values() for name in re.findall(r'"([a-z_=]{2,16}:?)"', text)})
#: Ends of fields that scripts look for beside what the arguments name.
ENDS = ["", ":rc", ":fr", ":crashes", ":lives"]


@pytest.fixture
def narrow(server: PrivateServer) -> Iterator[Client]:
    """A client of a server with little room."""
    make_narrow(server)
    client = Client(Connection(server.url, timeout_s=TIMEOUT_S))
    yield client
    client.connection.close()
    server.empty()
    server.redis.config_set("maxmemory", 0)


def make_narrow(server: PrivateServer) -> None:
    """Give the server little room."""
    used = server.redis.info("memory")["used_memory"]
    server.redis.config_set("maxmemory", used + ROOM_BYTES)


@st.composite
def states(draw: Any, keys: list[str], words: list[str]) -> list[tuple[Any, ...]]:
    """Return commands that fill some of the keys with what the call talks about."""
    named = words + [word for each in words for word in re.split(r"[\n ]", each)]
    fields = NAMED + named
    field = st.builds(lambda word, end: word + end, st.sampled_from(fields), st.sampled_from(ENDS))
    word = st.sampled_from(NUMBERS) | st.sampled_from(named or [""]) | LATIN
    commands: list[tuple[Any, ...]] = []
    for key in dict.fromkeys(keys):
        kind = draw(st.sampled_from("none string hash hash hash zset zset set list stream".split()))
        filling = draw(st.lists(st.tuples(field, word, st.sampled_from(SCORES)), min_size=1, max_size=6))
        for name, value, score in filling:
            first, second = name.encode("latin-1", "replace"), value.encode("latin-1", "replace")
            if kind == "hash":
                commands.append(("HSET", key, first, second))
            elif kind == "zset":
                commands.append(("ZADD", key, repr(score), first))
            elif kind in ("set", "list"):
                commands.append(({"set": "SADD", "list": "RPUSH"}[kind], key, first))
            elif kind == "stream":
                commands.append(("XADD", key, "*", first, second))
            elif kind == "string":
                commands.append(("SET", key, second))
    return commands


NAMED = sorted({name for text in _TEXTS.values() for name in re.findall(r'"([a-z_=]{2,16}:?)"', text)})


def carry_out(server: PrivateServer, client: Client, script: str, call: Any, state: list[tuple[Any, ...]]) -> str:
    """Run one call on one state; return the text of the server's error, "" for a reply."""
    keys, args = call
    server.redis.flushall()
    with server.redis.pipeline(transaction=False) as pipe:
        for command in state:
            pipe.execute_command(*command)
        pipe.execute(raise_on_error=False)
    words = tuple(arg.encode("latin-1", "replace") for arg in args)
    try:
        client.run(Call(script, tuple(keys), words, lambda reply: reply, subject="q"))
    except OutcomeUnknown:
        server.restart()  # nothing else ends a script that has written; the same example may be tried again
        make_narrow(server)
        raise AssertionError(f"{script} takes more than {TIMEOUT_S} s") from None
    except QueueFull:
        raise AssertionError(f"{script} needs more than {ROOM_BYTES} bytes") from None
    except RsmqError as error:
        return str(error.__cause__)
    return ""


@pytest.mark.parametrize("script", SCRIPTS)
def test_script_meets_any_keys_without_an_error_of_lua(server: PrivateServer, narrow: Client, script: str):
    @examples(3)
    @given(st.data())
    def meet(data: st.DataObject) -> None:
        call = data.draw(st.sampled_from(CALLS[script]))
        state = data.draw(states(call[0], call[1]))
        assert not LUA_ERROR.search(carry_out(server, narrow, script, call, state))

    meet()


@pytest.mark.parametrize("script", SCRIPTS)
def test_script_meets_any_arguments_with_an_error_of_ours(server: PrivateServer, narrow: Client, script: str):
    @examples(3)
    @given(st.data())
    def meet(data: st.DataObject) -> None:
        keys, args = data.draw(st.sampled_from(CALLS[script]))
        state = data.draw(states(keys, args))
        word = st.sampled_from(NUMBERS) | st.sampled_from(args or [""]) | st.text(max_size=8)
        for at in data.draw(st.lists(st.integers(0, max(0, len(args) - 1)), max_size=4)) if args else ():
            args = [*args[:at], data.draw(word), *args[at + 1 :]]
        carry_out(server, narrow, script, (keys, args), state)

    meet()
