"""Whether several streams for the event log of one namespace would be faster than one.

    python -m benchmarks.event_streams [--events 400000] [--rounds 5]

All keys of a namespace are on one server, which runs one command at a time: the processor time of the server is the
limit, of writers and of readers together. Events are written by the script of the workers, a hundred in a call, to
streams in turn, then counted as the archive plans a batch, and read as its tasks do, by one reader and by four at once.
Printed is the processor time of the server for an event, the least of the rounds.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor

import redis

from rsmq_django.core import Client, Connection
from rsmq_django.core.keys import events_key
from rsmq_django.core.stats.events import append
from rsmq_django.core.transport.streams import BEGINNING, step

from .server import Server
from .texts import table

NAMESPACE = "bench"
STREAMS = (1, 2, 4, 8)
IN_A_CALL, IN_A_READ = 100, 1000
TASK_ID = "00Kd93jsPqwoeiruty56"
LINE = f"shop.tasks.send_receipt\n{TASK_ID}\ngzx9v1k5hq{TASK_ID}\n1\n1795194592459\n1500\n20000\n90"
#: What workers pass behind the lines: queue, worker, error, maximum length of the log, number of words.
WORDS = ("mail", "web1:4711:0", "\n", 10_000_000, IN_A_CALL + 4)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--events", type=int, default=400_000)
    parser.add_argument("--rounds", type=int, default=5)
    given = parser.parse_args()
    rows = []
    for count in STREAMS:
        found = [measure(count, given.events) for _ in range(given.rounds)]
        rows.append([str(count), *(f"{min(each):.2f}" for each in zip(*found, strict=True))])
    heads = ["streams", "written, us", "counted, us", "read by one, us", "read by four, us"]
    sys.stdout.write(f"{table(heads, rows)}\n")


def measure(count: int, events: int) -> list[float]:
    """Return the processor time of a new server for an event, of each way."""
    streams = [f"{events_key(NAMESPACE)}:{number}" for number in range(count)]
    with Server() as server:
        client = Client(Connection(server.url, timeout_s=60), namespace=NAMESPACE)
        written = cpu_us(server, lambda: write(client, streams, events))
        counted = cpu_us(server, lambda: [steps(client, stream) for stream in streams])
        parts = ranges(client, streams)
        whole = [(stream, "-", "+") for stream in streams]
        by_one = cpu_us(server, lambda: read(server.url, whole, readers=1))
        by_four = cpu_us(server, lambda: read(server.url, parts, readers=4))
        client.connection.close()
    return [each / events for each in (written, counted, by_one, by_four)]


def write(client: Client, streams: Sequence[str], events: int) -> None:
    for number in range(events // IN_A_CALL):
        client.run(append(NAMESPACE, "succeeded", (*[LINE] * IN_A_CALL, *WORDS), log=streams[number % len(streams)]))


def steps(client: Client, stream: str) -> list[str]:
    """Return the ids at which a batch is cut, and count its entries."""
    ids = [BEGINNING]
    while (found := client.run(step(stream, after=ids[-1]))).entries:
        ids.append(found.last_id)
    return ids


def ranges(client: Client, streams: Sequence[str]) -> list[tuple[str, str, str]]:
    """Return four parts of each stream."""
    parts = []
    for stream in streams:
        ids = steps(client, stream)
        cuts = [ids[len(ids) * part // 4] for part in range(4)] + ["+"]
        parts += [(stream, f"({begin}", end) for begin, end in zip(cuts, cuts[1:], strict=False)]
    return parts


def read(url: str, parts: Sequence[tuple[str, str, str]], *, readers: int) -> None:
    with ThreadPoolExecutor(readers) as executor:
        list(executor.map(lambda part: read_part(url, *part), parts))


def read_part(url: str, stream: str, begin: str, end: str) -> None:
    server = redis.Redis.from_url(url)
    while found := server.xrange(stream, begin, end, count=IN_A_READ):
        begin = f"({found[-1][0].decode()}"
    server.close()


def cpu_us(server: Server, way: Callable[[], object]) -> float:
    """Return the processor time that the server takes for it, in microseconds."""
    before = server.cpu_s()
    way()
    return 1e6 * (server.cpu_s() - before)


if __name__ == "__main__":
    main()
