"""Runs ``gavel`` as a process of its own without importing it anew: a server that has imported it forks for every
command.

Importing takes nine tenths of a short command's time, and the tests run some four hundred of them. What a fork cannot
repeat (another import path, another encoding of the interpreter) is started as a new interpreter, as is every command
on systems without ``pidfd``.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import importlib
import io
import os
import selectors
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import orjson

ROOT = Path(__file__).resolve().parents[2]
SOURCES = f"{ROOT}{os.pathsep}{ROOT / 'src'}"
"""The import path of a process that runs this very tree, whatever is installed."""
LONGEST = 100_000
"""Bytes of a request; what is longer is started as a new interpreter."""
_AT_START = (
    "PYTHONPATH",
    "PYTHONUTF8",
    "PYTHONIOENCODING",
    "PYTHONWARNINGS",
    "PYTHONDEVMODE",
    "LANG",
    "LC_ALL",
    "LC_CTYPE",
)
"""What an interpreter reads as it starts."""


@dataclass(frozen=True)
class Done:
    """A finished command."""

    code: int
    out: str
    err: str


def run_command(
    words: Sequence[str], *, cwd: Path | None = None, env: Mapping[str, str] | None = None, timeout: float = 60.0
) -> Done:
    """Run ``gavel`` to its end, with nothing on its input.

    Raises:
        TimeoutError: it ran longer than ``timeout`` seconds; it is killed.
    """
    environment = dict(os.environ if env is None else env)
    if environment.get("PYTHONPATH") == os.environ.get("PYTHONPATH"):
        environment["PYTHONPATH"] = SOURCES
    request = orjson.dumps({"words": list(words), "cwd": str(cwd or Path.cwd()), "env": environment})
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        if _is_alike(environment) and len(request) < LONGEST:
            code = _run_forked(request, out, err, timeout)
        else:
            code = _run_fresh(words, cwd, environment, (out, err), timeout)
        return Done(code, _read_whole(out), _read_whole(err))


def _is_alike(environment: Mapping[str, str]) -> bool:
    mine = {**os.environ, "PYTHONPATH": SOURCES}
    return hasattr(os, "pidfd_open") and all(environment.get(name) == mine.get(name) for name in _AT_START)


def _read_whole(file: IO[bytes]) -> str:
    file.seek(0)
    return file.read().decode()


def _run_fresh(
    words: Sequence[str], cwd: Path | None, env: Mapping[str, str], streams: tuple[IO[bytes], IO[bytes]], timeout: float
) -> int:
    command = (sys.executable, "-m", "gavel.launch.cli", *words)
    out, err = streams
    try:
        done = subprocess.run(
            command, cwd=cwd, env=env, stdin=subprocess.DEVNULL, stdout=out, stderr=err, timeout=timeout, check=False
        )
    except subprocess.TimeoutExpired:
        raise TimeoutError(f"{words}: {_read_whole(out)}{_read_whole(err)}") from None
    return done.returncode


def _run_forked(request: bytes, out: IO[bytes], err: IO[bytes], timeout: float) -> int:
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as connection, Path(os.devnull).open("rb") as nothing:
        connection.settimeout(timeout + 60)
        connection.connect(_start_server())
        socket.send_fds(connection, [request], [nothing.fileno(), out.fileno(), err.fileno()])
        pid = int(connection.recv(32))
        connection.settimeout(timeout)
        try:
            return int(connection.recv(32))
        except TimeoutError:
            os.kill(pid, signal.SIGKILL)
            raise TimeoutError(f"{request!r}: {_read_whole(out)}{_read_whole(err)}") from None


@functools.cache
def _start_server() -> str:
    """Start the server of this process, which ends with it; return the address."""
    folder = tempfile.TemporaryDirectory(prefix="gavel-")
    address = f"{folder.name}/socket"
    process = subprocess.Popen(
        (sys.executable, "-m", "tests.support.preloaded", address),
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": SOURCES},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    assert process.stdout.read(1) == b"+", "the server of commands did not start"
    atexit.register(folder.cleanup)
    atexit.register(process.stdin.close)
    return address


class Server:
    """Forks for each request and sends back the process's number, then its exit code. ``poll`` holds no descriptor of
    its own, so that a child has none to inherit."""

    def __init__(self, address: str) -> None:
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._listener.bind(address)
        self._listener.listen(64)
        self._running: dict[int, tuple[int, socket.socket]] = {}

    def serve(self) -> list[str] | None:
        """Serve until the input ends (returns None); in a child, return the words of its command."""
        poll = selectors.PollSelector()
        poll.register(0, selectors.EVENT_READ)
        poll.register(self._listener, selectors.EVENT_READ)
        os.write(1, b"+")
        while True:
            for key, _ in poll.select():
                if key.fd == 0:
                    return None
                if key.fd in self._running:
                    poll.unregister(key.fd)
                    self._send_code(key.fd)
                elif (words := self._start(poll)) is not None:
                    return words

    def _start(self, poll: selectors.PollSelector) -> list[str] | None:
        connection, _ = self._listener.accept()
        data, streams, _, _ = socket.recv_fds(connection, LONGEST, 3)
        request = orjson.loads(data)
        pid = os.fork()
        if pid == 0:
            self._become(request, streams, connection)
            return list(request["words"])
        for stream in streams:
            os.close(stream)
        connection.send(str(pid).encode())
        place = os.pidfd_open(pid)
        self._running[place] = (pid, connection)
        poll.register(place, selectors.EVENT_READ)
        return None

    def _send_code(self, place: int) -> None:
        pid, connection = self._running.pop(place)
        os.close(place)
        _, status = os.waitpid(pid, 0)
        with connection, contextlib.suppress(BrokenPipeError):  # whoever asked has gone
            connection.send(str(os.waitstatus_to_exitcode(status)).encode())

    def _become(self, request: dict[str, dict[str, str]], streams: list[int], connection: socket.socket) -> None:
        """Turn this fork into what a new interpreter would be: its streams, folder and environment."""
        for number, stream in enumerate(streams):
            os.dup2(stream, number)
        sockets = [self._listener, connection, *(one for _, one in self._running.values())]
        for number in (*streams, *self._running, *(one.detach() for one in sockets)):
            os.close(number)
        os.chdir(str(request["cwd"]))
        os.environ.clear()
        os.environ.update(request["env"])


def import_all() -> None:
    """Import what the verbs import, and fill what a first composing fills (decoders, parsers)."""
    from gavel.launch.cli.command_line import main
    from gavel.launch.compose.verbs import VERBS

    for verb in VERBS.values():
        importlib.import_module(verb.module)
    for name in (
        "hydra",
        "numpy",
        "aiohttp.web",
        "gavel.launch.config.console",
        "gavel.launch.cli.help",
        "gavel.launch.compose.compose",
    ):
        importlib.import_module(name)
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        main(["rollout", "experiment=demo", "dry_run=true"])


if __name__ == "__main__":
    import_all()
    words = Server(sys.argv[1]).serve()
    if words is None:
        sys.exit(0)
    command = importlib.import_module("gavel.launch.cli")
    sys.modules["__main__"] = command  # what a process that this one spawns would import
    sys.argv = [str(command.__file__), *words]
    sys.exit(command.main())
