"""Threads enough for a step of every sample: each asynchronous rollout waits for its environment in one."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor

ROLLOUT_THREADS = 512


def widen_executor(threads: int = ROLLOUT_THREADS) -> None:
    """Give every event loop made from now on so many threads: each asynchronous rollout waits for its step in one.

    The default is at most 32, which holds a slow judge to as many calls at once.
    """
    asyncio.set_event_loop_policy(_WidePolicy(threads))


class _WidePolicy(asyncio.DefaultEventLoopPolicy):
    def __init__(self, threads: int) -> None:
        super().__init__()
        self._threads = threads

    def new_event_loop(self) -> asyncio.AbstractEventLoop:
        loop = super().new_event_loop()
        loop.set_default_executor(ThreadPoolExecutor(self._threads, thread_name_prefix="gavel-rollout"))
        return loop
