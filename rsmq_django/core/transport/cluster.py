"""Routing to the node of a Redis Cluster that has the keys; not used without a cluster.

All keys of a namespace with a hash tag are in one slot, so one node has them. Another node answers with its address
(MOVED), also after a failover or when the slot was moved: the connection uses that node from then on. The other nodes
are learned at the same time, or at the start, and are tried when the node fails. Handles addresses only; does no I/O.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from redis.exceptions import MovedError

Node = tuple[str, int]

#: Command that is sent with redirected commands, to know other nodes in case this one fails.
ASK_FOR_NODES = ("CLUSTER", "SLOTS")


class ClusterNodes:
    """The current node and the other known nodes; shared by all connections to one server."""

    def __init__(self) -> None:
        #: Empty until a node has redirected a command.
        self._nodes: tuple[Node, ...] = ()
        #: The current one; None as long as the server is not known to belong to a cluster.
        self.node: Node | None = None
        #: Whether to request the list of nodes with the first socket: the first node may fail before it redirects a
        #: command.
        self.is_curious = False

    @property
    def is_known(self) -> bool:
        """Return whether a node is known, so whether the server is known to belong to a cluster."""
        return self.node is not None

    def aim(self, link: Any) -> None:
        """Set the address of a new socket to the current node."""
        if self.node is not None:
            link.host, link.port = self.node

    def follow(self, link: Any, moved: MovedError) -> bool:
        """Switch to the node that a reply names; return False for a unix socket, which has only one node."""
        if not hasattr(link, "port"):
            return False
        node = (moved.host or link.host, moved.port)  # without a name it is another port of the same machine
        self._nodes = tuple(dict.fromkeys((node, *self._nodes, (link.host, link.port))))
        self.node = node
        return True

    def learn(self, link: Any, slots: Any) -> None:
        """Store the nodes from the reply to ASK_FOR_NODES on a socket. Without a cluster, the reply is an error."""
        self.is_curious = False
        if not isinstance(slots, list) or not hasattr(link, "port"):
            return
        found = [(node[0].decode(), int(node[1])) for slot in slots for node in slot[2:] if node[0]]
        self.node = self.node or (link.host, link.port)
        self._nodes = tuple(dict.fromkeys((self.node, *found, *self._nodes)))

    def leave(self, link: Any) -> None:
        """Switch to the next known node, because the current one does not reply."""
        # Another thread has waited for the same node and has already switched.
        if self.node is not None and (link.host, link.port) == self.node:
            self.skip()

    def skip(self) -> None:
        """Switch to the next known node."""
        node, nodes = self.node, self._nodes
        if node in nodes:  # otherwise another thread has learned of the node a moment ago
            self.node = nodes[(nodes.index(node) + 1) % len(nodes)]


def moved(replies: Sequence[Any]) -> list[int]:
    """Return the positions of calls that the node asked has not carried out, because another one has their keys."""
    return [at for at, reply in enumerate(replies) if type(reply) is MovedError]
