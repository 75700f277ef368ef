"""The admission point of one service: how many calls are in flight, and how many requests and tokens go out a minute.

In flight: additive increase, multiplicative decrease. The limit starts at the configured bound; the first sign of
overload (429, 503, 529, a timeout) among the calls admitted since the last cut multiplies it by ``DECREASE``; each
round of as many good calls as the limit adds ``INCREASE`` of it, at least 1. So one burst of refusals cuts once, and
the limit hovers within 20 % below what the server takes. Calls that come back count for growth only while the limit is
in use. (Constants as inspect_ai's adaptive connections.)

A pause: after refusals for too many requests nobody is admitted until the service's pace allows it (``pace``).

A minute: two buckets. A call takes one request and its estimated tokens; what it really used is settled when it
returns.

Waiting is first come, first served over all users of the service; a call that tries again goes first. Limits and
buckets are pure, the time is passed in (monotonic seconds); ``Admission`` puts them behind futures. One thread at a
time.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from random import Random

from gavel.models.calls.pace import Pace
from gavel.models.calls.retry import Backoff, Refusal

DECREASE = 0.8
INCREASE = 0.05
LOWEST = 1.0

BURST = 1.0
"""Seconds' worth of a minute's allowance that may go out at once; at least one call."""


class Aimd:
    """The limit on calls in flight, between ``LOWEST`` and ``highest``."""

    __slots__ = ("_clean", "epoch", "highest", "limit")

    def __init__(self, highest: int) -> None:
        self.highest, self.limit = float(highest), float(highest)
        self.epoch = 0  # cuts so far
        self._clean = 0

    def record_good(self, *, in_use: bool) -> None:
        """Note a call that came back well; ``in_use``: the limit was at least half used."""
        if self.limit >= self.highest or not in_use:
            return
        self._clean += 1
        if self._clean >= self.limit:
            self._clean = 0
            self.limit = min(self.highest, self.limit + max(1.0, INCREASE * self.limit))

    def record_overload(self, epoch: int) -> None:
        """Note a sign of overload from a call admitted in ``epoch``; only the first of an epoch cuts."""
        self._clean = 0
        if epoch == self.epoch:
            self.epoch += 1
            self.limit = max(LOWEST, self.limit * DECREASE)


class Bucket:
    """An allowance a minute, such that no 60 s see more than ``per_minute`` (plus what estimates were short of)."""

    __slots__ = ("_capacity", "_level", "_rate", "_time")

    def __init__(self, per_minute: float, now: float) -> None:
        self._capacity = max(1.0, per_minute / 60.0 * BURST)
        # What may burst is taken off the flow, so that burst and flow together stay within the minute.
        self._rate = max(per_minute - self._capacity, per_minute / 2.0) / 60.0
        self._level, self._time = self._capacity, now

    def compute_wait(self, amount: float, now: float) -> float:
        """Return the seconds until ``amount`` may be taken; 0 if now.

        More than the capacity waits for a full bucket only.
        """
        self._level = min(self._capacity, self._level + (now - self._time) * self._rate)
        self._time = now
        short = min(amount, self._capacity) - self._level
        return 0.0 if short <= 1e-9 else short / self._rate

    def take(self, amount: float) -> None:
        """Take ``amount``, after ``wait`` said 0; the level may go below zero, and later calls wait for it."""
        self._level -= amount

    def settle_estimate(self, estimated: float, used: float) -> None:
        """Correct an estimate by what was used."""
        self._level += estimated - used


@dataclass(slots=True)
class Ticket:
    """Leave to make one try: ``tokens`` were taken from the bucket, ``epoch`` is that of the limit; ``ahead``: it goes
    alone, to find out whether a service that refused answers again."""

    tokens: float
    epoch: int
    ahead: bool = False


@dataclass(slots=True, eq=False)
class _Waiter:
    tokens: float
    future: asyncio.Future[Ticket]


class Admission:
    """The gate all calls to one service pass, whoever makes them.

    Args:
        highest: most calls in flight.
        rpm: requests a minute, or None.
        tpm: tokens a minute, or None.
        clock: monotonic seconds.
        pace: when the service may be asked again after it refused; None: one of its own.
    """

    def __init__(
        self, highest: int, rpm: int | None, tpm: int | None, clock: Callable[[], float], pace: Pace | None = None
    ) -> None:
        self._limit = Aimd(highest)
        self.pace = pace or Pace(Backoff(), Random())
        self._ahead = False
        self._clock = clock
        self._requests = Bucket(rpm, clock()) if rpm is not None else None
        self._tokens = Bucket(tpm, clock()) if tpm is not None else None
        self._queue: deque[_Waiter] = deque()
        self._timer: asyncio.TimerHandle | None = None
        self._admitted = 0
        self.in_flight = 0

    @property
    def limit(self) -> float:
        """The limit on calls in flight now."""
        return self._limit.limit

    @property
    def counts_tokens(self) -> bool:
        """Whether estimates of tokens are needed."""
        return self._tokens is not None

    @property
    def waiting(self) -> int:
        """Calls in the queue."""
        return len(self._queue)

    def enter(self, tokens: float = 0.0) -> Ticket | None:
        """Admit at once, or return None where the call has to wait: the queue comes first."""
        if self._queue or self._compute_delay(tokens) != 0.0:
            return None
        return self._admit_call(tokens)

    async def wait(self, tokens: float, patience: float, *, first: bool = False) -> Ticket:
        """Wait for admission, as long as the queue moves.

        Args:
            tokens: estimated for this call.
            patience: seconds after which a queue that admitted nobody, or whose service only refused, counts as stuck;
                with ``first``, seconds in all.
            first: go before all others (a further try of a call).

        Raises:
            TimeoutError: not admitted within ``patience``.
        """
        waiter = _Waiter(tokens, asyncio.get_running_loop().create_future())
        (self._queue.appendleft if first else self._queue.append)(waiter)
        self._admit_waiting()
        try:
            while True:
                admitted = self._admitted
                done, _ = await asyncio.wait((waiter.future,), timeout=patience)
                if done:
                    return waiter.future.result()
                if first or admitted == self._admitted or self._is_refusing_only(patience):
                    raise TimeoutError
        except BaseException:
            self._remove_waiter(waiter)
            raise

    def leave(
        self,
        ticket: Ticket,
        *,
        overloaded: bool = False,
        good: bool = False,
        used: float | None = None,
        refusal: Refusal | None = None,
    ) -> None:
        """Give a ticket back: ``overloaded`` and ``good`` feed the limit, ``used`` (tokens) the bucket; None keeps the
        estimate. ``refusal`` is what the server answered instead of a reply."""
        self._record_pace(ticket, refusal, good=good)
        if overloaded:
            self._limit.record_overload(ticket.epoch)
        elif good:
            self._limit.record_good(in_use=2 * self.in_flight >= self._limit.limit)
        if self._tokens is not None and used is not None:
            self._tokens.settle_estimate(ticket.tokens, used)
        self.in_flight -= 1
        if self._queue:
            self._admit_waiting()

    def _record_pace(self, ticket: Ticket, refusal: Refusal | None, *, good: bool) -> None:
        if ticket.ahead:
            self._ahead = False
        if refusal is not None and refusal.paced:
            self.pace.record_refusal(self._clock(), refusal.retry_after, anew=ticket.epoch == self._limit.epoch)
        elif good or (refusal is not None and refusal.status is not None and not refusal.overloaded):
            self.pace.record_answer(self._clock(), good=good, anew=ticket.epoch == self._limit.epoch)

    def _is_refusing_only(self, patience: float) -> bool:
        return self.pace.refusals > 0 and self._clock() - self.pace.answered_at >= patience

    def _compute_delay(self, tokens: float) -> float | None:
        """Return 0 if a call may go now, the seconds until buckets and pace allow it, or None while too many are in
        flight.
        """
        if self.in_flight + 1 > self._limit.limit or self._ahead:
            return None
        if self._requests is None and self._tokens is None and not self.pace.until:
            return 0.0
        now = self._clock()
        waits = [
            bucket.compute_wait(amount, now)
            for bucket, amount in ((self._requests, 1.0), (self._tokens, tokens))
            if bucket is not None
        ]
        return max(*waits, self.pace.compute_wait(now), 0.0)

    def _admit_call(self, tokens: float) -> Ticket:
        self.in_flight += 1
        self._admitted += 1
        if self._requests is not None:
            self._requests.take(1.0)
        if self._tokens is not None:
            self._tokens.take(tokens)
        self._ahead = self.pace.careful
        return Ticket(tokens, self._limit.epoch, self._ahead)

    def _admit_waiting(self) -> None:
        """Admit from the head of the queue while it may go; where a bucket is short, come back when it is not."""
        while self._queue:
            waiter = self._queue[0]
            delay = 0.0 if waiter.future.done() else self._compute_delay(waiter.tokens)
            if delay != 0.0:
                self._call_later(delay)
                return
            self._queue.popleft()
            if not waiter.future.done():
                waiter.future.set_result(self._admit_call(waiter.tokens))

    def _call_later(self, delay: float | None) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if delay is not None:  # else the next call that leaves pumps
            self._timer = asyncio.get_running_loop().call_later(delay + 0.001, self._admit_waiting)

    def _remove_waiter(self, waiter: _Waiter) -> None:
        """Take a waiter out that was cancelled or lost patience; what it was just given goes back."""
        if waiter.future.done() and not waiter.future.cancelled():
            self.leave(waiter.future.result(), used=0.0)
            return
        waiter.future.cancel()
        if waiter in self._queue:
            self._queue.remove(waiter)
        self._admit_waiting()
