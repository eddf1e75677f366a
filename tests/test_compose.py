"""The commands of compose.yaml, run here without containers."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
import redis

from rsmq_django.core.reliable.library import LIBRARY
from rsmq_django.embedded.binary import find_server
from tests.support import wait_until

ROOT = Path(__file__).parent.parent
TEXT = (ROOT / "compose.yaml").read_text("utf-8")


@pytest.mark.needs_redis(7, 0)
def test_server_of_the_compose_file_starts_and_its_functions_are_loaded(tmp_path: Path) -> None:
    (found,) = re.findall(r'command: (\["valkey-server".*?\])', TEXT)
    program, *options = json.loads(found)
    assert program == "valkey-server"
    (load,) = re.findall(r"rsmqctl -r redis://valkey:6379/0 (.+)", TEXT)
    socket = tmp_path / "s"
    words = ["--port", "0", "--unixsocket", str(socket), "--dir", str(tmp_path)]
    process = subprocess.Popen([find_server().path, *options, *words], stdout=subprocess.DEVNULL)
    try:
        wait_until(socket.exists)
        rsmqctl = Path(sys.executable).with_name("rsmqctl")
        subprocess.run([rsmqctl, "-r", f"unix://{socket}", *load.split()], check=True, capture_output=True)

        with redis.Redis(unix_socket_path=str(socket)) as server:
            assert LIBRARY in str(server.execute_command("FUNCTION", "LIST"))
            assert server.config_get("maxmemory-policy") == {"maxmemory-policy": "noeviction"}
    finally:
        process.kill()
        process.wait()


def test_files_that_the_compose_file_installs_from_are_there() -> None:
    (found,) = re.findall(r"cp -r (.+) /tmp/ &&", TEXT)

    assert [word for word in found.split() if not (ROOT / word.removeprefix("/src/")).exists()] == []
