"""The client: typed answers, waits that the service asks for, and errors that say what was wrong."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from tests.envs.interfaces.http_support import ABSTENTION, FOLLOWING, ROOT, judge_all, judged_item, lines_of, rule_item
from tests.envs.vera_mh import support as vera
from tests.support.fault_server import FaultServer
from tests.support.serving import NOWHERE, judged_at, serving

from gavel.envs.interfaces.http.client import GavelClient, ServiceRefused, assistant
from gavel.envs.interfaces.http.gate import HttpOptions
from gavel.envs.interfaces.http.records import Graded, Invalid, Observed, Opened, Refused, Ungraded
from gavel.models.types import Message, Reply


async def test_answers_are_typed_and_a_batch_keeps_its_order(tmp_path: Path) -> None:
    async with serving(*FOLLOWING, *NOWHERE, folder=tmp_path) as service, GavelClient(service.url, "instruction_following") as client:
        item = rule_item()
        one = await client.grade(item["task"], item["reply"])
        assert isinstance(one, Graded)
        assert (one.outcome.label, one.reward.value, one.outcome.checks[0].passed) == ("followed", 1.0, True)
        cut = await client.grade(item["task"], Reply("a, b", "length", "m"))
        assert isinstance(cut, Graded)
        assert cut.reward.value == 0.0
        many = await client.grade_many([(item["task"], "a, b"), ({}, "x"), (item["task"], "a b")])
        assert [type(answer) for answer in many] == [Graded, Invalid, Graded]
        health = await client.health()
        assert (health.environments["instruction_following"].graded, health.status) == (4, "ok")


async def test_a_judge_that_is_away_is_an_answer_and_not_an_error(tmp_path: Path) -> None:
    async with (
        serving(*ABSTENTION, *NOWHERE, "judge.attempts=1", folder=tmp_path) as service,
        GavelClient(service.url, "abstention") as client,
    ):
        answer = await client.grade(judged_item()["task"], judged_item()["reply"])
    assert isinstance(answer, Ungraded)
    assert (answer.failure.kind.value, answer.retry) == ("transport_unreachable", True)
    assert not hasattr(answer, "reward")


async def test_it_waits_when_told_that_too_much_is_in_flight(tmp_path: Path) -> None:
    options = HttpOptions(max_in_flight=2, max_batch=2)
    async with (
        FaultServer(reply=judge_all, latency=0.2) as judge,
        serving(*ABSTENTION, *judged_at(judge.base_url), folder=tmp_path, options=options) as service,
        GavelClient(service.url, "abstention", attempts=30) as client,
    ):
        items = [judged_item(number) for number in range(6)]
        answers = await asyncio.gather(*(client.grade(item["task"], item["reply"]) for item in items))
        assert {type(answer) for answer in answers} == {Graded}
        assert service.gate.refused[429] > 0


async def test_what_the_service_refuses_is_an_error_with_its_field(tmp_path: Path) -> None:
    async with serving(*FOLLOWING, *NOWHERE, folder=tmp_path, options=HttpOptions(api_key="right")) as service:
        async with GavelClient(service.url, "instruction_following") as client:
            with pytest.raises(ServiceRefused, match="Authorization: the key is missing") as failed:
                await client.grade(rule_item()["task"], "x")
            assert failed.value.status == 401
        async with GavelClient(service.url, "instruction_following", api_key="right") as client:
            with pytest.raises(ServiceRefused, match=r"messages\.0: the messages are not those of the task"):
                await client.grade(rule_item()["task"], [Message("user", "Another")])
            (refused,) = await client.grade_many([(rule_item()["task"], [Message("user", "Another")])])
            assert isinstance(refused, Refused)
        async with GavelClient(service.url, "nobody", api_key="right") as client:
            with pytest.raises(ServiceRefused, match="404"):
                await client.grade({}, "x")


async def test_a_service_that_is_not_there_is_said_so() -> None:
    async with GavelClient("http://127.0.0.1:1", "abstention", attempts=2) as client:
        with pytest.raises(ServiceRefused, match="no answer"):
            await client.grade({}, "x")


async def test_a_conversation_is_played_turn_by_turn(tmp_path: Path) -> None:
    words = (
        "env=vera_mh", vera.SMALL, "env.simulators=[{service: simulator}]", "env.max_turns=4", "services.simulator.mode=external",
        f"services.simulator.model={vera.SIMULATOR}",
    )  # fmt: skip
    (task, *_) = lines_of(ROOT / "envs" / "vera_mh" / "data" / "samples.jsonl")
    async with FaultServer(reply=vera.reply) as models:
        urls = (f"services.simulator.base_url={models.base_url}", *judged_at(models.base_url))
        async with serving(*words, *urls, folder=tmp_path) as service, GavelClient(service.url, "vera_mh") as client:
            opened = await client.open(task)
            assert isinstance(opened, Opened)
            messages = [*opened.messages, assistant("How are you?")]
            said = await client.step(task, messages)
            assert isinstance(said, Observed)
            messages += [*said.messages, assistant("Tell me more.", "length")]
            ended = await client.step(task, messages)
            assert isinstance(ended, Graded)
            assert ended.outcome.details is not None
            assert ended.outcome.details["chatbot_turns_truncated"] == 1
            receipts = {receipt.role for receipt in ended.receipts}
            assert receipts == {"simulator", "judge"} or receipts == {"judge"}
