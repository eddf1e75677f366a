"""Topics of the settings: name -> core `Topic` on its connection, and publishing on commit.

Does not look into messages.
"""

from collections.abc import Mapping, Sequence

from .conf.settings import get_settings
from .core.limits import Body
from .core.topic import NewMessage, Topic
from .queues import get_client, get_sender
from .tasks.sending import after_commit, in_transaction

__all__ = ["apublish", "get_topic", "publish"]


def get_topic(name: str, *, connection: str = "default") -> Topic:
    """Return a topic. Does no I/O; the object can be reused. Raises InvalidName, ImproperlyConfigured.

    It publishes at once; `publish()` waits for the commit.
    """
    get_settings().check_topic(name)
    return Topic(name, get_client(connection), sender=get_sender(connection))


def publish(
    name: str,
    *bodies: Body | NewMessage,
    key: str | None = None,
    headers: Mapping[str, str] | None = None,
    connection: str = "default",
) -> None:
    """Publish up to 1,000 messages when the surrounding transaction commits, or at once without a transaction.

    RSMQ["TASKS"]["ENQUEUE_ON_COMMIT"] decides which transaction, as for tasks. Invalid messages raise here and not at
    the commit: see `Topic.publish()`.
    """
    topic = get_topic(name, connection=connection)
    call = topic.publish_call(*bodies, key=key, headers=headers)
    after_commit(lambda: topic.run(call, topic.sender), _described(name, bodies))


async def apublish(
    name: str,
    *bodies: Body | NewMessage,
    key: str | None = None,
    headers: Mapping[str, str] | None = None,
    connection: str = "default",
) -> range | None:
    """Publish at once and return the indexes; in a transaction of synchronous code, publish at its commit: None."""
    topic = get_topic(name, connection=connection)
    call = topic.publish_call(*bodies, key=key, headers=headers)
    if await in_transaction(lambda: after_commit(lambda: topic.run(call, topic.sender), _described(name, bodies))):
        return None
    return await topic.arun(call, topic.sender)


def _described(name: str, bodies: Sequence[object]) -> str:
    """Return the description of unsent messages for log lines."""
    count = "a message" if len(bodies) == 1 else f"each of {len(bodies)} messages"
    return f"{count} for topic {name!r}"
