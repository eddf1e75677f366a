"""The list of reliable queues."""

from __future__ import annotations

from ..keys import reliable_queues_key
from ..queue.replies import read_names
from ..transport.call import Call
from ..transport.client import Client


def list_reliable_queues(client: Client) -> list[str]:
    """Return the names of all reliable queues of the client's namespace, sorted."""
    return client.run(_list_reliable_queues(client.namespace))


async def alist_reliable_queues(client: Client) -> list[str]:
    """See list_reliable_queues()."""
    return await client.arun(_list_reliable_queues(client.namespace))


def _list_reliable_queues(namespace: str) -> Call[list[str]]:
    return Call("SMEMBERS", (reliable_queues_key(namespace),), (), read_names, repeatable=True)
