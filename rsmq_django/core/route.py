"""Which node of a Redis Cluster a connection talks to; nothing of it is used where there is no cluster.

All keys of a namespace with a hash tag are in one slot, so one node has them. Another node answers with its address
(MOVED), also after a failover or when the slot was moved: the connection goes there and stays. The other nodes are
learned on that occasion, or at the beginning, and asked when that one is gone. Knows addresses, but does no I/O.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from redis.exceptions import MovedError

Node = tuple[str, int]

#: What is asked together with whatever is sent again, so that other nodes are known when this one is gone.
ASK_FOR_NODES = ("CLUSTER", "SLOTS")


class Route:
    """The node to talk to and the others that are known; shared by all connections to one server."""

    def __init__(self) -> None:
        #: Empty as long as no node has named another one.
        self._nodes: tuple[Node, ...] = ()
        self._node: Node | None = None
        #: Ask for the nodes as soon as there is a socket: the first node may be gone before it has named another one.
        self.is_curious = False

    def aim(self, link: Any) -> None:
        """Let a socket that is about to be connected lead to the node."""
        if self._node is not None:
            link.host, link.port = self._node

    def follow(self, link: Any, moved: MovedError) -> bool:
        """Go to the node that another one names; False where that cannot be done: the other end of a file."""
        if not hasattr(link, "port"):
            return False
        node = (moved.host or link.host, moved.port)  # without a name it is another port of the same machine
        self._nodes = tuple(dict.fromkeys((node, *self._nodes, (link.host, link.port))))
        self._node = node
        return True

    def learn(self, link: Any, slots: Any) -> None:
        """Note the nodes in the reply to ASK_FOR_NODES on a socket. It is an error where there is no cluster."""
        self.is_curious = False
        if not isinstance(slots, list) or not hasattr(link, "port"):
            return
        found = [(node[0].decode(), int(node[1])) for slot in slots for node in slot[2:] if node[0]]
        self._node = self._node or (link.host, link.port)
        self._nodes = tuple(dict.fromkeys((self._node, *found, *self._nodes)))

    def leave(self, link: Any) -> None:
        """Ask the next node that is known from now on, because this one does not answer."""
        # Who comes second has waited for the same one: it is left already.
        if self._node is not None and (link.host, link.port) == self._node:
            nodes = self._nodes
            self._node = nodes[(nodes.index(self._node) + 1) % len(nodes)]


def moved(replies: Sequence[Any]) -> list[int]:
    """Return the positions of calls that the node asked has not carried out, because another one has their keys."""
    return [at for at, reply in enumerate(replies) if type(reply) is MovedError]
