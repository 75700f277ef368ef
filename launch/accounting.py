"""What the calls of a run cost: counts, tokens, savings, latency and retries by cause, per service."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import numpy as np

from gavel.models.codec import record
from gavel.models.types import Receipt

PERCENTILES = (50, 90, 99)


@record
class ServiceAccount:
    """One service over a run, from the receipts of its stored rows.

    ``calls`` went over the network; ``cache_hits`` and ``shared`` did not. ``latency_s`` maps p50, p90 and p99 of network calls to
    seconds. ``retries`` counts the attempts that failed, by kind. Tokens are as the server counted them.
    """

    calls: int
    cache_hits: int
    shared: int
    prompt_tokens: int
    completion_tokens: int
    cached_tokens: int
    retries: Mapping[str, int]
    latency_s: Mapping[str, float]


@dataclass(slots=True)
class _Open:
    calls: int = 0
    cache_hits: int = 0
    shared: int = 0
    prompt: int = 0
    completion: int = 0
    cached: int = 0
    retries: Counter[str] = field(default_factory=Counter)
    latency: list[float] = field(default_factory=list)


class Accounts:
    """Adds receipts up, service by service."""

    def __init__(self) -> None:
        self._services: dict[str, _Open] = {}

    def add(self, receipts: Iterable[Receipt]) -> None:
        """Count these receipts."""
        for receipt in receipts:
            account = self._services.setdefault(receipt.service, _Open())
            account.cache_hits += receipt.cache_hit
            account.shared += receipt.shared
            account.retries.update(attempt.outcome for attempt in receipt.attempts if attempt.outcome != "ok")
            if receipt.cache_hit or receipt.shared:
                continue
            account.calls += 1
            account.latency.append(receipt.latency_s)
            if receipt.usage is not None:
                account.prompt += receipt.usage.prompt_tokens
                account.completion += receipt.usage.completion_tokens
                account.cached += receipt.usage.cached_tokens

    def close(self) -> dict[str, ServiceAccount]:
        """Return the account of each service, by name."""
        return {name: _closed(account) for name, account in sorted(self._services.items())}


def _closed(account: _Open) -> ServiceAccount:
    values: list[float] = np.percentile(account.latency, PERCENTILES).tolist() if account.latency else []
    return ServiceAccount(
        account.calls, account.cache_hits, account.shared, account.prompt, account.completion, account.cached,
        dict(account.retries), {f"p{rank}": round(value, 4) for rank, value in zip(PERCENTILES, values, strict=False)},
    )  # fmt: skip
