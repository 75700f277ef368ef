"""Equal calls are made once: whatever they give, None too; a failure is shared; who is cancelled hands the call
over.
"""

from __future__ import annotations

import asyncio

import pytest

from gavel.models.calls.singleflight import SingleFlight
from gavel.models.failures import FailureKind, ModelFailure


@pytest.mark.parametrize("value", [None, 0, "", (), "text"])
async def test_any_result_is_shared_by_all_who_wait(value: object) -> None:
    flights, calls = SingleFlight[object](), 0

    async def work() -> object:
        nonlocal calls
        calls += 1
        await asyncio.sleep(0)
        return value

    found = await asyncio.gather(*(flights.run_once(b"", work) for _ in range(4)))
    assert found == [(value, False), (value, True), (value, True), (value, True)]
    assert calls == 1


async def test_a_failure_is_shared_and_the_next_call_is_made_anew() -> None:
    flights = SingleFlight[None]()

    async def work() -> None:
        await asyncio.sleep(0)
        raise ModelFailure(FailureKind.TRANSPORT_UNREACHABLE, "away")

    for _ in range(2):
        found = await asyncio.gather(*(flights.run_once(b"", work) for _ in range(3)), return_exceptions=True)
        assert [type(one) for one in found] == [ModelFailure] * 3


async def test_a_cancelled_lead_hands_the_call_over_also_where_it_gives_nothing() -> None:
    flights, gate = SingleFlight[None](), asyncio.Event()

    async def work() -> None:
        await gate.wait()

    tasks = [asyncio.create_task(flights.run_once(b"", work)) for _ in range(3)]
    await asyncio.sleep(0)
    tasks[0].cancel()
    await asyncio.sleep(0)
    gate.set()
    assert await asyncio.gather(*tasks[1:]) == [(None, False), (None, True)]
