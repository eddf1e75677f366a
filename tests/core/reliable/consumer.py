"""A consumer in a process of its own, to be killed: pops from the queues named, notes each message, acknowledges it.

    python -m tests.core.reliable.consumer <url> <name> <queue> [<queue> ...]

Prints "<queue> <body>" when it holds a message, and "<queue> <body> done" after its acknowledgement.
"""

import sys

from rsmq_django.core import Client, Connection
from rsmq_django.core.reliable import ReliableQueue


def main(url: str, name: str, *queues: str) -> None:
    """Consume without end."""
    client = Client(Connection(url, timeout_s=15))
    by_name = {queue: ReliableQueue(queue, client, consumer=name) for queue in queues}
    first = by_name[queues[0]]
    while True:
        for message in first.pop_messages(3, 500, *queues[1:]):
            sys.stdout.write(f"{message.queue} {message.text()}\n")
            sys.stdout.flush()
            if by_name[message.queue].ack(message):
                sys.stdout.write(f"{message.queue} {message.text()} done\n")
                sys.stdout.flush()


if __name__ == "__main__":
    main(*sys.argv[1:])
