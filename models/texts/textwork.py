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
import select
import signal
import subprocess
import sys
import weakref
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
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
        job = pack_job(function, *arguments)
    except (pickle.PicklingError, AttributeError, TypeError):
        return await asyncio.to_thread(function, *arguments)
    return await asyncio.get_running_loop().run_in_executor(
        _get_workers().threads, _get_workers().run_job, job, function, arguments
    )


def describe_too_long(length: int) -> str:
    """Say why a reply of so many characters is not read."""
    return f"the reply has {length:,} characters, and no more than {LONGEST:,} are read"


@dataclass(frozen=True, slots=True)
class TextWorker:
    """A process that answers one job after the other, until the pipe that feeds it ends."""

    process: subprocess.Popen[bytes]

    @classmethod
    def start(cls) -> TextWorker:
        """Start a process."""
        variables = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
        command = [sys.executable, "-P", "-c", _COMMAND]
        return cls(subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=variables))

    def run_job(self, job: bytes, patience_s: float | None = None) -> Any:
        """Return what a job of ``pack_job`` returns.

        Raises:
            JobFailed: it raised.
            EOFError, OSError: the process died, or did not answer for ``patience_s`` seconds (None: however long); it
                cannot be used again.
        """
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        _write_frame(self.process.stdin, job)
        if patience_s is not None:
            answered = select.poll()
            answered.register(self.process.stdout, select.POLLIN)
            if not answered.poll(patience_s * 1000):
                raise TimeoutError
        # The pipe is private: both ends are ours.
        failed, value = pickle.loads(_read_frame(self.process.stdout))
        if failed is not None:
            raise JobFailed(failed)
        return value

    def stop_process(self) -> None:
        """Stop the process and wait for it."""
        self.process.kill()
        for stream in (self.process.stdin, self.process.stdout):
            with contextlib.suppress(OSError):  # what was not sent to a dead worker is lost with it
                if stream is not None:
                    stream.close()
        self.process.wait()


class JobFailed(Exception):
    """A job raised ``error``, which may be an ``OSError`` too; its process goes on."""

    def __init__(self, error: Exception) -> None:
        super().__init__(str(error))
        self.error = error


def pack_job(function: Callable[..., Any], *arguments: Any) -> bytes:
    """Return ``function(*arguments)`` as a job.

    Raises:
        PicklingError, AttributeError, TypeError: it cannot be sent to another process.
    """
    return pickle.dumps((function, arguments), protocol=pickle.HIGHEST_PROTOCOL)


def take_worker(idle: queue.SimpleQueue[TextWorker]) -> TextWorker:
    """Return an idle worker that lives, or a new one."""
    with contextlib.suppress(queue.Empty):
        while (worker := idle.get_nowait()).process.poll() is not None:
            worker.stop_process()
        return worker
    return TextWorker.start()


class _Workers:
    """Processes that wait for jobs, and the threads that wait for them."""

    def __init__(self) -> None:
        self.threads = ThreadPoolExecutor(_WORKERS, thread_name_prefix="gavel-text")
        self.idle: queue.SimpleQueue[TextWorker] = queue.SimpleQueue()
        self._end = weakref.finalize(self, _stop_workers, self.idle, self.threads)

    def run_job(self, job: bytes, function: Callable[..., Any], arguments: tuple[Any, ...]) -> Any:
        worker = take_worker(self.idle)
        try:
            value = worker.run_job(job)
        except (EOFError, OSError):
            worker.stop_process()
            return function(*arguments)
        except JobFailed as failed:
            self.idle.put(worker)
            raise failed.error from None
        self.idle.put(worker)
        return value


@functools.cache
def _get_workers() -> _Workers:
    return _Workers()


def _stop_workers(idle: queue.SimpleQueue[TextWorker], threads: ThreadPoolExecutor) -> None:
    while not idle.empty():
        idle.get_nowait().stop_process()
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
    answer: tuple[Exception | None, Any]
    try:
        function, arguments = pickle.loads(job)
        answer = None, function(*arguments)
    except Exception as failed:  # noqa: BLE001 - whatever the function raises is raised again where it was asked for
        answer = failed, None
    return pickle.dumps(answer, protocol=pickle.HIGHEST_PROTOCOL)


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
