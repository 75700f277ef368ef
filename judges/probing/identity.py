"""Which model answers: what a server says of itself, held against what was asked for."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Mapping, Sequence
from typing import Any

import aiohttp
import orjson

from gavel.models.calls.served_names import is_same_model
from gavel.models.codec import compute_digest, record
from gavel.models.service import Service
from gavel.models.types import TOKENS_NOTE, Receipt

TIMEOUT_S = 10.0
"""Bound on each question to a server about itself."""

_REVISION = re.compile(r"[0-9a-f]{40}")


@record
class ServerFacts:
    """What a server says of itself; None where it does not say.

    ``root`` is the path or repository it loaded the model from.
    """

    models: tuple[str, ...] | None = None
    root: str | None = None
    max_model_len: int | None = None
    version: str | None = None


@record
class IdentityCheck:
    """``passed`` is False where something the server says contradicts the configuration, None where it said nothing of
    itself;
    ``problems`` say what, ``notes`` what could not be checked. ``fingerprint`` digests the prompt lengths that the
    server counted for the controls: another tokenizer or chat template gives another one; None where it does not
    count."""

    passed: bool | None
    served_models: tuple[str, ...]
    problems: tuple[str, ...]
    notes: tuple[str, ...]
    fingerprint: str | None


async def inspect_server(base_url: str, model: str, headers: Mapping[str, str] | None = None) -> ServerFacts:
    """Ask a server which models it has and which version it is; what it does not answer in time stays None.

    Args:
        base_url: ends before ``/models``.
        model: the name that will be asked for.
        headers: credentials, as for a call.
    """
    async with aiohttp.ClientSession(
        headers=dict(headers or {}), timeout=aiohttp.ClientTimeout(total=TIMEOUT_S), trust_env=True
    ) as session:
        listing, version = await asyncio.gather(
            _get_json(session, f"{base_url.rstrip('/')}/models"),
            _get_json(session, f"{base_url.rstrip('/').removesuffix('/v1')}/version"),
        )
    cards = [card for card in _to_list(listing.get("data")) if isinstance(card, dict)]
    # A server with one model tells about that one, whatever name it goes by there (ours serve under names of their
    # own).
    mine: dict[str, Any] = next(
        (card for card in cards if card.get("id") == model), cards[0] if len(cards) == 1 else {}
    )
    length, root, name = mine.get("max_model_len"), mine.get("root"), version.get("version")
    return ServerFacts(
        models=tuple(str(card.get("id")) for card in cards) if cards else None,
        root=root if isinstance(root, str) else None,
        max_model_len=length if isinstance(length, int) else None,
        version=name if isinstance(name, str) else None,
    )


async def _get_json(session: aiohttp.ClientSession, url: str) -> dict[str, Any]:
    try:
        async with session.get(url) as answer:
            body = orjson.loads(await answer.read()) if answer.status == 200 else None
    except (aiohttp.ClientError, TimeoutError, OSError, orjson.JSONDecodeError):
        return {}
    return body if isinstance(body, dict) else {}


def _to_list(value: object) -> list[Any]:
    return value if isinstance(value, list) else []


def check_identity(
    service: Service,
    facts: ServerFacts,
    receipts: Sequence[Receipt],
    lengths: Sequence[int | None],
    known: str | None = None,
) -> IdentityCheck:
    """Hold what the server says against what was asked for.

    Args:
        service: the judge as configured.
        facts: what its server says.
        receipts: of the calls made.
        lengths: prompt tokens of each control, as the server counted them.
        known: the fingerprint in an earlier certificate of the same binding.
    """
    asked, problems, notes = service.model or "", [], []
    served = tuple(sorted({receipt.served_model for receipt in receipts if receipt.served_model}))
    if facts.models is None:
        notes.append("the server does not list its models")
    elif not {asked, *service.served_as} & {*facts.models} and service.mode != "managed":
        problems.append(f"the server does not list {asked}; it lists {', '.join(facts.models[:5])}")
    problems += [
        f"asked for {asked}, the server answered as {name}"
        for name in served
        if service.mode == "external" and not any(is_same_model(each, name) for each in (asked, *service.served_as))
    ]
    problems += _check_root(service, facts.root)
    if service.max_context_length and facts.max_model_len and facts.max_model_len < service.max_context_length:
        problems.append(
            f"the server's context is {facts.max_model_len} tokens, configured are {service.max_context_length}"
        )
    fingerprint = compute_digest(list(lengths)) if lengths and None not in lengths else None
    if known is not None and fingerprint is not None and known != fingerprint:
        problems.append("its tokenizer or chat template is another one than when the certificate was written")
    if facts.root is None or not _REVISION.search(facts.root):
        notes.append("the server does not tell its revision")
    notes += sorted({note for receipt in receipts for note in receipt.notes if note.startswith(TOKENS_NOTE)})
    told = bool(served) or facts != ServerFacts()
    return IdentityCheck(not problems if told or problems else None, served, tuple(problems), tuple(notes), fingerprint)


def _check_root(service: Service, root: str | None) -> list[str]:
    if root is None or service.mode == "managed":  # our own server loads what we told it
        return []
    asked, revision = service.model or "", _REVISION.search(root)
    problems = []
    if "/" in asked and not asked.startswith((".", "/", "~")):
        flat = asked.replace("/", "--").lower()
        if asked.lower() not in root.lower() and flat not in root.lower() and not root.startswith("/"):
            problems.append(f"under the name {asked} the server runs {root}")
    if revision and service.revision and revision[0] != service.revision:
        problems.append(f"the server runs revision {revision[0]}, configured is {service.revision}")
    return problems
