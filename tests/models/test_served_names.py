"""Which served names are the model that was asked for, and what a service may be called besides."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.support.fault_server import FaultServer
from tests.support.faults import Answer

from gavel.models.calls.client import ChatClient
from gavel.models.calls.served_names import is_same_model
from gavel.models.failures import FailureKind, ModelFailure
from gavel.models.service import Service
from gavel.models.types import CallRole, ChatRequest, Message


@pytest.mark.parametrize(
    ("requested", "served"),
    [
        ("claude-sonnet-4-0", "claude-sonnet-4-20250514"),
        ("claude-sonnet-4-5", "claude-sonnet-4-5-20250929"),
        ("anthropic/claude-opus-4.5", "anthropic/claude-4.5-opus-20251124"),
        ("anthropic/claude-haiku-4.5", "anthropic/claude-4.5-haiku-20251001"),
        ("claude-3-7-sonnet-latest", "claude-3-7-sonnet-20250219"),
        ("claude-sonnet-4-5", "us.anthropic.claude-sonnet-4-5-20250929-v1:0"),
        ("claude-sonnet-4-5", "claude-sonnet-4-5@20250929"),
        ("gpt-4o", "gpt-4o-2024-08-06"),
        ("gpt-4", "gpt-4-0613"),
        ("openai/gpt-5.2", "gpt-5.2-2025-12-11"),
        ("mistral-large-latest", "mistral-large-2407"),
        ("gemini-2.5-pro-preview", "models/gemini-2.5-pro-preview-05-06"),
        ("gemini-1.5-pro", "gemini-1.5-pro-002"),
        ("qwen-plus", "qwen-plus-2025-07-28"),
        ("deepseek/deepseek-r1:free", "deepseek/deepseek-r1"),
        ("Qwen/Qwen3-32B", "qwen3-32b"),
        ("gpt-3.5-turbo", "gpt-3.5-turbo-0125"),
        ("qwen-plus", "qwen-plus-0919"),
        ("azure/gpt-4o", "openai/gpt-4o"),
        ("/models/qwen3-32b", "Qwen/Qwen3-32B"),
    ],
)
def test_a_dated_or_routed_name_is_the_model_that_was_asked_for(requested: str, served: str) -> None:
    assert is_same_model(requested, served)
    assert is_same_model(served, requested)


@pytest.mark.parametrize(
    ("requested", "served"),
    [
        ("claude-sonnet-4", "claude-sonnet-4-5-20250929"),
        ("claude-opus-4", "claude-opus-4-1-20250805"),
        ("claude-opus-4-5", "claude-sonnet-4-5"),
        ("gpt-4o", "gpt-4o-mini"),
        ("gpt-4o", "gpt-4o-mini-2024-07-18"),
        ("gpt-5", "gpt-5.2-2025-12-11"),
        ("gpt-4.1", "gpt-4.1-nano"),
        ("gpt-4o-2024-05-13", "gpt-4o-2024-08-06"),
        ("qwen3-32b", "qwen3-32b-base"),
        ("qwen3", "qwen3:8b"),
        ("gemini-2.5-flash", "gemini-2.5-flash-lite"),
        ("mistral-large", "mistral-small-2407"),
        ("llama-3", "llama-3-70b"),
        ("deepseek-v3", "deepseek-v3.1"),
        ("qwen3-235b-a22b", "qwen3-235b-a22b-2507"),
        ("Qwen/Qwen3-4B", "qwen3-4b-2507"),
        ("deepseek/deepseek-r1", "deepseek/deepseek-r1-0528"),
        ("kimi-k2", "kimi-k2-0905"),
        ("openai/gpt-4o", "another/gpt-4o"),
        ("meta-llama/Llama-3-8B", "someone/llama-3-8b"),
    ],
)
def test_another_model_is_another_model(requested: str, served: str) -> None:
    assert not is_same_model(requested, served)
    assert not is_same_model(served, requested)


@pytest.mark.parametrize(
    ("role", "served_as", "refused"),
    [
        ("policy", (), False),
        ("policy", ("gpt-4o",), True),
        ("judge", (), True),
        ("judge", ("team-model",), False),
        ("simulator", (), True),
    ],
)
async def test_a_policys_name_is_recorded_and_refused_only_where_it_is_pinned(
    role: CallRole, served_as: tuple[str, ...], refused: bool
) -> None:
    async with FaultServer(reply=lambda body: Answer("A", model="team-model")) as server:
        service = Service(mode="external", model="my-bot", base_url=server.base_url, served_as=served_as)
        async with ChatClient("policy", replace(service)) as client:
            request = ChatRequest((Message("user", "x"),), role)
            if refused:
                with pytest.raises(ModelFailure, match="served_as") as caught:
                    await client.complete(request)
                assert caught.value.kind is FailureKind.IDENTITY_MISMATCH
            else:
                assert (await client.complete(request)).receipt.served_model == "team-model"
