"""The node that a connection to a cluster uses: the one in a redirection, then the other known ones."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from redis.exceptions import MovedError

from rsmq_django.core.transport.cluster import ClusterNodes


def a_socket(host: str = "first", port: int = 7000) -> SimpleNamespace:
    return SimpleNamespace(host=host, port=port)


@pytest.mark.parametrize(
    ("named", "expected"),
    [("12 second:7001", ("second", 7001)), ("12 :7001", ("first", 7001))],
    ids=["by host and port", "by port alone"],
)
def test_connection_goes_to_the_node_that_another_one_names(named: str, expected: tuple[str, int]):
    route, link = ClusterNodes(), a_socket()

    assert route.follow(link, MovedError(named))

    route.aim(link)
    assert (link.host, link.port) == expected


def test_node_that_does_not_answer_is_left_for_the_next_one():
    route, link = ClusterNodes(), a_socket()
    route.follow(link, MovedError("12 second:7001"))
    route.aim(link)

    route.leave(link)
    route.leave(link)  # who waited for the same node
    route.aim(link)

    assert (link.host, link.port) == ("first", 7000)


class LeftMeanwhile(ClusterNodes):
    """Another thread leaves the node after each step of this one."""

    is_shared = False

    def __setattr__(self, name: str, value: object) -> None:
        super().__setattr__(name, value)
        if name != "is_shared" and self.is_shared:
            self.is_shared = False
            self.skip()
            self.is_shared = True


def test_node_may_be_left_between_any_two_steps_of_a_thread_that_learns_the_nodes():
    route, link = LeftMeanwhile(), a_socket()
    route.is_shared = True

    route.learn(link, [[0, 16383, [b"first", 7000], [b"second", 7001]]])
    route.follow(link, MovedError("12 third:7002"))

    assert route.node in {("first", 7000), ("second", 7001), ("third", 7002)}


def test_no_other_node_is_followed_from_the_socket_of_a_file():
    assert not ClusterNodes().follow(SimpleNamespace(path="/run/redis"), MovedError("12 second:7001"))
