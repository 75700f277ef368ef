"""Every fault of the list ends as a named failure or a right reply, within bounds, with every try in the receipt."""

from __future__ import annotations

import time
from dataclasses import replace

import pytest
from tests.support.fault_server import FaultServer
from tests.support.faults import NAMES, UNFINISHED, Fault

from gavel.models.calls.client import ChatClient
from gavel.models.calls.retry import Backoff
from gavel.models.failures import FailureKind, ModelFailure
from gavel.models.service import Service, Timeout
from gavel.models.types import CallRole, ChatRequest, Message, Sampling

QUICK = Backoff(base=0.001, cap=0.002)
PROMPT = (Message("user", "Is it right?"),)


def service(server: FaultServer, **changes: object) -> Service:
    made = Service(mode="external", model="fake", base_url=server.base_url, timeout=Timeout(1.0, 0.3), deadline=5.0)
    return replace(made, **changes)  # type: ignore[arg-type]


def ask(role: CallRole = "judge", **changes: object) -> ChatRequest:
    return replace(ChatRequest(PROMPT, role, Sampling(temperature=0.0)), **changes)  # type: ignore[arg-type]


RETRIED = {
    "408": "transport_timeout",
    "409": "provider_unavailable",
    "425": "provider_unavailable",
    "500": "provider_unavailable",
    "502": "provider_unavailable",
    "503": "provider_unavailable",
    "504": "provider_unavailable",
    "error_body_200": "provider_unavailable",
    "empty_choices": "provider_unavailable",
    "empty_body": "provider_unavailable",
    "invalid_utf8": "provider_unavailable",
    "nan_body": "provider_unavailable",
    "not_json": "provider_unavailable",
    "cut_json": "provider_unavailable",
    "two_documents": "provider_unavailable",
    "wrong_shape": "provider_unavailable",
    "wrong_content_type": "provider_unavailable",
    "reset_before": "transport_peer_drop",
    "close_before": "transport_peer_drop",
    "reset_mid_body": "transport_peer_drop",
    "cut_body": "transport_peer_drop",
    "slow_headers": "transport_timeout",
    "stalled_body": "transport_timeout",
    **{f"finish_{word or 'missing'}": "provider_unavailable" for word in UNFINISHED},
}
PACED = {"429": "provider_unavailable"}
"""Asked again until the deadline is over, whatever the attempts."""
PERMANENT = {
    "400": "judge_failed",
    "401": "provider_quota_exhausted",
    "403": "provider_quota_exhausted",
    "404": "provider_unavailable",
    "quota": "provider_quota_exhausted",
    "billing": "provider_quota_exhausted",
    "context_length": "gavel:context_overflow",
    "wrong_model": "gavel:identity_mismatch",
    "huge": "provider_unavailable",
    "no_room": "judge_unparseable",
    "null_content": "judge_unparseable",
    "empty_content": "judge_unparseable",
    "content_filter": "gavel:content_filtered",
    "flagged": "gavel:content_filtered",
    "budget": "provider_quota_exhausted",
    "length": "judge_unparseable",
    "length_in_reasoning": "judge_unparseable",
    "length_in_think": "judge_unparseable",
    "length_counted": "judge_unparseable",
    "model_length": "judge_unparseable",
    "tool_calls": "judge_unparseable",
    "reasoning_only": "judge_unparseable",
}
PASSED_ON = {
    "ok": "A",
    "text": "hello",
    "nan_score": '{"score": NaN}',
    "inf_score": '{"score": 1e400}',
    "two_objects": "A\nA",
    "unclosed_think": "<think>\nLet me see. A",
    "duplicate_id": "A",
    "no_model": "A",
}


def test_every_fault_the_server_can_play_has_its_expectation_here() -> None:
    assert sorted([*RETRIED, *PACED, *PERMANENT, *PASSED_ON]) == sorted(NAMES)


@pytest.mark.parametrize(("fault", "kind"), [*RETRIED.items(), *PACED.items()])
async def test_a_passing_fault_is_tried_again_and_the_reply_is_right(fault: str, kind: str) -> None:
    async with FaultServer() as server, ChatClient("judge", service(server), backoff=QUICK) as client:
        server.script([fault])
        done = await client.complete(ask())
    assert done.reply.text == "A"
    assert [attempt.outcome for attempt in done.receipt.attempts] == [kind, "ok"]
    assert server.count == 2


@pytest.mark.parametrize(("fault", "kind"), RETRIED.items())
async def test_a_lasting_fault_ends_after_the_attempts_as_its_kind(fault: str, kind: str) -> None:
    quick = {"attempts": 2, "timeout": Timeout(1.0, 0.1)}
    async with (
        FaultServer(choose=lambda body, n: fault) as server,
        ChatClient("judge", service(server, **quick), backoff=QUICK) as client,
    ):
        with pytest.raises(ModelFailure) as caught:
            await client.complete(ask())
    assert caught.value.kind == kind
    assert [attempt.outcome for attempt in caught.value.receipts[-1].attempts] == [kind, kind]
    assert all(attempt.reason for attempt in caught.value.receipts[-1].attempts)


@pytest.mark.parametrize("fault", [Fault("429"), Fault("503", retry_after="0.05"), Fault("429", retry_after="0")])
async def test_a_refusal_for_too_many_requests_costs_no_attempt_and_trips_nothing(fault: Fault) -> None:
    async with FaultServer() as server, ChatClient("judge", service(server, attempts=1), backoff=QUICK) as client:
        server.script([fault] * 12)
        assert (await client.complete(ask())).reply.text == "A"
        assert client.breaker.state == "closed"
    assert server.count == 13


async def test_refusals_that_last_end_at_the_deadline_and_name_the_keys() -> None:
    slow = service(server := FaultServer(choose=lambda body, n: "429"), attempts=1, deadline=0.3)
    async with (
        server,
        ChatClient("judge", replace(slow, base_url=server.base_url), backoff=Backoff(0.01, 0.05)) as client,
    ):
        began = time.monotonic()
        with pytest.raises(ModelFailure, match=r"judge\.deadline=0\.3 s.*judge\.rpm") as caught:
            await client.complete(ask())
        assert client.breaker.state == "closed"
    assert time.monotonic() - began < 2.0
    assert caught.value.kind is FailureKind.PROVIDER_UNAVAILABLE


@pytest.mark.parametrize(("fault", "kind"), PERMANENT.items())
async def test_a_permanent_fault_is_never_tried_again(fault: str, kind: str) -> None:
    async with (
        FaultServer() as server,
        ChatClient("judge", service(server, timeout=Timeout(1.0, 5.0)), backoff=QUICK) as client,
    ):
        server.script([fault])
        with pytest.raises(ModelFailure) as caught:
            await client.complete(ask())
        assert server.count == 1
    assert caught.value.kind == kind
    assert [attempt.outcome for attempt in caught.value.receipts[-1].attempts] == [kind]


@pytest.mark.parametrize(("fault", "text"), PASSED_ON.items())
async def test_a_well_formed_reply_is_passed_on_untouched(fault: str, text: str) -> None:
    async with FaultServer() as server, ChatClient("judge", service(server), backoff=QUICK) as client:
        server.script([Fault(fault, text="hello")])
        done = await client.complete(ask())
    assert done.reply.text == text


@pytest.mark.parametrize(
    ("fault", "text", "finish"),
    [
        ("length", "A", "length"),
        ("model_length", "A", "length"),
        ("tool_calls", "A", "tool_calls"),
        ("empty_content", "", "stop"),
        ("null_content", "", "stop"),
    ],
)
async def test_a_policys_bad_reply_is_a_reply(fault: str, text: str, finish: str) -> None:
    async with FaultServer() as server, ChatClient("policy", service(server), backoff=QUICK) as client:
        server.script([fault])
        done = await client.complete(ask("policy"))
    assert (done.reply.text, done.reply.finish_reason) == (text, finish)


@pytest.mark.parametrize("word", UNFINISHED)
async def test_a_policys_reply_that_the_engine_did_not_finish_is_never_a_reply(word: str) -> None:
    async with (
        FaultServer(reply=lambda body: "Paris") as server,
        ChatClient("policy", service(server), backoff=QUICK) as client,
    ):
        server.script([f"finish_{word or 'missing'}"])
        done = await client.complete(ask("policy"))
        assert (done.reply.finish_reason, server.count) == ("stop", 2)
        server.script([f"finish_{word or 'missing'}"] * 4)
        with pytest.raises(ModelFailure) as caught:
            await client.complete(ask("policy"))
    assert (caught.value.kind, caught.value.raw) == (FailureKind.PROVIDER_UNAVAILABLE, "Paris")
    assert (word or "missing") in caught.value.reason


@pytest.mark.parametrize("fault", ["length", "empty_content", "content_filter"])
async def test_a_simulators_incomplete_reply_is_a_failure_with_its_text(fault: str) -> None:
    async with (
        FaultServer(reply=lambda body: "half a sentence") as server,
        ChatClient("simulator", service(server), backoff=QUICK) as client,
    ):
        server.script([fault])
        with pytest.raises(ModelFailure) as caught:
            await client.complete(ask("simulator"))
    assert caught.value.kind is (
        FailureKind.CONTENT_FILTERED if fault == "content_filter" else FailureKind.PROVIDER_UNAVAILABLE
    )
    assert fault != "length" or caught.value.raw == "half "


async def test_the_raw_text_of_an_unusable_reply_is_kept() -> None:
    async with (
        FaultServer(reply=lambda body: "verdict: A") as server,
        ChatClient("judge", service(server), backoff=QUICK) as client,
    ):
        server.script(["length", "reasoning_only", "not_json"] + ["not_json"] * 3)
        raws = []
        for _ in range(3):
            with pytest.raises(ModelFailure) as caught:
                await client.complete(ask())
            raws.append(caught.value.raw)
    assert raws == ["verdi", "verdict: A", "this is not JSON"]


@pytest.mark.parametrize("fault", ["429", "503"])
async def test_retry_after_is_honoured(fault: str) -> None:
    async with FaultServer() as server, ChatClient("judge", service(server), backoff=QUICK) as client:
        server.script([Fault(fault, retry_after="0.3")])
        await client.complete(ask())
    assert server.requests[1].time - server.requests[0].time >= 0.3


async def test_a_wait_that_would_outlast_the_deadline_is_not_begun() -> None:
    async with FaultServer() as server, ChatClient("judge", service(server, deadline=2.0), backoff=QUICK) as client:
        server.script([Fault("429", retry_after="60")])
        began = time.monotonic()
        with pytest.raises(ModelFailure, match="no time left") as caught:
            await client.complete(ask())
    assert time.monotonic() - began < 1.0
    assert caught.value.kind is FailureKind.PROVIDER_UNAVAILABLE


async def test_the_deadline_bounds_all_attempts_together() -> None:
    slow = {"timeout": Timeout(1.0, 10.0), "deadline": 0.5, "attempts": 100}
    async with (
        FaultServer(choose=lambda body, n: "slow_headers") as server,
        ChatClient("judge", service(server, **slow), backoff=QUICK) as client,
    ):
        began = time.monotonic()
        with pytest.raises(ModelFailure) as caught:
            await client.complete(ask())
    assert time.monotonic() - began < 1.5
    assert caught.value.kind is FailureKind.TRANSPORT_TIMEOUT


async def test_a_dead_server_is_unreachable_and_a_restarted_one_is_found_again() -> None:
    server = await FaultServer().start()
    async with ChatClient("judge", service(server), backoff=QUICK) as client:
        assert (await client.complete(ask())).reply.text == "A"
        await server.stop()
        with pytest.raises(ModelFailure) as caught:
            await client.complete(ask())
        assert caught.value.kind is FailureKind.TRANSPORT_UNREACHABLE
        async with server:
            assert (await client.complete(ask())).reply.text == "A"


async def test_a_socket_closed_while_idle_costs_no_attempt() -> None:
    async with FaultServer() as server, ChatClient("judge", service(server, attempts=1), backoff=QUICK) as client:
        await client.complete(ask())
        server.script(["close_before"])  # on the reused connection, before any byte
        done = await client.complete(ask())
        assert [attempt.outcome for attempt in done.receipt.attempts] == ["ok"]
        assert (server.count, server.connections) == (3, 2)


async def test_the_free_try_is_given_once_and_only_on_a_used_socket() -> None:
    async with FaultServer() as server, ChatClient("judge", service(server, attempts=1), backoff=QUICK) as client:
        server.script(["close_before"])
        with pytest.raises(ModelFailure):  # a new connection: no free try
            await client.complete(ask())
        assert server.count == 1
        await client.complete(ask())
        server.script(["close_before", "close_before"])
        with pytest.raises(ModelFailure):
            await client.complete(ask())
        assert server.count == 4


@pytest.mark.parametrize("fault", ["cut_body", "reset_mid_body"])
async def test_a_reply_broken_in_the_middle_is_not_sent_again_for_free(fault: str) -> None:
    async with FaultServer() as server, ChatClient("judge", service(server, attempts=1), backoff=QUICK) as client:
        await client.complete(ask())
        server.script([fault])
        with pytest.raises(ModelFailure):
            await client.complete(ask())
        assert server.count == 2
