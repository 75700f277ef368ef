"""Heavy text work away from the event loop: a pure function over a long text runs in a process of its own.

A thread is not enough: one scan of a regular expression holds the interpreter's lock to its end, which for a megabyte
of hostile text is a second in which nothing else answers. Short texts are done in place, since handing over costs more
than they do. Processes are started when they are first needed, and end with the pipe that feeds them, however we end.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import os
import pickle
import queue
import signal
import subprocess
import sys
import weakref
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import IO, Any, TypeVar

T = TypeVar("T")

LONG = 50_000
"""Characters from which a text is worked on elsewhere; below, the worst shape takes some 0.05 s."""
LONGEST = 2_000_000
"""Characters of one reply that are read at all, a policy's or a judge's; below, every pass over it is linear."""
_WORKERS = 2
_HEAD = 8
_COMMAND = "from gavel.models.texts.textwork import main; main()"


async def run_on_text(length: int, function: Callable[..., T], *arguments: Any) -> T:
    """Return ``function(*arguments)``; raises what it raises.

    Args:
        length: how many characters it works on.
        function: pure. One that cannot be pickled, or whose process was lost, runs in a thread: right, if not as quiet.
        arguments: plain values.
    """
    if length < LONG:
        return function(*arguments)
    try:
        job = pickle.dumps((function, arguments), protocol=pickle.HIGHEST_PROTOCOL)
    except (pickle.PicklingError, AttributeError, TypeError):
        return await asyncio.to_thread(function, *arguments)
    return await asyncio.get_running_loop().run_in_executor(
        _get_workers().threads, _get_workers().run_job, job, function, arguments
    )


def describe_too_long(length: int) -> str:
    """Say why a reply of so many characters is not read."""
    return f"the reply has {length:,} characters, and no more than {LONGEST:,} are read"


class _Workers:
    """Processes that wait for jobs, and the threads that wait for them."""

    def __init__(self) -> None:
        self.threads = ThreadPoolExecutor(_WORKERS, thread_name_prefix="gavel-text")
        self.idle: queue.SimpleQueue[subprocess.Popen[bytes]] = queue.SimpleQueue()
        self._end = weakref.finalize(self, _stop_workers, self.idle, self.threads)

    def run_job(self, job: bytes, function: Callable[..., Any], arguments: tuple[Any, ...]) -> Any:
        worker = self._take_worker()
        try:
            assert worker.stdin is not None
            assert worker.stdout is not None
            _write_frame(worker.stdin, job)
            done, value = pickle.loads(_read_frame(worker.stdout))  # the pipe is private: both ends are ours
        except (EOFError, OSError):
            _stop_worker(worker)
            return function(*arguments)
        self.idle.put(worker)
        if not done:
            raise value
        return value

    def _take_worker(self) -> subprocess.Popen[bytes]:
        with contextlib.suppress(queue.Empty):
            while (worker := self.idle.get_nowait()).poll() is not None:
                _stop_worker(worker)
            return worker
        variables = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
        return subprocess.Popen(
            [sys.executable, "-P", "-c", _COMMAND], stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=variables
        )


@functools.cache
def _get_workers() -> _Workers:
    return _Workers()


def _stop_worker(worker: subprocess.Popen[bytes]) -> None:
    worker.kill()
    for stream in (worker.stdin, worker.stdout):
        with contextlib.suppress(OSError):
            if stream is not None:
                stream.close()
    worker.wait()


def _stop_workers(idle: queue.SimpleQueue[subprocess.Popen[bytes]], threads: ThreadPoolExecutor) -> None:
    while not idle.empty():
        _stop_worker(idle.get_nowait())
    threads.shutdown(wait=False, cancel_futures=True)


def _write_frame(stream: IO[bytes], data: bytes) -> None:
    stream.write(len(data).to_bytes(_HEAD, "big") + data)
    stream.flush()


def _read_frame(stream: IO[bytes]) -> bytes:
    head = stream.read(_HEAD)
    size = int.from_bytes(head, "big")
    data = stream.read(size) if len(head) == _HEAD else b""
    if len(head) < _HEAD or len(data) < size:
        raise EOFError
    return data


def _answer_job(job: bytes) -> bytes:
    try:
        function, arguments = pickle.loads(job)
        value = True, function(*arguments)
    except Exception as failed:  # noqa: BLE001 - whatever the function raises is raised again where it was asked for
        value = False, failed
    return pickle.dumps(value, protocol=pickle.HIGHEST_PROTOCOL)


def main() -> None:
    """Answer jobs until stdin ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C goes to the whole group; the parent decides
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # whatever prints must not end up between frames
    while True:
        try:
            job = _read_frame(sys.stdin.buffer)
        except EOFError:
            return
        try:
            _write_frame(answers, _answer_job(job))
        except BrokenPipeError:
            return
