"""The fast checks away from the event loop: worker processes, fed by threads that only wait for pipes.

Replies that wait while all workers are busy go to the next free one together, up to ``MOST_AT_ONCE``: pipes, wake-ups
and the interpreter's lock then cost once for all of them.

Measured with 64 replies of 2,200 characters at once on two cores, lag of the loop at p99 and at most: on the loop
itself 4,400 ms; in four threads 7 and 13 ms at 500 replies/s, since each computing thread holds the interpreter's lock
for 5 ms at a time; in two processes 2 and 4 ms at 720 replies/s. Handing a reply over costs 0.06 to 0.12 ms of our own
time, as much as checking one of 80 characters, so even short ones go. Worker processes are started when they are first
needed, live as long as their owner, and see the end of their pipe when the parent is gone, however it went.
"""

from __future__ import annotations

import asyncio
import collections
import contextlib
import os
import queue
import threading
import weakref
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

from gavel.envs.instruction_following.fast import FastJob, FastVerdict, run_jobs
from gavel.models.texts.textwork import JobFailed, TextWorker, pack_job, take_worker

MOST_WORKERS = 8
PATIENCE_S = 60.0
"""Seconds after which a worker counts as stuck and is killed; the largest reply allowed takes a hundredth of it."""

MOST_AT_ONCE = 16
"""Replies that a worker gets together at most; the first waits for the last of them."""
CHARACTERS_AT_ONCE = 40_000

Verdicts = tuple[FastVerdict, ...]

_TRIES = 2


class WorkerLost(Exception):
    """A worker died or hung over a job, twice."""


def _ask_worker(worker: TextWorker, jobs: Sequence[FastJob]) -> list[Verdicts]:
    """Return the verdicts of each job; as ``TextWorker.run_job``."""
    answers = worker.run_job(pack_job(run_jobs, [tuple(job) for job in jobs]), PATIENCE_S)
    return [tuple(FastVerdict(*verdict) for verdict in verdicts) for verdicts in answers]


@dataclass(slots=True)
class _Waiting:
    """A job, and who waits for its verdicts."""

    job: FastJob
    loop: asyncio.AbstractEventLoop
    verdicts: asyncio.Future[Verdicts]


@dataclass(slots=True)
class _Pool:
    """What threads share: the jobs that wait, how many threads are at work, the idle workers, and whether it is
    over.
    """

    workers: int
    waiting: collections.deque[_Waiting] = field(default_factory=collections.deque)
    at_work: int = 0
    lock: threading.Lock = field(default_factory=threading.Lock)
    idle: queue.SimpleQueue[TextWorker] = field(default_factory=queue.SimpleQueue)
    closed: bool = False

    def put_job(self, waiting: _Waiting) -> bool:
        """Take a job; return whether one more thread is wanted for it."""
        with self.lock:
            self.waiting.append(waiting)
            if self.at_work >= self.workers:
                return False
            self.at_work += 1
            return True

    def work_off(self) -> None:
        """Do what waits until nothing does."""
        while batch := self._take_jobs():
            answers = self._answer_jobs([one.job for one in batch])
            for loop, found in _group_by_loop(batch, answers):
                with contextlib.suppress(RuntimeError):  # a loop that was closed wants no answer
                    loop.call_soon_threadsafe(_tell_answers, found)

    def _take_jobs(self) -> list[_Waiting]:
        """Return the jobs to do together: a fair part of those that wait, no more characters than
        ``CHARACTERS_AT_ONCE``.
        """
        with self.lock:
            most = min(MOST_AT_ONCE, -(-len(self.waiting) // self.workers))
            batch: list[_Waiting] = []
            characters = 0
            while (
                self.waiting
                and len(batch) < most
                and (not batch or characters < CHARACTERS_AT_ONCE)
                and not self.closed
            ):
                one = self.waiting.popleft()
                if not one.verdicts.cancelled():
                    batch.append(one)
                    characters += len(one.job.reply)
            if not batch:
                self.at_work -= 1
            return batch

    def _answer_jobs(self, jobs: list[FastJob]) -> list[Verdicts | BaseException]:
        """Return the verdicts or the failure of each job; where several fail together, each is tried alone."""
        if len(jobs) > 1:
            worker = take_worker(self.idle)
            try:
                verdicts = _ask_worker(worker, jobs)
            except (EOFError, OSError):
                worker.stop_process()
            except JobFailed:
                self._return_worker(worker)
            else:
                self._return_worker(worker)
                return [*verdicts]
        return [self._answer_alone(job) for job in jobs]

    def _answer_alone(self, job: FastJob) -> Verdicts | BaseException:
        try:
            return self._run_job(job)
        except Exception as failed:  # noqa: BLE001 - the boundary of a thread: who waits for the verdicts gets what failed
            return failed

    def _run_job(self, job: FastJob) -> Verdicts:
        for _ in range(_TRIES):
            worker = take_worker(self.idle)
            try:
                (verdicts,) = _ask_worker(worker, [job])
            except (EOFError, OSError):
                worker.stop_process()
                continue
            except JobFailed as failed:
                self._return_worker(worker)
                raise failed.error from None
            self._return_worker(worker)
            return verdicts
        raise WorkerLost(f"a worker process died or hung over a reply of {len(job.reply)} characters, twice")

    def _return_worker(self, worker: TextWorker) -> None:
        if self.closed:
            worker.stop_process()
        else:
            self.idle.put(worker)

    def close(self) -> None:
        self.closed = True
        while not self.idle.empty():
            self.idle.get_nowait().stop_process()


class Checkers:
    """Runs fast checks; any event loop may use it, also one after another. A child forked from its process starts
    workers of its own.

    Args:
        workers: processes at most; None takes the CPUs this process may use, at most ``MOST_WORKERS``.
    """

    def __init__(self, workers: int | None = None) -> None:
        self.workers = workers or min(MOST_WORKERS, _count_cpus())
        self._start_pool()

    def _start_pool(self) -> None:
        self._owner = os.getpid()
        self._pool = _Pool(self.workers)
        self._threads = ThreadPoolExecutor(self.workers, thread_name_prefix="gavel-checkers")
        self._end = weakref.finalize(self, _close_pool, self._owner, self._pool, self._threads)

    async def check(self, job: FastJob) -> tuple[FastVerdict, ...]:
        """Return a verdict for each item of a job, in order.

        Raises:
            WorkerLost: two workers died or hung over it.
        """
        if self._owner != os.getpid():  # threads do not come along into a child, and the workers are the parent's
            self._end.detach()
            self._start_pool()
        loop = asyncio.get_running_loop()
        waiting = _Waiting(job, loop, loop.create_future())
        if self._pool.put_job(waiting):
            self._threads.submit(self._pool.work_off)
        return await waiting.verdicts

    def close(self) -> None:
        """End the workers; also done when this object or the interpreter goes away."""
        self._end()


def _group_by_loop(
    batch: Sequence[_Waiting], answers: Sequence[Verdicts | BaseException]
) -> Iterator[tuple[asyncio.AbstractEventLoop, list[tuple[asyncio.Future[Verdicts], Verdicts | BaseException]]]]:
    """Yield what each loop is to be told, in one call for all of it."""
    for loop in {id(one.loop): one.loop for one in batch}.values():
        yield loop, [(one.verdicts, answer) for one, answer in zip(batch, answers, strict=True) if one.loop is loop]


def _tell_answers(found: Sequence[tuple[asyncio.Future[Verdicts], Verdicts | BaseException]]) -> None:
    for future, answer in found:
        if future.done():
            continue  # nobody waits any more
        if isinstance(answer, BaseException):
            future.set_exception(answer)
        else:
            future.set_result(answer)


def _count_cpus() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _close_pool(owner: int, pool: _Pool, threads: ThreadPoolExecutor) -> None:
    if owner != os.getpid():
        return
    pool.close()
    threads.shutdown(wait=False, cancel_futures=True)
