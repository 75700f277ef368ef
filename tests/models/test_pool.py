"""The services of a config as one pool: shared where they are the same, started together, ended together, dead at
once.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import time
import uuid
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from tests.support.fake_vllm import fake_python, model_directory
from tests.support.processes import matching

from gavel.models.errors import ConfigError
from gavel.models.failures import FailureKind, ModelFailure
from gavel.models.pool import ServicePool, open_services
from gavel.models.service import Service
from gavel.models.types import ChatRequest, Message, Sampling
from gavel.models.vllm.server import ServerError

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="looks at processes through /proc")
HELLO = ChatRequest((Message("user", "hello"),), "judge", Sampling(temperature=0.0))
SLOW = replace(HELLO, messages=(Message("user", "slow"),))


@pytest.fixture
def tiny(tmp_path: Path) -> Service:
    return Service(
        mode="managed",
        model=model_directory(tmp_path / "tiny"),
        cpu=True,
        python=fake_python(tmp_path / "bin"),
        startup_timeout=30.0,
    )


def pool_of(tmp_path: Path, services: Mapping[str, Service], lines: list[str] | None = None) -> Any:
    said = lines if lines is not None else []
    return open_services(
        services, log_dir=tmp_path / "logs", progress=said.append, assets_cache=tmp_path / "cache", offline=True
    )


async def environment_of(pool: ServicePool, name: str, replica: int = 0) -> dict[str, Any]:
    root = pool.list_urls(name)[replica].removesuffix("/v1")
    async with aiohttp.ClientSession() as session, session.get(f"{root}/environment") as answer:
        found: dict[str, Any] = await answer.json()
        return found


async def test_a_managed_service_is_started_called_and_ended(
    tmp_path: Path, tiny: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MARK", mark := uuid.uuid4().hex)
    async with pool_of(tmp_path, {"general": tiny}) as pool:
        completion = await pool.get_model("general").complete(HELLO)
        assert completion.reply.text == "OK"
        assert completion.receipt.served_model == tiny.model
        assert pool.find_failure() is None
    assert not matching(mark)
    assert (tmp_path / "logs" / "judge.log").is_file()


async def test_services_with_the_same_launch_share_one_server(tmp_path: Path, tiny: Service) -> None:
    lines: list[str] = []
    services = {
        "policy": tiny,
        "general": replace(tiny, max_in_flight=2),
        "other": replace(tiny, max_context_length=99),
    }
    async with pool_of(tmp_path, services, lines) as pool:
        assert pool.list_urls("policy") == pool.list_urls("general")
        assert pool.list_urls("policy") != pool.list_urls("other")
        assert [pool.get_model(name).name for name in services] == ["policy", "general", "other"]
    assert sum("ready after" in line for line in lines) == 2
    assert any(line.startswith("policy+judge: ready") for line in lines)


@pytest.mark.parametrize(("name", "key"), [("general", "judge"), ("policy", "policy"), ("other", "services.other")])
async def test_errors_name_the_key_under_which_the_user_wrote_the_service(
    name: str, key: str, tmp_path: Path, tiny: Service
) -> None:
    keyed = Service(mode="external", model="m", base_url="http://127.0.0.1:9/v1", api_key_env="GAVEL_TEST_NOT_SET")
    for service, place in (
        (keyed, "api_key_env"),
        (replace(tiny, python="/no/such/python"), "python"),
        (replace(tiny, port=8000), "port"),
    ):
        with pytest.raises(ConfigError) as caught:
            async with pool_of(tmp_path, {name: service}):
                pytest.fail("the pool was opened")
        assert caught.value.field == f"{key}.{place}"


async def test_replicas_get_urls_and_gpus_of_their_own(
    tmp_path: Path, tiny: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "4,5,6,7,8")
    python = fake_python(tmp_path / "gpu", "vllm")
    services = {
        "general": replace(tiny, cpu=False, gpus=2, replicas=2, python=python),
        "policy": replace(tiny, cpu=False, python=python),
    }
    async with pool_of(tmp_path, services) as pool:
        assert len(set(pool.list_urls("general"))) == 2
        shown = [(await environment_of(pool, "general", index))["CUDA_VISIBLE_DEVICES"] for index in (0, 1)]
        assert shown == ["4,5", "6,7"]
        assert (await environment_of(pool, "policy"))["CUDA_VISIBLE_DEVICES"] == "8"


async def test_servers_start_at_the_same_time(tmp_path: Path, tiny: Service) -> None:
    lines: list[str] = []
    async with pool_of(tmp_path, {"a": tiny, "b": replace(tiny, max_context_length=99)}, lines):
        pass
    starts = [index for index, line in enumerate(lines) if "loading weights" in line]
    readies = [index for index, line in enumerate(lines) if "ready after" in line]
    assert max(starts) < min(readies)


async def test_one_failed_start_ends_the_others(tmp_path: Path, tiny: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MARK", mark := uuid.uuid4().hex)
    bad = replace(tiny, engine_args={"behaviour": "exit", "code": 3})
    with pytest.raises(ServerError, match="exit code 3"):
        async with pool_of(tmp_path, {"good": tiny, "bad": bad}):
            pytest.fail("the pool was opened")
    assert not matching(mark)


async def test_an_error_in_the_block_ends_the_servers(
    tmp_path: Path, tiny: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MARK", mark := uuid.uuid4().hex)
    with pytest.raises(ZeroDivisionError):
        async with pool_of(tmp_path, {"general": tiny}):
            raise ZeroDivisionError
    assert not matching(mark)


async def test_a_killed_server_ends_running_and_later_calls_at_once_with_the_log(tmp_path: Path, tiny: Service) -> None:
    async with pool_of(tmp_path, {"policy": tiny, "general": tiny}) as pool:
        running = [asyncio.create_task(pool.get_model(name).complete(SLOW)) for name in ("policy", "general")]
        await asyncio.sleep(0.2)
        began = time.monotonic()
        os.kill((await environment_of(pool, "general"))["pid"], signal.SIGKILL)
        ended = await asyncio.wait_for(asyncio.gather(*running, return_exceptions=True), 5.0)
        assert time.monotonic() - began < 1.5
        with pytest.raises(ModelFailure) as later:
            await pool.get_model("policy").complete(HELLO)
        died = pool.find_failure()
        assert await asyncio.wait_for(pool.wait_failure(), 1.0) is died
    assert died is not None
    assert "INFO Starting to load model" in died.report
    for failed in (*ended, later.value):
        assert isinstance(failed, ModelFailure)
        assert failed.kind is FailureKind.TRANSPORT_UNREACHABLE
        assert "was killed by SIGKILL" in failed.reason
        assert "Starting to load model" in failed.reason
        assert len(failed.receipts) == 1


async def test_while_one_replica_lives_the_service_does(tmp_path: Path, tiny: Service) -> None:
    async with pool_of(tmp_path, {"general": replace(tiny, replicas=2)}) as pool:
        for replica, expected in ((0, False), (1, True)):
            os.kill((await environment_of(pool, "general", replica))["pid"], signal.SIGKILL)
            if expected:
                await asyncio.wait_for(pool.wait_failure(), 5.0)
            else:
                assert (await pool.get_model("general").complete(HELLO)).reply.text == "OK"
            assert (pool.find_failure() is not None) is expected


async def test_a_callers_cancellation_stays_a_cancellation(tmp_path: Path, tiny: Service) -> None:
    async with pool_of(tmp_path, {"general": tiny}) as pool:
        call = asyncio.create_task(pool.get_model("general").complete(SLOW))
        await asyncio.sleep(0.1)
        assert pool.get_model("general").in_flight == 1
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        assert pool.get_model("general").in_flight == 0


async def test_a_death_inside_a_time_limit_is_not_taken_for_the_limit(tmp_path: Path, tiny: Service) -> None:
    async with pool_of(tmp_path, {"general": tiny}) as pool:
        pid = (await environment_of(pool, "general"))["pid"]
        asyncio.get_running_loop().call_later(0.1, os.kill, pid, signal.SIGKILL)
        with pytest.raises(ModelFailure, match="SIGKILL"):
            async with asyncio.timeout(10):
                await pool.get_model("general").complete(SLOW)
        task = asyncio.current_task()
        assert task is not None
        assert task.cancelling() == 0


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"model": "/no/such/model"}, r"judge\.model: this model directory does not exist"),
        ({"model": "embedded:smolm2"}, "did you mean embedded:smollm2"),
        ({"engine_args": {"port": 3}}, r"judge\.engine_args\.port"),
        ({"port": 8000}, r"judge\.port"),
        ({"python": "/no/such/python"}, r"judge\.python"),
        ({"cpu": False}, r"judge\.cpu=true"),
    ],
)
async def test_what_cannot_work_is_refused_before_anything_is_started(
    change: dict[str, Any], told: str, tmp_path: Path, tiny: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(ConfigError, match=told):
        async with pool_of(tmp_path, {"policy": tiny, "general": replace(tiny, **change)}):
            pytest.fail("the pool was opened")
    assert not (tmp_path / "logs").exists()


async def test_a_missing_key_costs_no_start(tmp_path: Path, tiny: Service) -> None:
    remote = Service(mode="external", model="m", base_url="http://127.0.0.1:9/v1", api_key_env="GAVEL_NO_SUCH_KEY")
    with pytest.raises(ConfigError, match="GAVEL_NO_SUCH_KEY"):
        async with pool_of(tmp_path, {"general": tiny, "remote": remote}):
            pytest.fail("the pool was opened")
    assert not (tmp_path / "logs").exists()


async def test_an_unknown_service_is_refused_with_those_there_are(tmp_path: Path) -> None:
    external = Service(mode="external", model="m", base_url="http://127.0.0.1:9/v1")
    async with pool_of(tmp_path, {"policy": external}) as pool:
        assert pool.list_urls("policy") == ("http://127.0.0.1:9/v1",)
        assert list(pool.models) == ["policy"]
        with pytest.raises(ConfigError, match="policy"):
            pool.get_model("plicy")
