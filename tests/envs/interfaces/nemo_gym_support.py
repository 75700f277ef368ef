"""The service with NeMo Gym's routes in this process, and rows and Responses objects to send to it."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from tests.support.serving import Service

from gavel.envs.interfaces.http.app import GATE
from gavel.envs.interfaces.http.gate import HttpOptions
from gavel.envs.interfaces.http.running import Running
from gavel.launch.compose.compose import compose_config
from gavel.launch.serving.gym import list_played, make_gym_app
from gavel.launch.serving.parts import list_services, make_offers
from gavel.models.pool import open_services

VERA = (
    "env=vera_mh", "rubrics.vera_mh.profile=gavel/vera-mh-small", "env.simulators=[{service: simulator}]", "env.max_turns=4",  # noqa: E501
    "services.simulator.mode=external", "services.simulator.model=simulator-model",
)  # fmt: skip


def played_at(url: str, model: str = "policy") -> tuple[str, ...]:
    """The words that let the service play rows with a policy at ``url``."""
    return ("gym.play=true", f"policy.base_url={url}", f"policy.model={model}")


@contextlib.asynccontextmanager
async def gym_service(*words: str, folder: Path, options: HttpOptions | None = None) -> AsyncIterator[Service]:
    """Serve what ``gavel serve`` with these words would."""
    config: Any = compose_config("serve", words)
    offers = make_offers(config)
    services = {**list_services(offers), **list_played(config)}
    async with open_services(
        services, log_dir=folder, progress=lambda _: None, replies=folder / "replies.sqlite"
    ) as pool:
        for offer in offers:
            offer.set_models(pool.models)
        app = make_gym_app(config, options or HttpOptions(), offers, pool.models, dict)
        running = await Running.start(app, "127.0.0.1", 0)
        try:
            yield Service(running, {}, app[GATE])
        finally:
            await running.close()


def responded(text: str, *, status: str = "completed", reason: str | None = None, **more: Any) -> dict[str, Any]:
    """A Responses object with one message, as a policy's server gives it."""
    part = {"type": "output_text", "text": text, "annotations": [], "logprobs": []}
    return {
        "id": "resp_1",
        "created_at": 0,
        "model": "policy",
        "object": "response",
        "status": status,
        "incomplete_details": {"reason": reason} if reason else None,
        "output": [{"type": "message", "role": "assistant", "id": "msg_1", "status": "completed", "content": [part]}],
        "parallel_tool_calls": False,
        "tool_choice": "auto",
        "tools": [],
        "usage": {
            "input_tokens": 7,
            "output_tokens": 3,
            "total_tokens": 10,
            "input_tokens_details": {"cached_tokens": 2},
            "output_tokens_details": {"reasoning_tokens": 1},
        },
        **more,
    }
