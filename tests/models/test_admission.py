"""Limits on calls in flight and a minute; fair, and safe to cancel."""

from __future__ import annotations

import asyncio
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gavel.models.calls.admission import Admission, Aimd, Bucket, Ticket


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def admission(highest: int, rpm: int | None = None, tpm: int | None = None, clock: Clock | None = None) -> Admission:
    return Admission(highest, rpm, tpm, clock or Clock())


def rounds(limit: Aimd, capacity: int, count: int) -> list[float]:
    """Play rounds in which ``limit`` calls go out and the server takes ``capacity`` of them."""
    seen = []
    for _ in range(count):
        calls, epoch = int(limit.limit), limit.epoch
        for n in range(calls):
            if n < capacity:
                limit.record_good(in_use=True)
            else:
                limit.record_overload(epoch)
        seen.append(limit.limit)
    return seen


@pytest.mark.parametrize("capacity", [5, 20, 100, 400])
def test_the_limit_converges_to_what_the_server_takes_and_follows_when_that_doubles(capacity: int) -> None:
    limit = Aimd(1024)
    rounds(limit, capacity, 60)
    settled = rounds(limit, capacity, 60)
    assert 0.8 * capacity <= sum(settled) / len(settled) <= 1.2 * capacity
    rounds(limit, 2 * capacity, 60)
    settled = rounds(limit, 2 * capacity, 60)
    assert 0.8 * 2 * capacity <= sum(settled) / len(settled) <= 1.2 * 2 * capacity


def test_one_burst_of_refusals_cuts_once() -> None:
    limit = Aimd(100)
    for _ in range(50):
        limit.record_overload(0)
    assert limit.limit == 80.0


def test_the_limit_stays_between_one_and_its_bound_and_does_not_grow_unused() -> None:
    limit = Aimd(10)
    for _ in range(50):
        limit.record_overload(limit.epoch)
    assert limit.limit == 1.0
    for _ in range(1000):
        limit.record_good(in_use=False)
    assert limit.limit == 1.0
    for _ in range(1000):
        limit.record_good(in_use=True)
    assert limit.limit == 10.0


@settings(deadline=None, max_examples=40)
@given(st.integers(2, 3000), st.lists(st.floats(0, 2), min_size=1, max_size=50), st.randoms(use_true_random=False))
def test_no_minute_sees_more_than_its_allowance(per_minute: int, gaps: list[float], draw: random.Random) -> None:
    now, taken = 0.0, []
    bucket = Bucket(per_minute, now)
    for _ in range(min(4 * per_minute, 400)):
        wait = bucket.compute_wait(1.0, now)
        now += wait
        if bucket.compute_wait(1.0, now) == 0.0:
            bucket.take(1.0)
            taken.append(now)
        now += draw.choice(gaps) if draw.random() < 0.1 else 0.0
    for first in taken[::7]:
        assert sum(first <= time < first + 60.0 for time in taken) <= per_minute


def test_a_call_larger_than_the_bucket_waits_for_a_full_one_and_is_paid_for_later() -> None:
    bucket = Bucket(600.0, 0.0)  # 10 at once, then (600 - 10) / 60 a second
    assert bucket.compute_wait(100.0, 0.0) == 0.0
    bucket.take(100.0)
    assert bucket.compute_wait(1.0, 0.0) == pytest.approx(91.0 / (590.0 / 60.0))
    bucket.settle_estimate(100.0, 95.0)  # five fewer were used
    assert bucket.compute_wait(1.0, 0.0) == pytest.approx(86.0 / (590.0 / 60.0))


async def entered(gate: Admission, first: bool = False) -> Ticket:
    return gate.enter() or await gate.wait(0.0, 5.0, first=first)


async def test_admission_is_first_come_first_served_and_a_further_try_goes_first() -> None:
    gate, order = admission(1), []
    held = await entered(gate)

    async def caller(name: str, first: bool = False) -> None:
        ticket = await entered(gate, first)
        order.append(name)
        gate.leave(ticket)

    tasks = []
    for name in ("a", "b", "c"):
        tasks.append(asyncio.create_task(caller(name)))
        await asyncio.sleep(0)
    tasks.append(asyncio.create_task(caller("again", first=True)))
    await asyncio.sleep(0)
    gate.leave(held)
    await asyncio.gather(*tasks)
    assert order == ["again", "a", "b", "c"]
    assert gate.in_flight == 0


async def test_a_small_newcomer_does_not_overtake_a_large_call_that_waits_for_tokens() -> None:
    clock = Clock()
    gate = admission(10, tpm=6000, clock=clock)  # 100 at once, 5900 / 60 a second
    held = gate.enter(50.0)
    assert held is not None
    large = asyncio.create_task(gate.wait(80.0, 5.0))
    await asyncio.sleep(0)
    assert gate.enter(10.0) is None
    clock.now += 1.0
    gate.leave(await large)
    gate.leave(held)


@pytest.mark.parametrize("seed", range(5))
async def test_cancellation_at_any_moment_loses_no_place(seed: int) -> None:
    draw, gate, peak = random.Random(seed), admission(3), 0

    async def caller() -> None:
        nonlocal peak
        ticket = await entered(gate)
        try:
            peak = max(peak, gate.in_flight)
            await asyncio.sleep(0)
        finally:
            gate.leave(ticket)

    tasks = [asyncio.create_task(caller()) for _ in range(200)]
    while not all(task.done() for task in tasks):
        draw.choice(tasks).cancel()
        await asyncio.sleep(0)
    assert (gate.in_flight, gate.waiting, peak) == (0, 0, 3)


async def test_a_call_cancelled_just_after_its_admission_gives_the_place_back() -> None:
    gate = admission(1)
    held = await entered(gate)
    waiter = asyncio.create_task(entered(gate))
    await asyncio.sleep(0)
    gate.leave(held)  # admits the waiter, which has not run yet
    waiter.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiter
    assert (gate.in_flight, gate.waiting) == (0, 0)


async def test_a_queue_that_stands_still_is_an_error_and_one_that_moves_is_not() -> None:
    gate = admission(1)
    held = await entered(gate)
    with pytest.raises(TimeoutError):
        await gate.wait(0.0, 0.05)
    patient = asyncio.create_task(gate.wait(0.0, 0.2))
    for _ in range(4):  # 0.4 s in the queue, in which others (that try again) are admitted
        await asyncio.sleep(0.1)
        other = asyncio.create_task(gate.wait(0.0, 5.0, first=True))
        await asyncio.sleep(0)
        gate.leave(held)
        held = await other
    gate.leave(held)
    gate.leave(await patient)
    assert gate.in_flight == 0


async def test_requests_a_minute_are_waited_for() -> None:
    loop = asyncio.get_running_loop()
    gate = Admission(100, 1200, None, loop.time)  # 20 at once, then 1180 / 60 a second
    began = loop.time()
    for _ in range(26):
        gate.leave(gate.enter() or await gate.wait(0.0, 5.0))
    assert 0.28 <= loop.time() - began < 1.0  # 6 / 19.67 = 0.305 s, less what came in meanwhile


async def test_tokens_a_minute_follow_real_usage() -> None:
    clock = Clock()
    gate = admission(10, tpm=6000, clock=clock)  # 100 at once, 5900 / 60 a second
    ticket = gate.enter(100.0)
    assert ticket is not None
    assert gate.enter(50.0) is None
    gate.leave(ticket, used=40.0)
    ticket = gate.enter(50.0)  # 60 are left
    assert ticket is not None
    gate.leave(ticket)
    assert gate.enter(50.0) is None
