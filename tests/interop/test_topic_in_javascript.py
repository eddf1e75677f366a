"""The client of topics that docs/how-to/topics.md shows in JavaScript, run by Node, beside ours."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from rsmq_django.core import Client, Connection
from rsmq_django.core.topic import Topic
from tests.redis_server import PrivateServer

pytestmark = pytest.mark.interop
HERE = Path(__file__).parent
PAGE = HERE.parent.parent / "docs" / "how-to" / "topics.md"

PROGRAM = """
const client = createClient({ path: process.argv[2] });
const topic = topicOf(client, "orders");
(async () => {
  const seen = [];
  for (let body; (body = await topic.read("node")) !== null; ) seen.push(body);
  const indexes = [await topic.publish("from node"), await topic.publish("again")];
  console.log(JSON.stringify({ seen, indexes }));
  client.quit();
})();
"""


def example() -> str:
    (found,) = re.findall(r"^```js\n(.*?)^```", PAGE.read_text("utf-8"), re.MULTILINE | re.DOTALL)
    return str(found)


def test_example_in_javascript_reads_and_publishes_beside_our_client(server: PrivateServer, tmp_path: Path):
    node = shutil.which("node")
    assert node, "node is needed (Debian: apt-get install nodejs)"
    topic = Topic("orders", Client(Connection(server.url)))
    topic.publish("first", "second", "third")
    server.redis.delete("orders:messages:2")
    program = HERE / f"topic-{tmp_path.name}.js"  # beside node_modules, where its package is found
    program.write_text(example() + PROGRAM)
    try:
        done = subprocess.run(
            [node, program, server.url.removeprefix("unix://")], capture_output=True, text=True, timeout=120
        )
    finally:
        program.unlink()

    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == {"seen": ["first", "third"], "indexes": [4, 5]}
    batch = topic.group("billing").read(10)
    assert [message.text() for message in batch] == ["first", "third", "from node", "again"]
    assert topic.group("node").lag() == 2
