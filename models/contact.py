"""The first contact with external services: whether they take a connection and know the model, asked before work depends on it."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import orjson

from gavel.models.errors import ConfigError
from gavel.models.retry import TRANSPORT_ERRORS, classify_exception
from gavel.models.service import Service, config_key
from gavel.models.transport import Answered, Transport

PATIENCE_S = 10.0
"""How long a server may take for its first answer."""
GLANCE_S = 3.0
"""How long one may take whose answer is not waited for."""
ENGINES = frozenset({"vllm", "sglang"})
"""Owners in a listing of models that is known to be whole. A gateway may serve what it does not list."""


@dataclass(frozen=True, slots=True)
class _Said:
    """What one server said: why it cannot be reached, or the models it serves where its listing is known to be whole."""

    url: str
    problem: str | None = None
    models: tuple[str, ...] | None = None


async def first_contact(key: str, service: Service) -> None:
    """Ask each server of an external service for its models; any HTTP answer is contact. Does nothing for a managed service.

    Args:
        key: of the service in the config, for the error.
        service: how it is reached.

    Raises:
        ConfigError: fewer than ``min_replicas`` answer; names the first that does not, and why. Or a server does not serve the model;
            or a credential is not set.
    """
    said = await _ask(key, service, PATIENCE_S)
    silent = [one for one in said if one.problem is not None]
    if silent and len(said) - len(silent) < service.min_replicas:
        raise ConfigError(
            f"cannot reach {silent[0].url}: {silent[0].problem}",
            field=f"{key}.base_url",
            remedy="start the server, or correct the URL or the proxy",
        )
    _check_models(key, service, said)


async def check_served_models(services: Mapping[str, Service]) -> None:
    """See that the servers of external services serve the models asked for; one that does not answer passes, for it may come yet.

    Args:
        services: by name; managed ones are passed over.

    Raises:
        ConfigError: a server lists its models, and the one asked for is not among them. Or a credential is not set.
    """
    keys = [config_key(name) for name in services]
    answers = await asyncio.gather(*(_ask(key, service, GLANCE_S) for key, service in zip(keys, services.values(), strict=True)))
    for key, service, said in zip(keys, services.values(), answers, strict=True):
        _check_models(key, service, said)


def _check_models(key: str, service: Service, said: list[_Said]) -> None:
    for one in said:
        if one.models is not None and service.model not in one.models:
            raise ConfigError(
                f"{one.url} does not serve this model", field=f"{key}.model",
                found=service.model or "null", allowed=", ".join(one.models),
                remedy="name a model as the server does, or start the server with --served-model-name",
            )  # fmt: skip


async def _ask(key: str, service: Service, patience: float) -> list[_Said]:
    places = {f"{url.rstrip('/')}/models": url for url in service.base_urls}
    if not places:
        return []
    transport = Transport(key, service, list(places))
    try:
        return await asyncio.gather(*(_listing(transport, place, url, patience) for place, url in places.items()))
    finally:
        await transport.close()


async def _listing(transport: Transport, place: str, url: str, patience: float) -> _Said:
    try:
        answer = await transport.get(place, patience)
    except TRANSPORT_ERRORS as error:
        return _Said(url, problem=transport.redact(classify_exception(error).reason))
    return _Said(url, models=_served(answer))


def _served(answer: Answered) -> tuple[str, ...] | None:
    try:
        body: Any = orjson.loads(answer.body) if answer.status == 200 else None
    except orjson.JSONDecodeError:
        return None
    cards = body.get("data") if isinstance(body, dict) else None
    if not isinstance(cards, list) or not cards:
        return None
    known = all(isinstance(card, dict) and card.get("owned_by") in ENGINES and isinstance(card.get("id"), str) for card in cards)
    return tuple(card["id"] for card in cards) if known else None
