"""The client for trainers that are not asynchronous: it keeps its connections, sends parts that fit, and follows a
fork.
"""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest
from tests.envs.interfaces.http_support import FOLLOWING, rule_item
from tests.support.processes import run_forked, wait_until
from tests.support.serving import NOWHERE, serving

from gavel.envs.interfaces.http.client import GavelClient, ServiceRefused
from gavel.envs.interfaces.http.gate import HttpOptions
from gavel.envs.interfaces.http.records import Graded, Invalid, Refused
from gavel.envs.interfaces.http.sync_client import SyncGavelClient

ENV = "instruction_following"
TASK = rule_item()["task"]


async def test_a_trainer_that_calls_once_per_sample_uses_one_connection(tmp_path: Path) -> None:
    async with serving(*FOLLOWING, *NOWHERE, folder=tmp_path) as service:
        with SyncGavelClient(service.url, ENV) as client:
            values, connections = [], set()
            for number in range(12):
                answer = await asyncio.to_thread(client.grade, TASK, "a" if number % 2 else "a, b")
                values.append(answer.reward.value if isinstance(answer, Graded) else None)
                server = service.running._runner.server
                assert server is not None
                connections |= set(server.connections)
            assert values == [0.0, 1.0] * 6
            assert len(connections) == 1
            many = await asyncio.to_thread(client.grade_many, [(TASK, "a"), ({}, "x")])
            assert [type(one) for one in many] == [Graded, Invalid]
            assert (await asyncio.to_thread(client.health)).environments[ENV].graded == 13


@pytest.mark.parametrize("options", [HttpOptions(max_batch=7), HttpOptions(max_body_bytes=2000)])
async def test_a_batch_that_the_service_finds_too_large_is_sent_in_parts(options: HttpOptions, tmp_path: Path) -> None:
    async with (
        serving(*FOLLOWING, *NOWHERE, folder=tmp_path, options=options) as service,
        GavelClient(service.url, ENV) as client,
    ):
        said = [f"a{',' * (number % 2)} b" for number in range(60)]
        said[31] = "a" * 3000 if options.max_body_bytes == 2000 else said[31]
        answers = await client.grade_many([(TASK, one) for one in said])
        await client.grade_many([])
    assert len(answers) == 60
    if options.max_body_bytes == 2000:
        refused = answers.pop(31)
        assert isinstance(refused, Refused)
        assert "2000" in str(refused.error)
        said.pop(31)
    assert [one.reward.value for one in answers if isinstance(one, Graded)] == [float("," not in one) for one in said]


async def test_a_client_lives_from_one_event_loop_to_the_next(tmp_path: Path) -> None:
    async with serving(*FOLLOWING, *NOWHERE, folder=tmp_path) as service:
        client = GavelClient(service.url, ENV)

        async def once() -> object:
            answer = await client.grade(TASK, "a")
            await client.close()
            return answer

        for _ in range(2):
            assert isinstance(await asyncio.to_thread(asyncio.run, once()), Graded)


async def test_a_client_that_is_used_from_loop_to_loop_keeps_no_connection_of_one_that_ended(tmp_path: Path) -> None:
    async with serving(*FOLLOWING, *NOWHERE, folder=tmp_path) as service:
        client = GavelClient(service.url, ENV)
        server = service.running._runner.server
        assert server is not None
        for _ in range(5):  # nobody closes it: a trainer's reward function with `asyncio.run` in each call
            assert isinstance(await asyncio.to_thread(asyncio.run, client.grade(TASK, "a")), Graded)
        await asyncio.to_thread(wait_until, lambda: not server.connections, 5.0, "the end of every connection")


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
async def test_a_forked_worker_connects_anew_and_its_parent_goes_on(tmp_path: Path) -> None:
    async with serving(*FOLLOWING, *NOWHERE, folder=tmp_path) as service:
        client = SyncGavelClient(service.url, ENV)
        assert isinstance(await asyncio.to_thread(client.grade, TASK, "a"), Graded)
        code = await asyncio.to_thread(run_forked, lambda: int(isinstance(client.grade(TASK, "a"), Graded)))
        assert code == 1
        assert isinstance(await asyncio.to_thread(client.grade, TASK, "a"), Graded)
        await asyncio.to_thread(client.close)


def test_errors_are_those_of_the_other_client() -> None:
    with (
        SyncGavelClient("http://127.0.0.1:9", ENV, attempts=1) as client,
        pytest.raises(ServiceRefused, match="no answer"),
    ):
        client.grade(TASK, "a")
    with pytest.raises(ValueError, match="attempts"):
        SyncGavelClient("http://127.0.0.1:9", ENV, attempts=0)
