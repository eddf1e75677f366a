"""Exchanges of many connections at a time: calls to the same server are sent in one request, on one socket.

With a hundred shards, one after the other would be a hundred round trips, and a server without an answer would be
waited for a hundred times.
"""

from __future__ import annotations

from collections.abc import Generator, Hashable, Iterable, Sequence
from itertools import islice
from typing import Any, TypeVar

from redis.exceptions import MovedError

from ..errors import ConnectionFailed, OutcomeUnknown, RsmqError
from ..log_lines import get_logger
from .call import Call
from .client import Client

logger = get_logger(__name__)

T = TypeVar("T")

#: Yields the repeatable calls of each exchange, gets their results, errors in their places, and returns its own result.
#: An error of the whole exchange is raised at the `yield`.
Exchanges = Generator[Sequence[Call[Any]], list[Any], T]

#: The most calls in one request: other clients of the server wait meanwhile.
MOST_SHARED = 250


def run_side_by_side(all_exchanges: Iterable[tuple[Client, Exchanges[None]]]) -> None:
    """Run the exchanges of these clients to their ends: all first ones, then all second ones, and so on."""
    running = [_Running(*each) for each in all_exchanges]
    while running := [each for each in running if each.calls is not None]:
        by_server: dict[Hashable, list[_Running]] = {}
        for each in running:
            by_server.setdefault(each.client.connection.server, []).append(each)
        for server, group in by_server.items():
            _exchange(server, group)


class _Running:
    """The exchanges of one client."""

    def __init__(self, client: Client, exchanges: Exchanges[None]) -> None:
        self.client = client
        self._exchanges = exchanges
        #: The calls of the next exchange; None at the end.
        self.calls: Sequence[Call[Any]] | None = next(exchanges, None)

    def exchange(self) -> list[Any] | Exception:
        """Return the results of the calls from the client's own connection, or the error of the whole exchange."""
        try:
            return self.client.run_many(self.calls or ())
        except Exception as error:  # also of a reply that cannot be read: it is raised where the call was made
            return error

    def go_on(self, results: list[Any] | Exception) -> None:
        """Pass on what exchange() returned."""
        try:
            if isinstance(results, Exception):
                self.calls = self._exchanges.throw(results)
            else:
                self.calls = self._exchanges.send(results)
        except StopIteration:
            self.calls = None


def _exchange(server: Hashable, group: Sequence[_Running]) -> None:
    """Make one exchange of clients that lead to the same server."""
    shared: Sequence[list[Any] | None] = [None] * len(group)
    try:
        if len(group) > 1:
            shared = _at_once(group)
    except (ConnectionFailed, OutcomeUnknown) as error:
        for each in group:
            if each.client.connection.server == server:
                each.client.connection.leave_server()
            each.go_on(error)
        return
    except Exception as error:
        logger.debug("a reply cannot be read; each connection asks by itself: %r", error)
    unusable: set[str] = set()
    for each, found in zip(group, shared, strict=True):
        # Its own connection follows its keys to another node. A node without an answer is waited for once.
        if found is None or (_errors(found) and not unusable & _other_nodes(found)):
            results = each.exchange()
            unusable |= _other_nodes(results)
            each.go_on(results)
        else:
            each.go_on(found)


def _at_once(group: Sequence[_Running]) -> list[list[Any]]:
    """Return the results of the calls of all, from one socket."""
    carrier = next((each for each in group if each.client.connection.has_open_socket), group[0]).client
    calls = [call for each in group for call in each.calls or ()]
    portions = (calls[at : at + MOST_SHARED] for at in range(0, len(calls), MOST_SHARED))
    results = iter([result for portion in portions for result in carrier.run_many_on_one_node(portion)])
    return [list(islice(results, len(each.calls or ()))) for each in group]


def _errors(results: list[Any] | Exception) -> list[Exception]:
    return [results] if isinstance(results, Exception) else [each for each in results if isinstance(each, RsmqError)]


def _other_nodes(results: list[Any] | Exception) -> set[str]:
    """Return the addresses of the nodes of a cluster that have the keys, as the errors among the results say."""
    causes = [error.__cause__ for error in _errors(results)]
    return {f"{cause.host}:{cause.port}" for cause in causes if isinstance(cause, MovedError)}
