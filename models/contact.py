"""The first contact with an external service: whether its servers take a connection at all, asked before any work depends on it."""

from __future__ import annotations

import asyncio

from gavel.models.errors import ConfigError
from gavel.models.retry import TRANSPORT_ERRORS, classify_exception
from gavel.models.service import Service
from gavel.models.transport import Transport

PATIENCE_S = 10.0
"""How long a server may take for its first answer."""


async def first_contact(key: str, service: Service) -> None:
    """Ask each server of an external service for its models; any HTTP answer is contact. Does nothing for a managed service.

    Args:
        key: of the service in the config, for the error.
        service: how it is reached.

    Raises:
        ConfigError: fewer than ``min_replicas`` answer; names the first that does not, and why. Or a credential is not set.
    """
    places = {f"{url.rstrip('/')}/models": url for url in service.base_urls}
    transport = Transport(key, service, list(places))
    try:
        problems = await asyncio.gather(*(_problem(transport, place) for place in places))
    finally:
        await transport.close()
    silent = {url: problem for url, problem in zip(places.values(), problems, strict=True) if problem is not None}
    if silent and len(places) - len(silent) < service.min_replicas:
        url, problem = next(iter(silent.items()))
        raise ConfigError(
            f"cannot reach {url}: {problem}", field=f"{key}.base_url", remedy="start the server, or correct the URL or the proxy"
        )


async def _problem(transport: Transport, url: str) -> str | None:
    try:
        await transport.get(url, PATIENCE_S)
    except TRANSPORT_ERRORS as error:
        return transport.redact(classify_exception(error).reason)
    return None
