"""The first contact with external services: whether they take a connection and know the model, asked before work
depends on it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import orjson

from gavel.models.calls.retry import TRANSPORT_ERRORS, classify_exception
from gavel.models.calls.transport import Answered, Transport
from gavel.models.errors import ConfigError
from gavel.models.failures import FailureKind
from gavel.models.service import Service, get_config_key

_OK, _NOT_FOUND = 200, 404
_BELOW = "/v1"
"""Where the API of nearly every server begins."""
PATIENCE_S = 10.0
"""How long a server may take for its first answer."""
GLANCE_S = 3.0
"""How long one may take whose answer is not waited for."""
ENGINES = frozenset({"vllm", "sglang", "llamacpp"})
"""Owners in a listing of models that is known to be whole. A gateway may serve what it does not list."""


@dataclass(frozen=True, slots=True)
class _Said:
    """What one server said: why it cannot be reached (``nobody``: nothing listens there), or the models it serves where
    its listing is known to be whole; ``meant`` is the URL that answers in place of this one."""

    url: str
    problem: str | None = None
    nobody: bool = False
    models: tuple[str, ...] | None = None
    meant: str | None = None


async def check_first_contact(key: str, service: Service) -> None:
    """Ask each server of an external service for its models; any HTTP answer is contact. Does nothing for a managed
    service.

    Args:
        key: of the service in the config, for the error.
        service: how it is reached.

    Raises:
        ConfigError: fewer than ``min_replicas`` answer; names the first that does not, and why. Or a server does not
            serve the model; or its API begins at ``/v1``, and the URL lacks that; or a credential is not set.
    """
    said = await _ask_servers(key, service, PATIENCE_S)
    silent = [one for one in said if one.problem is not None]
    if silent and len(said) - len(silent) < service.min_replicas:
        raise ConfigError(
            f"cannot reach {silent[0].url}: {silent[0].problem}",
            field=f"{key}.base_url",
            remedy="start the server, or correct the URL or the proxy",
        )
    _check_answers(key, service, said)


async def check_served_models(services: Mapping[str, Service]) -> tuple[str, ...]:
    """See that the servers of external services serve the models asked for; one that does not answer passes, for it may
    come yet.

    Args:
        services: by name; managed ones are passed over.

    Returns:
        One line for each server where nothing listens.

    Raises:
        ConfigError: a server lists its models, and the one asked for is not among them; or its API begins at ``/v1``,
            and the URL lacks that. Or a credential is not set.
    """
    keys = [get_config_key(name) for name in services]
    answers = await asyncio.gather(
        *(_ask_servers(key, service, GLANCE_S) for key, service in zip(keys, services.values(), strict=True))
    )
    for key, service, said in zip(keys, services.values(), answers, strict=True):
        _check_answers(key, service, said)
    silent = [(key, one) for key, said in zip(keys, answers, strict=True) for one in said if one.nobody]
    return tuple(
        f"{key}: {one.url} does not answer yet ({one.problem}); rows that need it fail until it does"
        for key, one in silent
    )


def _check_answers(key: str, service: Service, said: list[_Said]) -> None:
    for one in said:
        if one.meant is not None:
            raise ConfigError(
                f"{one.url.rstrip('/')}/models is not there, and {one.meant}/models is",
                field=f"{key}.base_url",
                found=one.url,
                allowed="a URL that ends before /chat/completions",
                remedy=f"did you mean {one.meant}?",
            )
        if one.models is not None and not {service.model, *service.served_as} & {*one.models}:
            raise ConfigError(
                f"{one.url} does not serve this model",
                field=f"{key}.model",
                found=service.model or "null",
                allowed=", ".join(one.models),
                remedy="name a model as the server does, or start the server with --served-model-name",
            )


async def _ask_servers(key: str, service: Service, patience: float) -> list[_Said]:
    if not service.base_urls or service.is_none:
        return []
    places = [f"{url.rstrip('/')}{below}/models" for url in service.base_urls for below in ("", _BELOW)]
    transport = Transport(key, service, places)
    try:
        return await asyncio.gather(*(_read_listing(transport, url, patience) for url in service.base_urls))
    finally:
        await transport.close()


async def _read_listing(transport: Transport, url: str, patience: float) -> _Said:
    bare = url.rstrip("/")
    try:
        answer = await transport.get(f"{bare}/models", patience)
    except TRANSPORT_ERRORS as error:
        failed = classify_exception(error)
        return _Said(
            url,
            problem=transport.redact_secrets(failed.reason),
            nobody=failed.kind == FailureKind.TRANSPORT_UNREACHABLE,
        )
    lost = answer.status == _NOT_FOUND and await _lists_models(transport, f"{bare}{_BELOW}/models", patience)
    return _Said(url, models=_read_served_names(answer), meant=f"{bare}{_BELOW}" if lost else None)


async def _lists_models(transport: Transport, place: str, patience: float) -> bool:
    try:
        return bool(_read_cards(await transport.get(place, patience)))
    except TRANSPORT_ERRORS:
        return False


def _read_cards(answer: Answered) -> list[Any]:
    """Return the models a server lists; none where it lists none, or answers something else."""
    try:
        body: Any = orjson.loads(answer.body) if answer.status == _OK else None
    except orjson.JSONDecodeError:
        return []
    cards = body.get("data") if isinstance(body, dict) else None
    return cards if isinstance(cards, list) else []


def _read_served_names(answer: Answered) -> tuple[str, ...] | None:
    cards = _read_cards(answer)
    if not cards:
        return None
    known = all(
        isinstance(card, dict) and card.get("owned_by") in ENGINES and isinstance(card.get("id"), str) for card in cards
    )
    return tuple(card["id"] for card in cards) if known else None
