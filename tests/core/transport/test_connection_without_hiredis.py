"""hiredis is optional. redis-py decides some things differently without it, over TCP most of all."""

import subprocess
import sys

import pytest

from rsmq_django.core import Queue
from tests.fault_proxy import FaultProxy
from tests.redis_server import PrivateServer

# None in sys.modules makes `import hiredis` fail, as if it were not installed.
SEND_AND_RECEIVE = """
import asyncio, sys
sys.modules["hiredis"] = None
from rsmq_django.core import Client, Connection, Queue
queue = Queue("jobs", Client(Connection(sys.argv[1], timeout_s=15)))
queue.send("sync")
async def main():
    await queue.asend("async")
    print((await queue.areceive()).text(), queue.receive().text())
    await queue.client.connection.aclose()
asyncio.run(main())
with queue.client.connection.subscriber(["rsmq:rt:jobs"]):
    queue.client.connection.close()
"""


@pytest.mark.parametrize("options", ["", "?protocol=3", "?protocol=3&decode_responses=true"])
def test_everything_works_over_tcp_without_hiredis(server: PrivateServer, queue: Queue, options: str):
    with FaultProxy(server.url) as proxy:
        url = f"redis://127.0.0.1:{proxy.port}/0{options}"
        done = subprocess.run(
            [sys.executable, "-W", "error", "-c", SEND_AND_RECEIVE, url], capture_output=True, text=True
        )

    assert done.stdout.split() == ["sync", "async"], done.stderr
    assert not done.stderr
