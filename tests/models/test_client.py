"""What the client sends, reads and records."""

from __future__ import annotations

import asyncio
import gc
from dataclasses import replace
from typing import Any

import pytest
from tests.support.fault_server import FaultServer, server_process
from tests.support.faults import Answer, Fault

from gavel.models.calls.client import ChatClient, call_id
from gavel.models.calls.retry import Backoff
from gavel.models.codec import compute_digest
from gavel.models.errors import ConfigError
from gavel.models.failures import FailureKind, ModelFailure
from gavel.models.service import Service, Timeout
from gavel.models.types import ChatRequest, Message, Receipt, Sampling, Usage

QUICK = Backoff(base=0.001, cap=0.002)
PROMPT = (Message("system", "Be brief."), Message("user", "Is it right?"))
COLD = Sampling(temperature=0.0, max_response_tokens=8)


def external(server: FaultServer, **changes: Any) -> Service:
    return replace(
        Service(mode="external", model="fake", base_url=server.base_url, timeout=Timeout(1.0, 2.0), deadline=5.0),
        **changes,
    )


async def one(server: FaultServer, request: ChatRequest, **changes: Any) -> Receipt:
    async with ChatClient("judge", external(server, **changes), backoff=QUICK) as client:
        return (await client.complete(request)).receipt


async def test_the_receipt_says_what_was_asked_and_what_came_back() -> None:
    usage = {
        "prompt_tokens": 11,
        "completion_tokens": 3,
        "prompt_tokens_details": {"cached_tokens": 8},
        "completion_tokens_details": {"reasoning_tokens": 2},
    }
    async with FaultServer(reply=lambda body: Answer("A", usage=usage, reasoning="because")) as server:
        service = external(server)
        async with ChatClient("general", service) as client:
            done = await client.complete(ChatRequest(PROMPT, "judge", COLD))
    receipt = done.receipt
    assert done.reply.reasoning == "because"
    assert done.reply.usage == Usage(11, 3, 8, 2)
    assert (receipt.service, receipt.role, receipt.requested_model, receipt.served_model) == (
        "general",
        "judge",
        "fake",
        "fake",
    )
    assert (receipt.response_id, receipt.finish_reason, receipt.usage) == ("chatcmpl-1", "stop", Usage(11, 3, 8, 2))
    assert receipt.prompt_digest == compute_digest(
        [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Is it right?"}]
    )
    assert receipt.reply_digest == compute_digest(b"A")
    assert receipt.call_id == call_id(service, ChatRequest(PROMPT, "judge", COLD))
    assert [(attempt.outcome, attempt.status) for attempt in receipt.attempts] == [("ok", 200)]
    assert 0.0 < receipt.latency_s < 2.0


async def test_a_reply_says_that_its_prompt_opened_the_thinking_block() -> None:
    async with FaultServer(reply=lambda body: Answer("so it is Rome</think>Paris")) as server:
        for opened in (True, False):
            async with ChatClient("policy", external(server, thinking_opened=opened)) as client:
                assert (await client.complete(ChatRequest(PROMPT, "policy"))).reply.think_prefilled is opened
    assert external(server, thinking_opened=True).identity != external(server).identity


async def test_nothing_is_sent_that_was_not_set() -> None:
    async with FaultServer() as server:
        await one(server, ChatRequest(PROMPT, "judge"))
    assert server.requests[0].body == {
        "model": "fake",
        "messages": [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Is it right?"}],
    }


@pytest.mark.parametrize(
    "change",
    [
        {"messages": (*PROMPT, Message("user", "Really?"))},
        {"sampling": replace(COLD, seed=1)},
        {"sampling": replace(COLD, extra={"top_k": 1})},
        {"sample": 1},
    ],
    ids=["messages", "seed", "extra", "sample"],
)
def test_call_ids_differ_where_the_reply_could(change: dict[str, Any]) -> None:
    service, request = Service(mode="external", model="m", base_url="http://h/v1"), ChatRequest(PROMPT, "judge", COLD)
    assert call_id(service, request) != call_id(service, replace(request, **change))


def test_call_ids_are_equal_whatever_the_url_the_limits_and_the_role() -> None:
    service, request = Service(mode="external", model="m", base_url="http://h/v1"), ChatRequest(PROMPT, "judge", COLD)
    moved = replace(service, base_url="http://other/v1", max_in_flight=1, deadline=1.0)
    assert call_id(service, request) == call_id(moved, replace(request, fresh=True, prefix_key="k"))
    assert len(call_id(service, request)) == 16


async def test_the_responses_api_is_spoken() -> None:
    thinks = FaultServer(reply=lambda body: Answer("A", reasoning="because"))
    async with thinks as server, ChatClient("judge", external(server, api="responses")) as client:
        done = await client.complete(ChatRequest(PROMPT, "judge", replace(COLD, reasoning_effort="low", seed=3)))
    seen = server.requests[0]
    assert seen.path == "/v1/responses"
    assert (seen.body["max_output_tokens"], seen.body["reasoning"], seen.body["store"]) == (8, {"effort": "low"}, False)
    assert "seed" not in seen.body
    assert done.receipt.notes == ("not sent, the model or the API refuses it: seed",)
    assert (done.reply.text, done.reply.reasoning, done.reply.finish_reason) == ("A", "because", "stop")


async def test_a_truncated_response_of_the_responses_api_is_length() -> None:
    async with FaultServer() as server, ChatClient("policy", external(server, api="responses")) as client:
        server.script(["length"])
        assert (await client.complete(ChatRequest(PROMPT, "policy"))).reply.finish_reason == "length"


@pytest.mark.parametrize(
    ("requested", "served", "same"),
    [
        ("gpt-4o", "gpt-4o-2024-08-06", True),
        ("claude-opus-4-5", "claude-opus-4-5-20251101", True),
        ("claude-3-5-sonnet-latest", "claude-3-5-sonnet-20241022", True),
        ("openai/gpt-4o", "gpt-4o-2024-08-06", True),
        ("Qwen/Qwen3-32B", "qwen3-32b", True),
        ("gpt-4o", "gpt-4o-mini", False),
        ("gpt-5", "gpt-5-mini", False),
        ("Qwen/Qwen3-32B", "Qwen/Qwen3-8B", False),
        ("Qwen/Qwen3-32B", "Qwen/Qwen3-32B-AWQ", False),
    ],
)
async def test_another_model_under_the_same_name_is_refused(requested: str, served: str, same: bool) -> None:
    other = FaultServer(reply=lambda body: Answer("A", model=served))
    async with other as server, ChatClient("judge", external(server, model=requested), backoff=QUICK) as client:
        if same:
            assert (await client.complete(ChatRequest(PROMPT, "judge"))).receipt.served_model == served
            return
        with pytest.raises(ModelFailure) as caught:
            await client.complete(ChatRequest(PROMPT, "judge"))
    assert caught.value.kind is FailureKind.IDENTITY_MISMATCH
    assert caught.value.receipts[0].served_model == served
    assert f"judge.served_as=[{served}]" in caught.value.reason.replace("services.", "")
    accepting = replace(external(server, model=requested), served_as=("another", served))
    again = FaultServer(reply=lambda body: Answer("A", model=served))
    async with (
        again as server,
        ChatClient("judge", replace(accepting, base_url=server.base_url), backoff=QUICK) as client,
    ):
        assert (await client.complete(ChatRequest(PROMPT, "judge"))).receipt.served_model == served


async def test_a_server_that_names_no_model_is_noted() -> None:
    async with FaultServer() as server:
        server.script(["no_model"])
        receipt = await one(server, ChatRequest(PROMPT, "judge"))
    assert receipt.notes == ("the server does not name its model",)
    assert receipt.served_model is None


async def test_the_first_variable_that_is_set_holds_the_key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("FIRST_KEY", raising=False)
    monkeypatch.setenv("SECOND_KEY", "topsecret-two")
    monkeypatch.setenv("GATEWAY_TOKEN", "topsecret-gate")
    async with FaultServer() as server:
        await one(
            server,
            ChatRequest(PROMPT, "judge"),
            api_key_env=("FIRST_KEY", "SECOND_KEY"),
            header_env={"X-Gate": "GATEWAY_TOKEN"},
            organization="org-1",
            default_headers={"X-Plain": "yes"},
        )
    sent = server.requests[0].headers
    assert (sent["authorization"], sent["x-gate"]) == ("Bearer topsecret-two", "topsecret-gate")
    assert (sent["openai-organization"], sent["x-plain"]) == ("org-1", "yes")


def test_a_key_that_is_not_set_is_refused_by_the_names_of_its_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("FIRST_KEY", raising=False)
    monkeypatch.delenv("SECOND_KEY", raising=False)
    service = Service(mode="external", model="m", base_url="http://h/v1", api_key_env=("FIRST_KEY", "SECOND_KEY"))
    with pytest.raises(ConfigError, match="FIRST_KEY or SECOND_KEY"):
        ChatClient("judge", service)


async def test_a_secret_that_a_server_repeats_is_in_no_failure_and_no_receipt(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FIRST_KEY", "topsecret-one")
    echo = '{"error":{"message":"wrong key topsecret-one, or sk-abcdefgh12345678","code":401}}'

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(f"HTTP/1.1 401 No\r\nContent-Length: {len(echo)}\r\nConnection: close\r\n\r\n{echo}".encode())
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    base = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1"
    async with ChatClient(
        "judge", Service(mode="external", model="m", base_url=base, api_key_env="FIRST_KEY")
    ) as client:
        with pytest.raises(ModelFailure) as caught:
            await client.complete(ChatRequest(PROMPT, "judge"))
    server.close()
    told = f"{caught.value!r} {caught.value.receipts!r}"
    assert "[secret]" in told
    assert "topsecret" not in told
    assert "sk-abcdefgh" not in told


async def test_loopback_is_reached_past_a_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")  # nothing listens there
    monkeypatch.delenv("no_proxy", raising=False)
    async with FaultServer() as server:
        await one(server, ChatRequest(PROMPT, "judge"))
    assert server.count == 1


async def test_another_host_is_reached_through_the_proxy_with_its_credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[bytes] = []

    async def proxy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        seen.append(await reader.readuntil(b"\r\n\r\n"))
        writer.write(b"HTTP/1.1 404 No\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(proxy, "127.0.0.1", 0)
    monkeypatch.setenv("http_proxy", f"http://user:word@127.0.0.1:{server.sockets[0].getsockname()[1]}")
    for name in ("no_proxy", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
    async with ChatClient("judge", Service(mode="external", model="m", base_url="http://judge.example/v1")) as client:
        with pytest.raises(ModelFailure):
            await client.complete(ChatRequest(PROMPT, "judge"))
    server.close()
    head = seen[0].lower()
    assert head.startswith(b"post http://judge.example/v1/chat/completions ")
    assert b"proxy-authorization: basic dxnlcjp3b3jk" in head  # base64 of user:word, lower-cased


async def test_calls_that_share_a_prefix_go_to_one_replica_and_a_failed_one_to_the_next() -> None:
    async with FaultServer() as first, FaultServer() as second:
        service = replace(external(first), mode="managed")
        async with ChatClient("judge", service, base_urls=[first.base_url, second.base_url], backoff=QUICK) as client:
            for n in range(8):
                await client.complete(ChatRequest((Message("user", str(n)),), "judge", prefix_key="same"))
            assert {first.count, second.count} == {0, 8}
            busy, idle = (first, second) if first.count else (second, first)
            busy.script(["500"])
            await client.complete(ChatRequest(PROMPT, "judge", prefix_key="same"))
            assert (busy.count, idle.count) == (9, 1)


async def test_cancellation_passes_on_and_frees_the_connection() -> None:
    async with FaultServer() as server, ChatClient("judge", external(server)) as client:
        server.script([Fault("slow_headers", seconds=30.0)])
        task = asyncio.create_task(client.complete(ChatRequest(PROMPT, "judge")))
        await server.until(1)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert (await client.complete(ChatRequest(PROMPT, "judge"))).reply.text == "A"


async def test_a_closed_client_says_so() -> None:
    async with FaultServer() as server:
        client = ChatClient("judge", external(server), backoff=QUICK)
        server.script([Fault("slow_headers", seconds=30.0)])
        task = asyncio.create_task(client.complete(ChatRequest(PROMPT, "judge")))
        await server.until(1)
        await client.close()
        with pytest.raises(ModelFailure) as during:
            await task
        with pytest.raises(ModelFailure) as after:
            await client.complete(ChatRequest(PROMPT, "judge"))
    assert (during.value.kind, after.value.kind) == (FailureKind.SHUTDOWN, FailureKind.SHUTDOWN)


def test_a_client_outlives_the_loop_it_was_first_used_in(recwarn: pytest.WarningsRecorder) -> None:
    with server_process() as base_url:
        client = ChatClient("judge", Service(mode="external", model="fake", base_url=base_url))

        async def use(*, close: bool) -> str:
            text = (await client.complete(ChatRequest(PROMPT, "judge"))).reply.text
            if close:
                await client.close()
            return text

        assert asyncio.run(use(close=False)) == "A"
        assert asyncio.run(use(close=True)) == "A"
    gc.collect()
    assert not [warning for warning in recwarn if "Unclosed c" in str(warning.message)]  # session or connector


async def test_a_text_that_no_json_can_carry_is_a_failure_of_the_task() -> None:
    async with FaultServer() as server, ChatClient("judge", external(server)) as client:
        with pytest.raises(ModelFailure) as caught:
            await client.complete(ChatRequest((Message("user", "\ud800"),), "judge"))
        assert (caught.value.kind, server.count) == (FailureKind.TASK_SCHEMA, 0)


def test_a_client_without_a_url_is_refused() -> None:
    with pytest.raises(ConfigError, match="no URL"):
        ChatClient("judge", Service(mode="managed", model="embedded:smollm2"))
