"""Limits, cache, single flight, breaker and context check of a whole service, against a real server."""

from __future__ import annotations

import asyncio
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.support.fault_server import FaultServer
from tests.support.faults import Answer, Fault
from tests.support.quota import Quota

from gavel.models.calls import breaker
from gavel.models.calls.cache import ReplyCache
from gavel.models.calls.client import ChatClient
from gavel.models.calls.retry import Backoff
from gavel.models.failures import FailureKind, ModelFailure
from gavel.models.service import Service, Timeout
from gavel.models.types import ChatRequest, Completion, Message, Sampling

QUICK = Backoff(base=0.001, cap=0.002)
COLD = Sampling(temperature=0.0)


def client_of(server: FaultServer, cache: ReplyCache | None = None, **changes: Any) -> ChatClient:
    service = Service(mode="external", model="fake", base_url=server.base_url, timeout=Timeout(1.0, 5.0), deadline=20.0)
    return ChatClient("judge", replace(service, **changes), backoff=QUICK, cache=cache)


def ask(text: str = "x", **changes: Any) -> ChatRequest:
    return replace(ChatRequest((Message("user", text),), "judge", COLD), **changes)


async def test_two_users_of_a_service_together_stay_within_its_limit() -> None:
    async with FaultServer(latency=0.01) as server, client_of(server, max_in_flight=7) as client:

        async def environment(name: str) -> None:
            await asyncio.gather(*(client.complete(ask(f"{name}{n}")) for n in range(60)))

        await asyncio.gather(environment("a"), environment("b"))
        assert (server.count, server.peak_in_work) == (120, 7)


async def test_the_limit_finds_the_servers_capacity_under_429s_and_follows_when_it_doubles() -> None:
    async with FaultServer(latency=0.01, capacity=10) as server:
        client = client_of(server, max_in_flight=100, attempts=1000)
        seen: list[float] = []

        async def caller(k: int) -> None:
            while len(seen) < 1200:
                await client.complete(ask("x", fresh=True))
                seen.append(client.admission.limit)

        await asyncio.gather(*(caller(k) for k in range(100)))
        settled = seen[600:1200]
        assert 8.0 <= sum(settled) / len(settled) <= 12.0
        server.capacity = 20
        seen.clear()
        await asyncio.gather(*(caller(k) for k in range(100)))
        settled = seen[800:1200]
        assert 16.0 <= sum(settled) / len(settled) <= 24.0
        await client.close()


async def test_cancelling_half_of_the_callers_leaves_no_place_taken() -> None:
    async with FaultServer(latency=0.02) as server, client_of(server, max_in_flight=4) as client:
        tasks = [asyncio.create_task(client.complete(ask(str(n)))) for n in range(40)]
        await server.until(4)
        for task in tasks[::2]:
            task.cancel()
        done = await asyncio.gather(*tasks, return_exceptions=True)
        assert sum(isinstance(item, Completion) for item in done) == 20
        assert (client.admission.in_flight, client.admission.waiting) == (0, 0)


async def test_requests_a_minute_hold_over_retries() -> None:
    async with FaultServer() as server, client_of(server, rpm=600) as client:  # 10 at once, then 9.83 a second
        server.script(["500"] * 5)
        began = time.monotonic()
        await asyncio.gather(*(client.complete(ask(str(n))) for n in range(8)))
        assert server.count == 13
        assert time.monotonic() - began >= 0.25  # 3 / 9.83


async def test_a_call_that_tries_again_goes_before_those_that_wait() -> None:
    async with FaultServer(latency=0.02) as server, client_of(server, max_in_flight=1) as client:
        server.script(["500"])
        await asyncio.gather(*(client.complete(ask(str(n))) for n in range(10)))
        order = [seen.body["messages"][0]["content"] for seen in server.requests]
        assert order[0] == "0"
        assert "0" in order[1:3]


async def test_a_long_queue_does_not_eat_the_deadline() -> None:
    async with FaultServer(latency=0.05) as server, client_of(server, max_in_flight=1, deadline=0.3) as client:
        await asyncio.gather(*(client.complete(ask(str(n))) for n in range(12)))  # 0.6 s in line
        assert server.count == 12


async def test_the_wait_for_a_quota_that_others_use_does_not_eat_the_deadline() -> None:
    """Calls that were refused wait longer in all than their deadline, while the service answers others."""
    async with (
        FaultServer(choose=Quota(3, 0.2, hint=True)) as server,
        client_of(server, deadline=0.45, attempts=1) as client,
    ):
        done = await asyncio.gather(*(client.complete(ask(str(n))) for n in range(24)))  # 8 windows, 1.6 s
        assert max(item.receipt.latency_s for item in done) > 0.9


async def test_a_pause_stops_everybody_and_is_not_ended_by_a_reply_that_was_on_its_way() -> None:
    async with FaultServer(latency=0.1) as server, client_of(server) as client:
        early = asyncio.create_task(client.complete(ask("early")))
        await server.until(1)
        server.script([Fault("429", retry_after="0.4")])
        refused = asyncio.create_task(client.complete(ask("refused")))
        await early
        async with asyncio.timeout(5):
            while not client.admission.pace.until:  # noqa: ASYNC110 - set where the refusal is read
                await asyncio.sleep(0.005)
        await asyncio.gather(refused, *(client.complete(ask(str(n))) for n in range(4)))
        times = [seen.time for seen in server.requests]
        assert min(times[2:]) - times[1] >= 0.4


async def test_a_pause_beyond_the_deadline_fails_the_calls_at_once() -> None:
    async with FaultServer() as server, client_of(server, deadline=2.0) as client:
        server.script([Fault("429", retry_after="3600")])
        for text in ("a", "b"):
            with pytest.raises(ModelFailure, match=r"judge\.rpm"):
                await client.complete(ask(text))
        assert server.count == 1


async def test_equal_calls_in_flight_are_made_once_and_say_so() -> None:
    async with FaultServer(latency=0.02) as server, client_of(server) as client:
        done = await asyncio.gather(*(client.complete(ask()) for _ in range(16)))
        assert server.count == 1
        assert {item.reply.text for item in done} == {"A"}
        assert [item.receipt.shared for item in done].count(False) == 1
        assert len({item.receipt.call_id for item in done}) == 1
        await client.complete(ask())
        assert server.count == 2  # not kept beyond the flight


@pytest.mark.parametrize("change", [{"fresh": True}, {"sampling": Sampling()}, {"sampling": Sampling(temperature=1.0)}])
async def test_calls_that_must_not_share_do_not(change: dict[str, Any]) -> None:
    async with FaultServer(latency=0.02) as server, client_of(server) as client:
        await asyncio.gather(*(client.complete(ask(**change)) for _ in range(4)))
        assert server.count == 4


async def test_numbered_draws_are_kept_apart_and_shared_by_number() -> None:
    async with FaultServer(latency=0.02) as server, client_of(server) as client:
        await asyncio.gather(*(client.complete(ask(sample=n % 3)) for n in range(9)))
        assert server.count == 3


async def test_a_cancelled_leader_hands_over_to_a_follower() -> None:
    async with FaultServer() as server, client_of(server) as client:
        server.script([Fault("slow_headers", seconds=30.0)])
        leader = asyncio.create_task(client.complete(ask()))
        await server.until(1)
        followers = [asyncio.create_task(client.complete(ask())) for _ in range(5)]
        await asyncio.sleep(0)
        followers[0].cancel()
        leader.cancel()
        done = await asyncio.gather(leader, *followers, return_exceptions=True)
        assert [isinstance(item, Completion) for item in done] == [False, False, True, True, True, True]
        assert server.count == 2


async def test_the_next_leader_may_be_cancelled_before_it_runs() -> None:
    async with FaultServer() as server, client_of(server) as client:
        server.script([Fault("slow_headers", seconds=30.0)])
        leader = asyncio.create_task(client.complete(ask()))
        await server.until(1)
        followers = [asyncio.create_task(client.complete(ask())) for _ in range(3)]
        await asyncio.sleep(0)
        leader.cancel()
        await asyncio.sleep(0)  # the leader hands over to the first follower, which has not run yet
        followers[0].cancel()
        done = await asyncio.gather(leader, *followers, return_exceptions=True)
        assert [isinstance(item, Completion) for item in done] == [False, False, True, True]


async def test_a_failure_is_shared_like_a_reply() -> None:
    async with FaultServer(latency=0.02) as server, client_of(server) as client:
        server.script(["empty_content"])
        done = await asyncio.gather(*(client.complete(ask()) for _ in range(4)), return_exceptions=True)
        assert server.count == 1
        assert {item.kind for item in done if isinstance(item, ModelFailure)} == {FailureKind.JUDGE_UNPARSEABLE}
        assert all(isinstance(item, ModelFailure) for item in done)


async def test_only_a_confirmed_reply_is_kept(tmp_path: Path) -> None:
    with ReplyCache(tmp_path / "replies.sqlite") as cache:
        async with (
            FaultServer(reply=lambda body: Answer("A", reasoning="why")) as server,
            client_of(server, cache) as client,
        ):
            first = await client.complete(ask())
            await client.complete(ask())
            assert server.count == 2
            client.confirm(ask(), first)
            hit = await client.complete(ask())
            assert server.count == 2
            assert hit.reply == first.reply
            assert (hit.receipt.cache_hit, hit.receipt.attempts) == (True, ())
            assert (hit.receipt.call_id, hit.receipt.served_model) == (first.receipt.call_id, "fake")
            await client.complete(ask(fresh=True))
            assert server.count == 3


async def test_what_may_not_be_cached_is_not_even_if_confirmed(tmp_path: Path) -> None:
    with ReplyCache(tmp_path / "replies.sqlite") as cache:
        async with FaultServer() as server, client_of(server, cache) as client:
            for request in (ask(fresh=True), ask(sampling=Sampling(temperature=0.5))):
                client.confirm(request, await client.complete(request))
                client.confirm(request, await client.complete(request))
            assert server.count == 4


async def test_a_wrong_key_stops_all_further_calls_at_once() -> None:
    async with FaultServer(choose=lambda body, n: "401") as server, client_of(server) as client:
        with pytest.raises(ModelFailure):
            await client.complete(ask("first"))
        with pytest.raises(ModelFailure, match="Incorrect API key") as caught:
            await client.complete(ask("second"))
        assert server.count == 1
        assert caught.value.kind is FailureKind.PROVIDER_QUOTA_EXHAUSTED


async def test_a_dead_server_fails_fast_and_a_revived_one_is_used_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(breaker, "SPAN", 0.1)
    monkeypatch.setattr(breaker, "FIRST_PAUSE", 0.3)
    server = await FaultServer().start()
    async with client_of(server) as client:
        await client.complete(ask())
        await server.stop()
        async with asyncio.timeout(10):
            while client.breaker.state == "closed":
                with pytest.raises(ModelFailure):
                    await client.complete(ask())
                await asyncio.sleep(0.02)
        with pytest.raises(ModelFailure, match="not tried") as caught:
            await client.complete(ask())
        assert caught.value.receipts[0].attempts == ()
        assert caught.value.kind is FailureKind.TRANSPORT_UNREACHABLE, "the kind of what opened the breaker"
        assert "Cannot connect" in caught.value.reason
        async with server, asyncio.timeout(10):
            while client.breaker.state != "closed":
                try:
                    assert (await client.complete(ask())).reply.text == "A"
                except ModelFailure:
                    await asyncio.sleep(0.02)


LONG = " ".join(["word"] * 1000)  # 5,000 bytes; 1,004 tokens as the server counts


@pytest.mark.parametrize(("reserved", "fits"), [(996, True), (997, False)])
async def test_a_prompt_that_may_not_fit_is_counted_exactly(reserved: int, fits: bool) -> None:
    async with FaultServer() as server, client_of(server, max_context_length=2000) as client:
        request = ask(LONG, sampling=Sampling(max_response_tokens=reserved))
        if fits:
            await client.complete(request)
        else:
            with pytest.raises(
                ModelFailure, match="1004 tokens of prompt and 997 for the answer exceed max_context_length=2000"
            ) as caught:
                await client.complete(request)
            assert caught.value.kind is FailureKind.CONTEXT_OVERFLOW
        assert (server.count, server.paths["/tokenize"]) == (int(fits), 1)


async def test_a_prompt_that_surely_fits_costs_no_question() -> None:
    async with FaultServer() as server, client_of(server, max_context_length=8192) as client:
        await client.complete(ask(LONG))
        assert "/tokenize" not in server.paths


async def test_a_server_that_does_not_count_is_held_to_an_estimate_that_the_receipt_tells() -> None:
    async with FaultServer(tokenizes=False) as server, client_of(server, max_context_length=1300) as client:
        done = await client.complete(ask(LONG, sampling=Sampling(max_response_tokens=50)))  # 4,999 / 4 = 1,249
        assert done.receipt.notes == ("context checked by an estimate of 4 bytes a token: the server has no /tokenize",)
        with pytest.raises(ModelFailure, match="about 1249 tokens"):
            await client.complete(ask(LONG, sampling=Sampling(max_response_tokens=52)))
        assert (server.count, server.paths["/tokenize"]) == (1, 1)  # asked once
