"""What the calls of a run cost: counts, tokens, savings, latency and retries by cause, per service."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import numpy as np

from gavel.models.codec import record
from gavel.models.types import Receipt

PERCENTILES = (50, 90, 99)
WHOLE_RUN = "all"
"""The name of the account over all services."""


@record
class ServiceAccount:
    """One service over a run, from the receipts of its stored rows.

    ``calls`` went over the network; ``cache_hits`` and ``shared`` (answered by an equal call in flight) did not. ``latency_s`` maps
    p50, p90 and p99 of network calls to seconds. ``retries`` counts the attempts that failed, by kind. Tokens are those of network
    calls, as the server counted them; ``cached_tokens`` are the part of ``prompt_tokens`` that its prefix cache held. ``cache_share``
    and ``dedupe_share`` are the shares of all answers, in [0, 1], that the cache and equal calls in flight gave.
    """

    calls: int
    cache_hits: int
    shared: int
    prompt_tokens: int
    completion_tokens: int
    cached_tokens: int
    retries: Mapping[str, int]
    latency_s: Mapping[str, float]
    cache_share: float = 0.0
    dedupe_share: float = 0.0


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
    """Adds receipts up, service by service and over all of them."""

    def __init__(self) -> None:
        self._services: dict[str, _Open] = {}

    def add(self, receipts: Iterable[Receipt]) -> None:
        """Count these receipts."""
        for receipt in receipts:
            account = self._services.setdefault(receipt.service, _Open())
            if receipt.cache_hit or receipt.shared:
                account.cache_hits += receipt.cache_hit
                account.shared += receipt.shared
                continue  # its attempts are those of the call that was made
            account.retries.update(attempt.outcome for attempt in receipt.attempts if attempt.outcome != "ok")
            account.calls += 1
            account.latency.append(receipt.latency_s)
            if receipt.usage is not None:
                account.prompt += receipt.usage.prompt_tokens
                account.completion += receipt.usage.completion_tokens
                account.cached += receipt.usage.cached_tokens

    def close(self) -> dict[str, ServiceAccount]:
        """Return the account of each service, by name."""
        return {name: _closed(account) for name, account in sorted(self._services.items())}

    def total(self) -> ServiceAccount:
        """Return the account over all services."""
        whole = _Open()
        for account in self._services.values():
            for name in ("calls", "cache_hits", "shared", "prompt", "completion", "cached"):
                setattr(whole, name, getattr(whole, name) + getattr(account, name))
            whole.retries.update(account.retries)
            whole.latency.extend(account.latency)
        return _closed(whole)


def _closed(account: _Open) -> ServiceAccount:
    values: list[float] = np.percentile(account.latency, PERCENTILES).tolist() if account.latency else []
    answers = max(account.calls + account.cache_hits + account.shared, 1)
    return ServiceAccount(
        account.calls, account.cache_hits, account.shared, account.prompt, account.completion, account.cached,
        dict(account.retries), {f"p{rank}": round(value, 4) for rank, value in zip(PERCENTILES, values, strict=False)},
        round(account.cache_hits / answers, 4), round(account.shared / answers, 4),
    )  # fmt: skip
