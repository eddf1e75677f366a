"""A Node program and Python share reliable queues: it knows nothing of this package but the functions in the server."""

import json
import re
import subprocess
from pathlib import Path

import pytest

from rsmq_django.core import Client
from rsmq_django.core.reliable import ReliableQueue
from rsmq_django.core.reliable.library import load_functions
from tests.interop.conftest import require_node
from tests.redis_server import SOCKET
from tests.support import wait_until

pytestmark = pytest.mark.interop

PEER = Path(__file__).with_name("reliable_peer.js")


def test_node_program_pushes_waits_acknowledges_and_leaves_unfinished_messages(client: Client):
    require_node()
    load_functions(client)
    to_python, to_node, urgent = (ReliableQueue(name, client) for name in ("to-python", "to-node", "urgent"))
    program = subprocess.Popen(["node", str(PEER), str(SOCKET)], stdout=subprocess.PIPE, cwd=PEER.parent, text=True)

    popped = to_python.pop_messages(10, 60_000)
    to_python.ack(*popped)
    to_node.push("first", "crash")
    wait_until(lambda: to_node.info() == ["undelivered", 0, "delivered", 1])
    urgent.push("now")
    wait_until(lambda: urgent.info()[1] == 0)
    to_node.push("stop")
    output, _ = program.communicate(timeout=180)
    told = json.loads(output)

    assert [message.body for message in popped] == [b"one", b"two"] and told["failing"] == popped[0].id
    assert "count must be a whole number" in told["wrong"]
    assert told["got"] == ["first", "crash", "now", "stop"]
    [left] = to_node.messages("delivered")
    assert (left.body, left.consumer, left.deliveries) == (b"crash", "node", 1)


def test_example_of_the_documentation_runs_in_node(client: Client):
    require_node()
    load_functions(client)
    page = (PEER.parents[2] / "docs" / "how-to" / "reliable_queues.md").read_text("utf-8")
    [example] = re.findall(r"^```js\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    program = f"""
      const client = require("redis").createClient({{ path: process.argv[1] }});
      const send = (name, ...words) => new Promise((resolve, reject) =>
        client.send_command(name, words, (error, reply) => (error ? reject(error) : resolve(reply))));
      (async () => {{
        {example}
        console.log(JSON.stringify([pushed, queue, id, body, removed]));
        client.quit();
      }})();
    """

    done = subprocess.run(["node", "-e", program, str(SOCKET)], cwd=PEER.parent, capture_output=True, text=True)

    pushed, queue, message_id, body, removed = json.loads(done.stdout)
    assert (queue, message_id, body, removed) == ("orders", pushed, "order 8", [pushed])
