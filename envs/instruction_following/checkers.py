"""The fast checks away from the event loop: worker processes, fed by threads that only wait for pipes.

Measured with 64 replies of 2,200 characters at once on two cores, lag of the loop at p99 and at most: on the loop itself 4,400 ms; in
four threads 7 and 13 ms at 500 replies/s, since each computing thread holds the interpreter's lock for 5 ms at a time; in two processes
2 and 4 ms at 720 replies/s. Handing a reply over costs 0.06 to 0.12 ms of our own time, as much as checking one of 80 characters, so
even short ones go. Worker processes are started when they are first needed, live as long as their owner, and see the end of their pipe
when the parent is gone, however it went.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import queue
import select
import subprocess
import sys
import weakref
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

from gavel.envs.instruction_following.fast import FastJob, FastVerdict
from gavel.envs.instruction_following.worker import read_frame, write_frame

MOST_WORKERS = 8
PATIENCE_S = 60.0
"""Seconds after which a worker counts as stuck and is killed; the largest reply allowed takes a hundredth of it."""

_TRIES = 2
_COMMAND = "from gavel.envs.instruction_following.worker import main; main()"


class WorkerLost(Exception):
    """A worker died or hung over a job, twice."""


@dataclass(slots=True)
class _Worker:
    process: subprocess.Popen[bytes]

    @classmethod
    def start(cls) -> _Worker:
        variables = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
        return cls(
            subprocess.Popen([sys.executable, "-P", "-c", _COMMAND], stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=variables)
        )

    def ask(self, job: FastJob) -> tuple[FastVerdict, ...]:
        """Return the verdicts.

        Raises:
            EOFError, OSError: the worker died or hung; it cannot be used again.
        """
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        write_frame(self.process.stdin, job)
        answered = select.poll()
        answered.register(self.process.stdout, select.POLLIN)
        if not answered.poll(PATIENCE_S * 1000):
            raise TimeoutError
        return read_frame(self.process.stdout)  # type: ignore[no-any-return]

    def end(self) -> None:
        """Stop the process and wait for it."""
        self.process.kill()
        for stream in (self.process.stdin, self.process.stdout):
            with contextlib.suppress(OSError):  # what was not sent to a dead worker is lost with it
                if stream is not None:
                    stream.close()
        self.process.wait()


@dataclass(slots=True)
class _Pool:
    """What threads share: the idle workers, and whether it is over."""

    idle: queue.SimpleQueue[_Worker] = field(default_factory=queue.SimpleQueue)
    closed: bool = False

    def run(self, job: FastJob) -> tuple[FastVerdict, ...]:
        for _ in range(_TRIES):
            worker = self._take()
            try:
                verdicts = worker.ask(job)
            except (EOFError, OSError):
                worker.end()
                continue
            self._give_back(worker)
            return verdicts
        raise WorkerLost(f"a worker process died or hung over a reply of {len(job.reply)} characters, twice")

    def _take(self) -> _Worker:
        """Return an idle worker, or a new one; those that have died since they were used cost no try."""
        while True:
            try:
                worker = self.idle.get_nowait()
            except queue.Empty:
                return _Worker.start()
            if worker.process.poll() is None:
                return worker
            worker.end()

    def _give_back(self, worker: _Worker) -> None:
        if self.closed:
            worker.end()
        else:
            self.idle.put(worker)

    def close(self) -> None:
        self.closed = True
        while not self.idle.empty():
            self.idle.get_nowait().end()


class Checkers:
    """Runs fast checks; any event loop may use it, also one after another.

    Args:
        workers: processes at most; None takes the CPUs this process may use, at most ``MOST_WORKERS``.
    """

    def __init__(self, workers: int | None = None) -> None:
        self.workers = workers or min(MOST_WORKERS, _cpus())
        self._pool = _Pool()
        self._threads = ThreadPoolExecutor(self.workers, thread_name_prefix="gavel-checkers")
        self._end = weakref.finalize(self, _close, self._pool, self._threads)

    async def check(self, job: FastJob) -> tuple[FastVerdict, ...]:
        """Return a verdict for each item of a job, in order.

        Raises:
            WorkerLost: two workers died or hung over it.
        """
        return await asyncio.get_running_loop().run_in_executor(self._threads, self._pool.run, job)

    def close(self) -> None:
        """End the workers; also done when this object or the interpreter goes away."""
        self._end()


def _cpus() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _close(pool: _Pool, threads: ThreadPoolExecutor) -> None:
    pool.close()
    threads.shutdown(wait=False, cancel_futures=True)
