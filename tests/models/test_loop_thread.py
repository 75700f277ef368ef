"""The loop for callers that are not asynchronous: any thread, a running loop, a forked child, Ctrl-C."""

from __future__ import annotations

import asyncio
import os
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
from tests.support.processes import run_forked

from gavel.models.loop_thread import LoopThread


async def double(number: int) -> int:
    await asyncio.sleep(0)
    return 2 * number


def test_several_threads_use_one_loop_and_it_starts_anew_after_it_was_closed() -> None:
    thread = LoopThread("test")
    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(lambda number: thread.run(double(number)), range(8))) == [0, 2, 4, 6, 8, 10, 12, 14]
    assert [other.name for other in threading.enumerate()].count("test") == 1
    thread.close()
    thread.close()
    assert "test" not in [other.name for other in threading.enumerate()]
    assert thread.run(double(3)) == 6
    thread.close()


async def test_it_serves_a_caller_whose_own_loop_runs() -> None:
    thread = LoopThread("test")
    assert thread.run(double(1)) == 2
    assert await asyncio.wrap_future(thread.submit(double(2))) == 4
    thread.close()


def test_what_ends_early_is_cancelled_there() -> None:
    thread, cancelled, begun = LoopThread("test"), threading.Event(), threading.Event()

    async def wait() -> None:
        begun.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            cancelled.set()
            raise

    future = thread.submit(wait())
    assert begun.wait(10)
    future.cancel()
    assert cancelled.wait(10)
    cancelled.clear()
    begun.clear()
    thread.submit(wait())
    assert begun.wait(10)
    thread.close()
    assert cancelled.is_set()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_forked_child_gets_a_loop_of_its_own_and_the_parents_goes_on() -> None:
    thread = LoopThread("test")
    assert thread.run(double(1)) == 2
    assert run_forked(lambda: thread.run(double(21))) == 42
    assert thread.run(double(2)) == 4
    thread.close()
