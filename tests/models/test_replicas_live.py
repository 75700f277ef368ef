"""Several servers under one name: one is killed and comes back; prefixes stay; too few alive is told at once."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from tests.support.fake_vllm import fake_python, model_directory
from tests.support.fault_server import FaultServer
from tests.support.faults import Answer, Fault

from gavel.models.calls import replicas
from gavel.models.calls.client import ChatClient
from gavel.models.calls.retry import Backoff
from gavel.models.errors import ConfigError
from gavel.models.failures import FailureKind, ModelFailure
from gavel.models.pool import open_services
from gavel.models.service import Service, Timeout
from gavel.models.service_check import check_service
from gavel.models.types import ChatRequest, Message, Sampling

QUICK = Backoff(base=0.001, cap=0.002)
BASE = Service(mode="external", model="fake", timeout=Timeout(1.0, 5.0), deadline=20.0)


@asynccontextmanager
async def servers(count: int, **options: Any) -> AsyncIterator[list[FaultServer]]:
    async with AsyncExitStack() as stack:
        yield [await stack.enter_async_context(FaultServer(**options)) for _ in range(count)]


def service_of(found: list[FaultServer], **changes: Any) -> Service:
    return replace(BASE, base_url=tuple(server.base_url for server in found), **changes)


def ask(text: str, prefix: str = "") -> ChatRequest:
    return ChatRequest((Message("user", text),), "judge", Sampling(temperature=0.0), prefix_key=prefix)


async def until(true: Callable[[], bool], timeout: float = 10.0) -> None:
    async with asyncio.timeout(timeout):
        while not true():  # noqa: ASYNC110 - what is waited for is a number in another object
            await asyncio.sleep(0.01)


async def test_one_of_three_is_killed_under_load_and_comes_back_and_no_call_fails(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(replicas, "FIRST_PAUSE", 0.05)
    lines: list[str] = []
    async with servers(3, latency=0.005) as found:
        client = ChatClient("judge", service_of(found, max_in_flight=96), backoff=QUICK, progress=lines.append)
        homes: dict[str, set[int]] = {}
        tries: Counter[int] = Counter()
        stop = False

        async def caller(number: int) -> None:
            turn = 0
            while not stop:
                turn += 1
                done = await client.complete(
                    ask(f"{number}/{turn}", f"question {number}")
                )  # a failure would end the test
                tries[len(done.receipt.attempts)] += 1

        callers = [asyncio.create_task(caller(number)) for number in range(48)]
        await until(lambda: sum(tries.values()) > 300)
        for number in range(48):
            homes[f"question {number}"] = {
                index
                for index, server in enumerate(found)
                if any(seen.body["messages"][0]["content"].startswith(f"{number}/") for seen in server.requests)
            }
        assert all(len(home) == 1 for home in homes.values()), "each prefix has been on one replica"
        share = {home for each in homes.values() for home in each}
        assert share == {0, 1, 2}

        await found[1].stop()
        await until(lambda: client.router.ring.get_state(1) == "out")
        counts = [server.count for server in found]
        done = sum(tries.values())
        await until(lambda: sum(tries.values()) > done + 300)
        assert found[1].count == counts[1]
        assert found[0].count > counts[0]
        assert found[2].count > counts[2]

        await found[1].start()
        await until(lambda: client.router.ring.get_state(1) == "in")
        before = found[1].count
        await until(lambda: found[1].count > before + 50)
        stop = True
        await asyncio.gather(*callers)
        back = {seen.body["messages"][0]["content"].split("/")[0] for seen in found[1].requests[before:]}
        assert back == {prefix.split()[1] for prefix, home in homes.items() if home == {1}}, (
            "its own prefixes, and no others"
        )
        assert max(tries) <= 3
        await client.close()
    assert [line for line in lines if line.endswith("is back")]
    assert any("is out, 2 are alive" in line for line in lines)


async def test_the_probe_generates_nothing() -> None:
    async with servers(2) as found, ChatClient("judge", service_of(found), backoff=QUICK) as client:
        await found[0].stop()
        for number in range(20):
            await client.complete(ask(str(number), str(number)))
        await found[0].start()
        while client.router.ring.get_state(0) != "in":
            await client.complete(ask("x", "x"))
            await asyncio.sleep(0.02)
        assert found[0].count == 0
        assert found[0].paths["/health"] >= 1


async def test_the_questions_of_one_conversation_meet_one_replica_under_load() -> None:
    """Each conversation asks its questions one after the other, hundreds of conversations at once; few enough calls are
    let in that the valve stays shut, however slow this machine is."""
    async with servers(4, latency=0.003) as found:
        async with ChatClient("judge", service_of(found, max_in_flight=replicas.FLOOR), backoff=QUICK) as client:

            async def conversation(number: int) -> None:
                for question in range(8):
                    await client.complete(ask(f"{number}/{question}", f"conversation {number}"))

            await asyncio.gather(*(conversation(number) for number in range(200)))
        met = Counter(
            number
            for server in found
            for number in {seen.body["messages"][0]["content"].split("/")[0] for seen in server.requests}
        )
        assert sum(server.count for server in found) == 1600
        assert Counter(met.values()) == {1: 200}, "no conversation met two"
        assert min(server.count for server in found) > 240  # 400 each on average


@pytest.mark.parametrize(("calls", "shares"), [(16, [0, 16]), (64, [16, 48])])  # 48 = 1.5 * 64 / 2
async def test_a_group_of_rollouts_stays_together_and_a_flood_on_one_prefix_spills_over(
    calls: int, shares: list[int]
) -> None:
    async with (
        servers(2, latency=0.1) as found,
        ChatClient("judge", service_of(found, max_in_flight=64), backoff=QUICK) as client,
    ):
        await asyncio.gather(*(client.complete(ask(str(number), "one question")) for number in range(calls)))
        assert sorted(server.count for server in found) == shares


async def test_a_replica_that_hangs_is_left_after_its_strikes_and_probed() -> None:
    async with servers(2) as found:
        service = service_of(found, timeout=Timeout(1.0, 0.1))
        async with ChatClient("judge", service, backoff=QUICK) as client:
            found[0].choose = lambda body, n: Fault("slow_headers", seconds=5.0)
            for number in range(60):
                await client.complete(ask(str(number), str(number)))
            slow = found[0].count
            # Three strikes, back on probation because /health lives, one strike more, then pauses of 1 s and 2 s.
            assert replicas.STRIKES <= slow <= replicas.STRIKES + 4
            assert client.router.ring.alive == 2


async def test_too_few_alive_fails_at_once_and_the_pool_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(replicas, "FIRST_PAUSE", 0.05)
    async with servers(3) as found:
        services = {"general": service_of(found, min_replicas=2)}
        async with open_services(services, log_dir=tmp_path, progress=lambda line: None) as pool:
            model = pool.get_model("general")
            assert pool.list_urls("general") == tuple(server.base_url for server in found)
            await found[0].stop()
            for number in range(10):
                assert (await model.complete(ask(str(number), str(number)))).reply.text == "A"
            assert pool.find_failure() is None
            await found[1].stop()
            kinds = []
            for number in range(20):
                began = time.monotonic()
                try:
                    await model.complete(ask(str(number), f"again {number}"))
                except ModelFailure as failed:
                    kinds.append(failed.kind)
                    last, waited = failed, time.monotonic() - began
            assert set(kinds) == {FailureKind.TRANSPORT_UNREACHABLE}
            assert "not tried: 1 of 3 replicas are alive, min_replicas=2" in last.reason
            assert waited < 0.5
            died = pool.find_failure()
            assert died is not None
            assert "judge: 1 of 3 replicas are alive, min_replicas=2" in died.report
            await found[1].start()
            async with asyncio.timeout(10):
                while pool.find_failure() is not None:
                    with pytest.raises(ModelFailure):
                        await model.complete(ask("x"))
                    await asyncio.sleep(0.02)
            assert (await model.complete(ask("x"))).reply.text == "A"


async def test_single_faults_cost_no_replica_its_place() -> None:
    async with servers(2) as found, ChatClient("judge", service_of(found), backoff=QUICK) as client:
        found[0].script(["500", "ok", "reset_before", "ok", "429", "429", "429", "429", "429"])
        for number in range(60):
            await client.complete(ask(str(number), str(number)))
        assert client.router.ring.whole


async def test_the_tokenizer_of_a_live_replica_is_asked() -> None:
    async with (
        servers(2) as found,
        ChatClient("judge", service_of(found, max_context_length=1000), backoff=QUICK) as client,
    ):
        await found[0].stop()
        for number in range(20):
            await client.complete(ask(str(number), str(number)))  # puts the first out
        done = await client.complete(ask("word " * 900, "long"))
        assert done.receipt.notes == ()
        assert found[1].paths["/tokenize"] == 1


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"base_url": ("http://a/v1", "nonsense")}, r"judge\.base_url: this is not an HTTP URL"),
        ({"base_url": ("http://a/v1", "http://u:p@b/v1")}, "may not hold a user or a password"),
        ({"base_url": ("http://a/v1", "http://a/v1")}, "named twice"),
        ({"base_url": ()}, "needs a URL"),
        ({"base_url": ("http://a/v1", "http://b/v1"), "min_replicas": 3}, r"judge\.min_replicas.*\n.*3\n.*1 to 2"),
        ({"base_url": "http://a/v1", "min_replicas": 0}, r"judge\.min_replicas: this number is out of range"),
    ],
)
def test_what_cannot_be_replicas_is_refused(change: dict[str, Any], told: str) -> None:
    with pytest.raises(ConfigError, match=told):
        check_service("judge", replace(BASE, **change))


async def test_two_environments_that_share_a_service_stay_within_its_limit_together(tmp_path: Path) -> None:
    """Whoever calls a service of a pool, and from whatever environment, goes through the same client."""
    async with servers(2, latency=0.01, reply=lambda body: Answer("A")) as found:
        services = {"judge": service_of(found, max_in_flight=6)}
        async with open_services(services, log_dir=tmp_path, progress=lambda line: None) as pool:

            async def environment(name: str) -> None:
                model = pool.get_model("judge")  # each asks the pool for itself
                await asyncio.gather(*(model.complete(ask(f"{name}{n}", str(n))) for n in range(40)))

            peaks: list[int] = []

            async def look() -> None:
                while True:
                    peaks.append(sum(server.in_work for server in found))
                    await asyncio.sleep(0.001)

            looking = asyncio.create_task(look())
            await asyncio.gather(environment("a"), environment("b"))
            looking.cancel()
            assert pool.meter.calls == sum(server.count for server in found) == 80
        assert max(peaks) <= 6
        assert max(server.peak_in_work for server in found) <= 6


@pytest.mark.skipif(sys.platform != "linux", reason="looks at processes through /proc")
async def test_a_managed_service_with_fewer_servers_than_the_least_is_gone_for_good(tmp_path: Path) -> None:
    service = Service(
        mode="managed",
        model=model_directory(tmp_path / "tiny"),
        cpu=True,
        python=fake_python(tmp_path / "bin"),
        replicas=3,
        min_replicas=2,
    )
    opened = open_services(
        {"judge": service}, log_dir=tmp_path, progress=lambda line: None, assets_cache=tmp_path / "cache", offline=True
    )
    async with opened as pool:
        model = pool.get_model("judge")
        await kill(pool.list_urls("judge")[0])
        await until(lambda: pool.servers[0].failure is not None)
        for number in range(12):
            assert (await model.complete(ask(str(number), str(number)))).receipt.attempts[0].outcome == "ok", (
                "the dead one is not tried"
            )
        assert pool.find_failure() is None
        await kill(pool.list_urls("judge")[2])
        died = await asyncio.wait_for(pool.wait_failure(), 5.0)
        assert pool.find_failure() is died
        assert "judge-2 was killed by SIGKILL" in died.reason
        with pytest.raises(ModelFailure, match="SIGKILL") as caught:
            await model.complete(ask("x"))
        assert caught.value.kind is FailureKind.TRANSPORT_UNREACHABLE


async def kill(base_url: str) -> None:
    async with aiohttp.ClientSession() as session, session.get(f"{base_url.removesuffix('/v1')}/environment") as answer:
        os.kill((await answer.json())["pid"], signal.SIGKILL)
