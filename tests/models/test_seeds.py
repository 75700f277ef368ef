"""A seed that draws several replies to one prompt is another one for each of them, and the receipt says which was
sent.
"""

from __future__ import annotations

from typing import Any

import pytest
from tests.support.fault_server import FaultServer

from gavel.models.calls.client import ChatClient
from gavel.models.calls.retry import Backoff
from gavel.models.service import Service
from gavel.models.types import CallRole, ChatRequest, Message, Sampling


def ask(sampling: Sampling, sample: int, role: CallRole = "policy") -> ChatRequest:
    return ChatRequest((Message("user", "x"),), role, sampling, sample=sample, fresh=True)


@pytest.mark.parametrize(
    ("sampling", "keys"),
    [(Sampling(seed=5), {}), (Sampling(extra={"seed": 5}), {}), (Sampling(), {"extra_body": {"seed": 5}})],
)
@pytest.mark.parametrize("role", ["policy", "judge", "simulator"])
async def test_each_draw_of_a_prompt_has_a_seed_of_its_own(
    sampling: Sampling, keys: dict[str, Any], role: CallRole
) -> None:
    async with FaultServer() as server:
        service = Service(mode="external", model="fake", base_url=server.base_url, **keys)
        async with ChatClient("policy", service, backoff=Backoff(0.001, 0.002)) as client:
            done = [await client.complete(ask(sampling, sample, role)) for sample in range(3)]
    assert [seen.body["seed"] for seen in server.requests] == [5, 6, 7]
    assert [note for item in done for note in item.receipt.notes] == ["seed sent: 5", "seed sent: 6", "seed sent: 7"]
    assert len({item.receipt.call_id for item in done}) == 3


async def test_without_a_seed_none_is_sent_nor_where_it_is_left_out() -> None:
    async with FaultServer() as server:
        for keys, sampling in (({}, Sampling()), ({"omit": ("seed",)}, Sampling(seed=5))):
            service = Service(mode="external", model="fake", base_url=server.base_url, **keys)  # type: ignore[arg-type]
            async with ChatClient("policy", service) as client:
                done = await client.complete(ask(sampling, 2))
            assert "seed" not in server.requests[-1].body
            assert not any(note.startswith("seed sent") for note in done.receipt.notes)


async def test_a_try_that_is_made_again_keeps_its_seed() -> None:
    async with FaultServer() as server:
        server.script(["500"])
        service = Service(mode="external", model="fake", base_url=server.base_url)
        async with ChatClient("policy", service, backoff=Backoff(0.001, 0.002)) as client:
            await client.complete(ask(Sampling(seed=5), 4))
    assert [seen.body["seed"] for seen in server.requests] == [9, 9]
