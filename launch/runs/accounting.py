"""What the calls of a run cost: counts, tokens, savings, latency and retries by cause, per service."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import numpy as np

from gavel.models.codec import record
from gavel.models.service import Price, Service, get_config_key
from gavel.models.types import Receipt

PERCENTILES = (50, 90, 99)
WHOLE_RUN = "all"
"""The name of the account over all services."""


@record
class ServiceAccount:
    """One service over a run, from the receipts of its stored rows.

    ``calls`` went over the network; ``cache_hits`` and ``shared`` (answered by an equal call in flight) did not.
    ``latency_s`` maps p50, p90 and p99 of network calls to seconds. ``retries`` counts the attempts that failed, by
    kind. Tokens are those of network calls, as the server counted them; ``cached_tokens`` are the part of
    ``prompt_tokens`` that its prefix cache held. ``cache_share`` and ``dedupe_share`` are the shares of all answers, in
    [0, 1], that the cache and equal calls in flight gave. ``money`` is what the tokens cost in ``currency``; None
    without a price, over all services also where one that was called has none or another currency. ``uncounted``
    replies came without a count of tokens, so that ``money`` lacks theirs.
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
    money: float | None = None
    currency: str | None = None
    uncounted: int = 0


@dataclass(slots=True)
class _Open:
    calls: int = 0
    cache_hits: int = 0
    shared: int = 0
    prompt: int = 0
    completion: int = 0
    cached: int = 0
    uncounted: int = 0
    retries: Counter[str] = field(default_factory=Counter)
    latency: list[float] = field(default_factory=list)


class Accounts:
    """Adds receipts up, service by service and over all of them; ``prices`` are those of the services that have one."""

    def __init__(self, prices: Mapping[str, Price] | None = None) -> None:
        self._services: dict[str, _Open] = {}
        self._prices = prices or {}

    def add_receipts(self, receipts: Iterable[Receipt]) -> None:
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
            elif receipt.reply_digest is not None:
                account.uncounted += 1

    def close_accounts(self) -> dict[str, ServiceAccount]:
        """Return the account of each service, by name."""
        return {
            name: _close_account(account, *self._compute_cost(name)) for name, account in sorted(self._services.items())
        }

    def compute_total(self) -> ServiceAccount:
        """Return the account over all services."""
        whole = _Open()
        for account in self._services.values():
            for name in ("calls", "cache_hits", "shared", "prompt", "completion", "cached", "uncounted"):
                setattr(whole, name, getattr(whole, name) + getattr(account, name))
            whole.retries.update(account.retries)
            whole.latency.extend(account.latency)
        called = [self._compute_cost(name) for name, account in self._services.items() if account.calls]
        money = [amount for amount, _ in called if amount is not None]
        currencies = {currency for _, currency in called}
        if not money or len(money) < len(called) or len(currencies) > 1:
            return _close_account(whole)
        return _close_account(whole, sum(money), *currencies)

    def _compute_cost(self, name: str) -> tuple[float | None, str | None]:
        price, account = self._prices.get(name), self._services[name]
        return (
            (None, None)
            if price is None
            else (price.compute_cost(account.prompt, account.completion, account.cached), price.currency)
        )


def list_prices(services: Mapping[str, Service]) -> dict[str, Price]:
    """Return the prices of the services that have one."""
    return {name: service.price for name, service in services.items() if service.price is not None}


def show_money(amount: float, currency: str | None) -> str:
    """Write an amount: two places, and two digits of one that is less than a hundredth."""
    figure = f"{amount:.2f}" if amount >= 0.01 or not amount else f"{amount:.2g}"
    return f"{figure} {currency}" if currency else figure


def describe_money(services: Mapping[str, ServiceAccount], whole: ServiceAccount | None) -> str:
    """Return the line that says what a run cost, service by service and together; empty where no service has a
    price.
    """
    priced = {name: cost for name, cost in services.items() if cost.money is not None}
    if not priced:
        return ""
    parts = [f"{get_config_key(name)} {show_money(cost.money or 0.0, cost.currency)}" for name, cost in priced.items()]
    said = ", ".join(parts)
    if len(priced) > 1 and whole is not None and whole.money is not None:
        said += f"; {show_money(whole.money, whole.currency)} in all"
    free = [get_config_key(name) for name, cost in services.items() if cost.money is None and cost.calls]
    said += f"; no price is set for {', '.join(free)}" if free else ""
    missing = sum(cost.uncounted for cost in priced.values())
    return said + (f"; {missing} replies came without a count of tokens and are not in it" if missing else "")


def _close_account(account: _Open, money: float | None = None, currency: str | None = None) -> ServiceAccount:
    values: list[float] = np.percentile(account.latency, PERCENTILES).tolist() if account.latency else []
    answers = max(account.calls + account.cache_hits + account.shared, 1)
    return ServiceAccount(
        account.calls,
        account.cache_hits,
        account.shared,
        account.prompt,
        account.completion,
        account.cached,
        dict(account.retries),
        {f"p{rank}": round(value, 4) for rank, value in zip(PERCENTILES, values, strict=False)},
        round(account.cache_hits / answers, 4),
        round(account.shared / answers, 4),
        None if money is None else round(money, 6),
        currency,
        account.uncounted,
    )
