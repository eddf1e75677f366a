"""The list of topics. Redis cannot list them, so each use of a topic adds it to a set."""

from __future__ import annotations

from contextlib import suppress

from ..errors import RsmqError
from ..queue.replies import read_names
from ..transport.call import Call
from ..transport.client import Client
from .keys import TOPICS_KEY, dead_letter_topic


def register_call(name: str) -> Call[int]:
    """Return the call that adds a topic to the list."""
    return Call("SADD", (TOPICS_KEY,), (name,), int, repeatable=True, subject=name)


def register_dead_letters(client: Client, topic: str) -> None:
    """Add the dead-letter topic of a topic to the list; without an error, because its messages are stored already."""
    with suppress(RsmqError):
        client.run(register_call(dead_letter_topic(topic)))


async def aregister_dead_letters(client: Client, topic: str) -> None:
    """See register_dead_letters()."""
    with suppress(RsmqError):
        await client.arun(register_call(dead_letter_topic(topic)))


def list_topics(client: Client) -> list[str]:
    """Return the topics that were used through this package on the client's server, sorted."""
    return client.run(_list_topics())


async def alist_topics(client: Client) -> list[str]:
    """See list_topics()."""
    return await client.arun(_list_topics())


def _list_topics() -> Call[list[str]]:
    return Call("SMEMBERS", (TOPICS_KEY,), (), read_names, repeatable=True)
