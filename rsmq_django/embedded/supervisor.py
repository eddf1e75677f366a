"""The detached process that owns an embedded server: starts it, restarts it after a crash, stops it when unused.

It lives in a session of its own, so that Ctrl-C in one terminal does not stop a server that others use, and is
nobody's child. Its starter reads one word from its standard output: "ready", "busy" (another supervisor is at work),
or nothing, and then the logs say why. Configuration and directories are decided by the starter.
"""

import os
import re
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

from .files import StateFiles, answers, ask, give_back, is_current, open_lock, take

START_TIMEOUT_S = 30.0  # a large append-only file takes seconds to load
STOP_TIMEOUT_S = 30.0
#: How long nobody may use the server before it stops: `make demo` twice in a row should find it running.
GRACE_S = 2.0
POLL_S = 0.5
START_POLL_S = 0.005


def main(state_dir: str, socket: str, executable: str, data_format: str) -> None:
    """Leave the starter's process tree and terminal, and supervise."""
    if os.fork():
        os._exit(0)
    os.setsid()
    os.chdir("/")
    os.umask(0o077)
    supervisor = Supervisor(Path(state_dir), Path(socket), executable=executable, data_format=data_format)
    signal.signal(signal.SIGTERM, supervisor.stop_soon)
    supervisor.run()


class Supervisor:
    """The owner of one server process."""

    def __init__(self, state_dir: Path, socket: Path, *, executable: str, data_format: str) -> None:
        self.files = StateFiles(state_dir)
        self.socket = socket
        self.executable = executable
        self.data_format = data_format
        self._own_lock = open_lock(self.files.supervisor_lock)
        self._users_lock = open_lock(self.files.users_lock)
        self._used_s = time.monotonic()
        self._told_to_stop = False

    def run(self) -> None:
        """Keep the server running until nobody uses it any more."""
        if not take(self._own_lock):
            _log("another supervisor is at work; leaving the server to it")
            _tell_starter("busy")
            return
        try:
            self._end_orphan()
            self._serve()
        finally:
            self._remove_socket_directory()

    def _serve(self) -> None:
        server = self._start()
        _tell_starter("ready")
        try:
            while not self._is_over():
                if _ends(server, within_s=POLL_S) and not self._is_over():
                    _log(f"the server ended with {server.returncode}; starting it again on the same data")
                    server = self._start()
        finally:
            _stop(server)

    def stop_soon(self, *_: object) -> None:
        """Remember to stop. An exception from a signal handler could come before the server is in safe hands."""
        self._told_to_stop = True

    def _end_orphan(self) -> None:
        """Stop a server whose supervisor was killed: nobody else would ever stop it."""
        found = re.search(r"\bprocess_id:(\d+)", ask(self.socket, "INFO server"))
        if not found:
            return
        _log(f"the server {found[1]} has lost its supervisor; replacing it")
        os.kill(int(found[1]), signal.SIGTERM)
        deadline_s = time.monotonic() + STOP_TIMEOUT_S
        while ask(self.socket, "PING"):
            if time.monotonic() > deadline_s:
                sys.exit(f"the server {found[1]} did not stop within {STOP_TIMEOUT_S} s; end it by hand")
            time.sleep(START_POLL_S)

    def _start(self) -> subprocess.Popen[bytes]:
        """Start the server on the data of its own flavour and version, and wait until it answers."""
        data = self.files.directory / self.data_format
        data.mkdir(exist_ok=True)
        command = [self.executable, "--port", "0", "--unixsocket", str(self.socket), "--unixsocketperm", "700"]
        command += ["--dir", str(data), "--appendonly", "yes", "--appendfsync", "everysec", "--save", ""]
        command += ["--maxmemory-policy", "noeviction"]
        with self.files.server_log.open("ab") as log:
            server = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT)
        deadline_s = time.monotonic() + START_TIMEOUT_S
        while not answers(self.socket):
            if _ends(server, within_s=START_POLL_S):
                sys.exit(f"the server ended with {server.returncode} before it answered")
            if time.monotonic() > deadline_s:
                _stop(server)
                sys.exit(f"the server did not answer within {START_TIMEOUT_S} s")
        self.files.write_record(
            pid=server.pid,
            supervisor_pid=os.getpid(),
            server=self.data_format,
            executable=self.executable,
            socket=str(self.socket),
        )
        return server

    def _is_over(self) -> bool:
        """Say whether to stop: told to, nobody is left, or the files are no longer ours (somebody cleaned up).

        A server that ended in good order removed its socket: somebody stopped it on purpose.
        """
        return self._told_to_stop or not self._is_ours() or not self.socket.exists() or self._is_unused()

    def _is_ours(self) -> bool:
        own = is_current(self._own_lock, self.files.supervisor_lock)
        return own and is_current(self._users_lock, self.files.users_lock)

    def _is_unused(self) -> bool:
        """Say whether nobody has used the server for the grace time.

        Keeps the exclusive lock then: whoever comes next waits until this process, and with it the server, is gone.
        """
        now_s = time.monotonic()
        if not take(self._users_lock):
            self._used_s = now_s
            return False
        if now_s - self._used_s > GRACE_S:
            return True
        give_back(self._users_lock)
        return False

    def _remove_socket_directory(self) -> None:
        """Leave nothing in the temporary directory, unless a successor may be about to use it."""
        if self._is_ours() or not self.files.supervisor_lock.exists():
            with suppress(OSError):
                self.socket.parent.rmdir()


def _ends(server: subprocess.Popen[bytes], *, within_s: float) -> bool:
    try:
        server.wait(within_s)
    except subprocess.TimeoutExpired:
        return False
    return True


def _stop(server: subprocess.Popen[bytes]) -> None:
    """End the server in good order, which saves what the append-only file has not yet."""
    server.terminate()
    if not _ends(server, within_s=STOP_TIMEOUT_S):
        _log(f"the server did not stop within {STOP_TIMEOUT_S} s; killing it")
        server.kill()
        server.wait()


def _tell_starter(word: str) -> None:
    os.write(1, word.encode())
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 1)  # the starter reads until the end of file
    os.close(nowhere)


def _log(line: str) -> None:
    """Write to standard error, which the starter has pointed at supervisor.log."""
    sys.stderr.write(f"{time.strftime('%Y-%m-%d %H:%M:%S')} {line}\n")
    sys.stderr.flush()
