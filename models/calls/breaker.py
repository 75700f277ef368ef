"""The circuit breaker of one service: a pure state machine; the time is passed in (monotonic seconds).

Closed: calls pass. After ``THRESHOLD`` failed tries in a row over at least ``SPAN`` seconds it opens: calls fail at
once instead of waiting in line for a dead server. After the pause it is half-open: one call passes as a probe; if that
one succeeds, it closes; if not, it opens for twice as long, up to ``LONGEST_PAUSE``. A permanent refusal (bad key,
spent quota, unknown model) trips it for good, with the provider's words. A call that is stopped has the kind and the
reason of what stopped it. A server that answers, be it "too many requests", is alive and closes it.
"""

from __future__ import annotations

from gavel.models.failures import FailureKind

THRESHOLD = 10
"""Failed tries in a row before it opens; 30 % of calls failing at random reach that once in 170,000 tries."""

SPAN = 5.0
"""Seconds without a success before it opens: a server that restarts at once breaks every call in flight but is not
dead.
"""

FIRST_PAUSE = 5.0
LONGEST_PAUSE = 60.0
"""Seconds it stays open, the first time and at most."""


class Breaker:
    """One service's breaker; every method is called from one thread."""

    def __init__(self) -> None:
        self._failures = 0
        self._failing_since = 0.0
        self._reason = ""
        self._pause = FIRST_PAUSE
        self._reopens: float | None = None  # None: closed
        self._probing = False
        self._tripped: str | None = None
        self.kind = FailureKind.PROVIDER_UNAVAILABLE
        """Of the failure that keeps it open: the last one, or the one that tripped it."""

    @property
    def state(self) -> str:
        """``closed``, ``open``, ``half_open`` (a probe is on its way) or ``tripped``."""
        if self._tripped is not None:
            return "tripped"
        if self._reopens is None:
            return "closed"
        return "half_open" if self._probing else "open"

    def is_ready(self, now: float) -> bool:
        """Tell whether ``refuse_reason`` would let a call pass; changes nothing."""
        return self._tripped is None and (self._reopens is None or (not self._probing and now >= self._reopens))

    def refuse_reason(self, now: float) -> str | None:
        """Return why a call may not be tried now, or None; None while not closed makes that call the probe."""
        if self._tripped is not None:
            return f"not tried: the service refused for good: {self._tripped}"
        if self._reopens is None:
            return None
        if not self.is_ready(now):
            return f"not tried: {self._failures} tries in a row failed, the last with: {self._reason}"
        self._probing = True
        return None

    def record_answer(self) -> None:
        """Note that the server answered."""
        if self._failures:
            self._failures, self._pause, self._reopens, self._probing = 0, FIRST_PAUSE, None, False

    def record_failure(self, now: float, reason: str, kind: FailureKind) -> None:
        """Note a try that got no answer, or one that says that the server is broken."""
        if self._failures == 0:
            self._failing_since = now
        self._failures += 1
        self._reason = reason
        if self._tripped is None:
            self.kind = kind
        if self._probing:
            self._probing = False
            self._pause = min(2 * self._pause, LONGEST_PAUSE)
            self._reopens = now + self._pause
        elif self._reopens is None and self._failures >= THRESHOLD and now - self._failing_since >= SPAN:
            self._reopens = now + self._pause

    def record_cancelled(self) -> None:
        """Note that a try was cancelled; if it was the probe (or might have been), the next call is one."""
        self._probing = False

    def trip(self, reason: str, kind: FailureKind) -> None:
        """Refuse every further call with ``reason``; the first one stays."""
        if self._tripped is None:
            self._tripped, self.kind = reason, kind
