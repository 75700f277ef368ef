"""Heavy text work runs elsewhere: right, with its errors, and without a stop of the loop."""

from __future__ import annotations

import asyncio
import os
import time

import pytest

from gavel.judges.neutralise import find_hostile
from gavel.models.texts.textwork import LONG, _get_workers, run_on_text
from gavel.models.texts.thinking import split_thinking


async def test_a_long_text_is_worked_on_in_another_process_and_a_short_one_here() -> None:
    assert await run_on_text(LONG - 1, os.getpid) == os.getpid()
    assert await run_on_text(LONG, os.getpid) != os.getpid()
    assert await run_on_text(LONG, split_thinking, "<think>a</think>b") == ("a", "b", True)


async def test_what_the_function_raises_is_raised() -> None:
    with pytest.raises(ValueError, match="invalid literal"):
        await run_on_text(LONG, int, "x")


async def test_a_function_that_cannot_be_handed_over_still_runs() -> None:
    assert await run_on_text(LONG, lambda text: text + "b", "a") == "ab"


async def test_a_worker_that_dies_costs_nothing_but_time() -> None:
    pid = await run_on_text(LONG, os.getpid)
    worker = _get_workers().idle.get_nowait()
    assert worker.process.pid == pid
    worker.process.kill()
    worker.process.wait()
    _get_workers().idle.put(worker)
    assert await run_on_text(LONG, len, "abc") == 3


async def test_the_loop_goes_on_meanwhile() -> None:
    text = "<" * 1_000_000
    await run_on_text(LONG, len, "")  # the process has started
    worst = [0.0, 0.0]
    for place, busy in enumerate((asyncio.sleep(0.5), run_on_text(len(text), find_hostile, text))):
        work = asyncio.ensure_future(busy)
        while not work.done():
            began = time.perf_counter()
            await asyncio.sleep(0.001)
            worst[place] = max(worst[place], time.perf_counter() - began)
        await work
    assert worst[1] < 0.2 + 3 * worst[0], worst
