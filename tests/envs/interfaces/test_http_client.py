"""The client: typed answers, waits that the service asks for, and errors that say what was wrong."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

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
    async with (
        serving(*FOLLOWING, *NOWHERE, folder=tmp_path) as service,
        GavelClient(service.url, "instruction_following") as client,
    ):
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
        "env=vera_mh",
        vera.SMALL,
        "env.simulators=[{service: simulator}]",
        "env.max_turns=4",
        "services.simulator.mode=external",
        f"services.simulator.model={vera.SIMULATOR}",
    )
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


@contextlib.asynccontextmanager
async def saying(answer: bytes) -> AsyncIterator[str]:
    """Something else than our service: it answers everything with these bytes."""

    async def answered(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(65536)
        writer.write(answer)
        with contextlib.suppress(ConnectionError):
            await writer.drain()
        writer.close()

    server = await asyncio.start_server(answered, "127.0.0.1", 0)
    async with server:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"


def ok(body: bytes) -> bytes:
    return b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\nConnection: close\r\n\r\n" % len(body) + body


OPENED = b'{"status":"opened","task_id":"x","messages":[],"receipts":[],"over":false}'


@pytest.mark.parametrize(
    "answer",
    [
        ok(b""),
        ok(b"<html>a proxy</html>"),
        ok(b"null"),
        ok(b"[]"),
        ok(b'{"status":"new"}'),
        ok(b'{"status":"graded"}'),
        ok(OPENED),
        b"no",
    ],
)
async def test_an_answer_that_is_none_of_the_service_is_refused_whatever_it_is(answer: bytes) -> None:
    item = rule_item()
    async with saying(answer) as url, GavelClient(url, "x", attempts=1) as client:
        for call in (client.grade(item["task"], "x"), client.step(item["task"], "x"), client.health()):
            with pytest.raises(ServiceRefused, match="none of this service"):
                await call
        with pytest.raises(ServiceRefused, match="none of this service"):
            await client.grade_many([(item["task"], "x"), (item["task"], "y")])


@pytest.mark.parametrize("url", ["", "nonsense", "ftp://x", "http://127.0.0.1:99999"])
async def test_an_address_that_is_none_is_refused(url: str) -> None:
    async with GavelClient(url, "x", attempts=1) as client:
        with pytest.raises(ServiceRefused) as caught:
            await client.grade(rule_item()["task"], "x")
    assert caught.value.status == 0
    assert caught.value.problem.field == "url"


@pytest.mark.parametrize("value", [float("nan"), 2**70, "\ud800", {1}])
async def test_what_json_cannot_hold_is_refused_and_not_changed_on_the_way(value: Any) -> None:
    async with GavelClient("http://127.0.0.1:9", "x", attempts=1) as client:
        with pytest.raises(ServiceRefused, match="cannot be sent as JSON"):
            await client.grade({**rule_item()["task"], "x": value}, "x")


def test_a_client_without_a_try_is_refused() -> None:
    with pytest.raises(ValueError, match="attempts"):
        GavelClient("http://127.0.0.1:9", "x", attempts=0)


async def test_more_items_than_a_request_takes_are_sent_in_parts_and_answered_in_order(tmp_path: Path) -> None:
    item = rule_item()
    async with (
        serving(*FOLLOWING, *NOWHERE, folder=tmp_path) as service,
        GavelClient(service.url, "instruction_following") as client,
    ):
        asked = [(item["task"] if number % 3 else {}, f"a, {number}") for number in range(600)]
        answers = await client.grade_many(asked)
    assert len(answers) == 600
    assert [isinstance(one, Graded) for one in answers] == [bool(number % 3) for number in range(600)]
