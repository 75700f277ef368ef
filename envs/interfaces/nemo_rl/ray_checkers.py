"""CPU-heavy checks on a bounded pool of Ray workers, spread over the nodes."""

from __future__ import annotations

import asyncio
from typing import Any

import ray

from gavel.envs.instruction_following.checkers import PATIENCE_S, WorkerLost
from gavel.envs.instruction_following.fast import FastJob, FastVerdict, run_fast

# A fraction of a CPU: the trainer counts whole ones as its own, and these only work between its steps.
_OPTIONS = {"num_cpus": 0.01, "max_restarts": -1, "max_task_retries": 1, "scheduling_strategy": "SPREAD"}


class _Worker:
    """Runs jobs, one at a time."""

    def run(self, job: FastJob) -> tuple[FastVerdict, ...]:
        """Return a verdict for each item of the job."""
        return run_fast(job)


CheckWorker: Any = ray.remote(_Worker)


class RayCheckers:
    """A pool of workers with the interface of ``instruction_following.checkers.Checkers``; ``workers`` is how many
    there are.
    """

    def __init__(self, workers: int) -> None:
        self.workers = workers
        self._idle: asyncio.Queue[Any] = asyncio.Queue()
        for _ in range(workers):
            self._idle.put_nowait(CheckWorker.options(**_OPTIONS).remote())

    async def check(self, job: FastJob) -> tuple[FastVerdict, ...]:
        """Return a verdict for each item of a job, in order.

        Raises:
            WorkerLost: the worker died or hung over it; another one takes its place.
        """
        worker = await self._idle.get()
        try:
            verdicts: tuple[FastVerdict, ...] = await asyncio.wait_for(_run_remotely(worker, job), PATIENCE_S)
        except (TimeoutError, ray.exceptions.RayActorError) as failed:
            ray.kill(worker)
            worker = CheckWorker.options(**_OPTIONS).remote()
            raise WorkerLost(f"a check worker died or hung over a reply of {len(job.reply)} characters") from failed
        finally:
            self._idle.put_nowait(worker)
        return verdicts

    def close(self) -> None:
        """End the workers that are idle."""
        while not self._idle.empty():
            ray.kill(self._idle.get_nowait())


async def _run_remotely(worker: Any, job: FastJob) -> Any:
    return await worker.run.remote(job)
