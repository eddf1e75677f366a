"""The other clients as fixtures: one process each for the whole run, connected anew for every test.

On a laptop without node these tests are skipped with the reason; where CI or RSMQ_REQUIRE_NODE is set they fail.
"""

import fcntl
import importlib.util
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import NoReturn

import pytest

from tests.interop.peers import NodePeer, PyRsmqPeer
from tests.redis_server import URL, PrivateServer

HERE = Path(__file__).parent
OLDEST_NODE = 18


@pytest.fixture(scope="session")
def node_process(_server_of_this_process: PrivateServer) -> Iterator[NodePeer]:
    require_node()
    with NodePeer(URL) as peer:
        yield peer


@pytest.fixture
def node(server: PrivateServer, node_process: NodePeer) -> Iterator[NodePeer]:
    """The npm package `rsmq` on the private server."""
    node_process.reset()
    yield node_process
    node_process.reset()  # ends what it consumes in the background


@pytest.fixture(scope="session")
def pyrsmq_process(_server_of_this_process: PrivateServer) -> Iterator[PyRsmqPeer]:
    if importlib.util.find_spec("rsmq") is None:
        missing("PyRSMQ is not installed: pip install PyRSMQ")
    with PyRsmqPeer(URL) as peer:
        yield peer


@pytest.fixture
def pyrsmq(server: PrivateServer, pyrsmq_process: PyRsmqPeer) -> Iterator[PyRsmqPeer]:
    """PyPI `PyRSMQ` on the private server."""
    pyrsmq_process.reset()
    yield pyrsmq_process
    pyrsmq_process.reset()  # ends what it consumes in the background


def require_node() -> None:
    """Skip, or fail where it is required, unless node and the npm clients are there."""
    node = shutil.which("node")
    if node is None:
        missing("node is not installed (Debian: apt-get install nodejs npm)")
    version = subprocess.run([node, "--version"], capture_output=True, text=True, check=True).stdout.strip()
    if int(version.lstrip("v").split(".")[0]) < OLDEST_NODE:
        missing(f"node is {version}, the tests need {OLDEST_NODE} or newer")
    install_npm_clients()


def install_npm_clients() -> None:
    """Install the npm clients unless `make` or an earlier run has done so."""
    with (HERE / "package.json").open() as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # parallel test processes come here at the same time
        if (HERE / "node_modules" / "rsmq" / "package.json").exists():
            return
        npm = shutil.which("npm")
        if npm is None:
            missing("the npm clients are not installed and there is no npm (Debian: apt-get install npm)")
        done = subprocess.run([npm, "ci", "--no-audit", "--no-fund"], cwd=HERE, capture_output=True, text=True)
    if done.returncode != 0:
        missing(f"npm could not install the clients: {done.stderr[-500:]}")


def missing(reason: str) -> NoReturn:
    if os.environ.get("CI") or os.environ.get("RSMQ_REQUIRE_NODE"):
        pytest.fail(reason, pytrace=False)
    pytest.skip(reason)
