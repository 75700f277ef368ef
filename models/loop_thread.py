"""An event loop in a thread of its own, for callers that are not asynchronous themselves.

A caller may stand in a thread whose own loop runs already (a notebook), may be several threads at once, or a child that
was forked from the process that made the loop (a trainer's workers): a thread does not come along into a child, so the
child gets a new one.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import threading
from collections.abc import Coroutine
from concurrent.futures import Future
from typing import Any, TypeVar

T = TypeVar("T")


class LoopThread:
    """Runs coroutines for synchronous callers, in any thread; starts at the first one. ``name`` is the thread's.

    The thread is a daemon: a program that ends without ``close`` is not held up by it.
    """

    def __init__(self, name: str) -> None:
        self._name, self._lock = name, threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._owner = 0
        # Kept: a forked child that collected its parent's would disturb the parent.
        self._elsewhere: list[asyncio.AbstractEventLoop] = []

    @property
    def is_running(self) -> bool:
        """Whether the loop runs, in this process: it does not in a child that was forked since."""
        return self._loop is not None and self._owner == os.getpid()

    def submit(self, work: Coroutine[Any, Any, T]) -> Future[T]:
        """Begin a coroutine there; cancelling the future cancels it."""
        return asyncio.run_coroutine_threadsafe(work, self._start_loop())

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Wait for a coroutine that runs there. Whatever ends the wait early, such as Ctrl-C, cancels it."""
        future = self.submit(work)
        try:
            return future.result()
        finally:
            future.cancel()

    def close(self) -> None:
        """Cancel what still runs and end the thread; a later call starts a new one."""
        with self._lock:
            loop, thread = self._loop, self._thread
            ours = self.is_running
            self._loop = self._thread = None
        if ours and loop is not None and thread is not None:
            loop.call_soon_threadsafe(loop.stop)
            thread.join()

    def _start_loop(self) -> asyncio.AbstractEventLoop:
        with self._lock:
            if not self.is_running:
                if self._loop is not None:
                    self._elsewhere.append(self._loop)
                self._loop, self._owner = asyncio.new_event_loop(), os.getpid()
                self._thread = threading.Thread(target=_run_loop, args=(self._loop,), name=self._name, daemon=True)
                self._thread.start()
            assert self._loop is not None
            return self._loop


def _run_loop(loop: asyncio.AbstractEventLoop) -> None:
    asyncio.set_event_loop(loop)
    try:
        loop.run_forever()
    finally:
        left = asyncio.all_tasks(loop)
        for task in left:
            task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            loop.run_until_complete(asyncio.gather(*left, return_exceptions=True))
        loop.run_until_complete(loop.shutdown_asyncgens())
        loop.run_until_complete(loop.shutdown_default_executor())
        loop.close()
