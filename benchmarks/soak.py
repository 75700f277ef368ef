"""100,000 judge calls through one client against a server that fails: memory flat, nothing leaked, every try accounted
for.

    python -m benchmarks.soak [--calls 100000] [--in-flight 128] [--share 0.1]

The server runs in its own process and counts what it answered. One call in ten asks what another one asks at the same
time, and shares its reply. Ends with 1 if resident memory grew by 20 MB or more after the warm-up, a task or a socket
was left, or the receipts and the server's counts do not agree.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import os
import random
import sys
import time
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

import aiohttp
from tests.support.fault_server import server_process

from gavel.models.calls.client import ChatClient
from gavel.models.calls.retry import Backoff
from gavel.models.failures import ModelFailure
from gavel.models.service import Service, Timeout
from gavel.models.types import ChatRequest, Message, Receipt, Sampling

GROWTH_MB = 20.0
ANSWERED = {
    "429": "429", "500": "500", "502": "502", "503": "503", "409": "409",
}  # fmt: skip
"""Faults whose status stands in the receipt: name, status."""

BROKEN = ("reset_mid_body", "cut_body")
FREE = ("reset_before", "close_before")
"""Faults after which a request on a used connection is sent again without counting as a try."""

UNREADABLE = ("not_json", "invalid_utf8", "empty_choices", "error_body_200", "length", "null_content")
SELDOM = ("slow_headers", "stalled_body", "huge")
FAULTS = [*ANSWERED, *BROKEN, *FREE, *UNREADABLE] * 6 + list(SELDOM)
WORDS = "word " * 100
DUPLICATES = 10


@dataclass
class Ledger:
    """What the receipts say: ``calls`` that ended, each with one receipt; tries by outcome and by status; replies of
    others.
    """

    calls: int = 0
    failed: Counter[str] = field(default_factory=Counter)
    receipts: int = 0
    shared: int = 0
    tries: Counter[str] = field(default_factory=Counter)
    statuses: Counter[str] = field(default_factory=Counter)

    def add(self, receipts: Iterable[Receipt], failed: str | None = None) -> None:
        """Enter one call."""
        self.calls += 1
        if failed:
            self.failed[str(failed)] += 1
        for receipt in receipts:
            self.receipts += 1
            self.shared += receipt.shared
            if not receipt.shared:
                self.tries.update(str(attempt.outcome) for attempt in receipt.attempts)
                self.statuses.update(str(attempt.status) for attempt in receipt.attempts)


@dataclass(frozen=True)
class Soaked:
    """Figures of one soak; ``problems`` is empty where all is well."""

    calls: int
    seconds: float
    growth_mb: float
    rss_mb: float
    ledger: Ledger
    problems: tuple[str, ...]


def resident_mb() -> float:
    """Return this process's resident memory."""
    gc.collect()
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 2**20


def sockets() -> int:
    """Return how many sockets this process has open."""
    found = 0
    for entry in Path("/proc/self/fd").iterdir():
        try:
            found += str(entry.readlink()).startswith("socket:")
        except OSError:  # the one that listed them
            continue
    return found


async def soak(base_url: str, calls: int, in_flight: int, warm_up: int) -> Soaked:
    """Make ``warm_up`` calls, then ``calls``, and compare memory, tasks, sockets and counts."""
    before, ledger, began = sockets(), Ledger(), time.monotonic()
    service = Service(
        mode="external", model="fake", base_url=base_url, max_in_flight=in_flight, timeout=Timeout(2.0, 0.5)
    )
    problems = []
    async with ChatClient("judge", service, backoff=Backoff(0.01, 0.05), rng=random.Random(1)) as client:
        await _ask(client, ledger, range(warm_up), in_flight)
        rss = resident_mb()
        await _ask(client, ledger, range(warm_up, warm_up + calls), in_flight)
        grown = resident_mb() - rss
        if client.admission.in_flight or client.admission.waiting:
            problems.append(
                f"{client.admission.in_flight} calls in flight and {client.admission.waiting} waiting after the "
                f"last one"
            )
    tasks = len(asyncio.all_tasks()) - 1
    await asyncio.sleep(0.1)  # transports close in the next turns of the loop
    if tasks:
        problems.append(f"{tasks} tasks are left")
    if sockets() > before:
        problems.append(f"{sockets() - before} sockets are left")
    if grown >= GROWTH_MB:
        problems.append(f"memory grew by {grown:.1f} MB")
    problems += _unaccounted(ledger, warm_up + calls, await _stats(base_url))
    return Soaked(calls, time.monotonic() - began, grown, rss + grown, ledger, tuple(problems))


async def _ask(client: ChatClient, ledger: Ledger, numbers: range, in_flight: int) -> None:
    left = iter(numbers)

    async def worker() -> None:
        for n in left:
            # Every tenth call asks what the one before it asks.
            text = f"{WORDS}{n - (n % DUPLICATES == 1)}"
            try:
                done = await client.complete(ChatRequest((Message("user", text),), "judge", Sampling(temperature=0.0)))
            except ModelFailure as failed:
                ledger.add(failed.receipts, failed.kind)
            else:
                ledger.add((done.receipt,))

    await asyncio.gather(*(worker() for _ in range(in_flight)))


async def _stats(base_url: str) -> dict[str, Counter[str]]:
    async with aiohttp.ClientSession() as session, session.get(base_url.removesuffix("/v1") + "/_stats") as response:
        told = await response.json()
    return {"faults": Counter(told["faults"]), "count": Counter(all=told["count"])}


def _unaccounted(ledger: Ledger, calls: int, stats: dict[str, Counter[str]]) -> list[str]:
    """Say where receipts and the server disagree."""
    faults, problems = stats["faults"], []
    if not ledger.calls == ledger.receipts == calls:
        problems.append(f"{calls} calls, {ledger.calls} ends, {ledger.receipts} receipts")
    # On a busy machine an answer may come after the try was given up: such a try is a timeout that the server did not
    # play.
    late = ledger.tries["transport_timeout"] - faults["slow_headers"] - faults["stalled_body"]
    for name, status in ANSWERED.items():
        if not 0 <= faults[name] - ledger.statuses[status] <= max(late, 0):
            problems.append(f"{faults[name]} answers {name}, {ledger.statuses[status]} in the receipts")
    free = stats["count"]["all"] - ledger.tries.total()
    if not 0 <= free <= sum(faults[name] for name in FREE):
        problems.append(f"{stats['count']['all']} requests came in, {ledger.tries.total()} tries are in the receipts")
    return problems


def main() -> int:
    """Soak, print, judge."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--calls", type=int, default=100_000)
    parser.add_argument("--in-flight", type=int, default=128)
    parser.add_argument("--share", type=float, default=0.1, help="share of requests that fail")
    options = parser.parse_args()
    try:
        from uvloop import run
    except ImportError:
        from asyncio import run
    with server_process("--faults", ",".join(FAULTS), "--share", str(options.share)) as url:
        soaked = run(soak(url, options.calls, options.in_flight, options.calls // 10))
    ledger = soaked.ledger
    print(
        f"{ledger.calls} calls in {soaked.seconds:.0f} s, {ledger.calls / soaked.seconds:.0f} calls/s, "
        f"{ledger.shared} shared"
    )
    print(f"memory {soaked.rss_mb:.1f} MB, grew by {soaked.growth_mb:+.1f} MB over the last {soaked.calls} calls")
    print(f"calls failed: {dict(ledger.failed)}")
    print(f"tries: {dict(ledger.tries)}")
    print(
        "\n".join(soaked.problems) or "pass: memory is flat, no task and no socket is left, receipts and server agree"
    )
    return 1 if soaked.problems else 0


if __name__ == "__main__":
    sys.exit(main())
