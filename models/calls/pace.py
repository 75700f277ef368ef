"""How long a service asks to be left alone: what a refusal says of it, and the pause that follows. Pure: the time is
passed in.

A refusal for too many requests is no failed try: the whole service pauses, for as long as the server says
(``read_pace``), else for a time that grows with each such refusal since the last answer. The first refusal without a
hint makes no pause: a server that only takes fewer calls at once goes on answering. After a pause that nothing ended
well, one call goes ahead alone.
"""

from __future__ import annotations

import email.utils
import re
from collections.abc import Mapping
from datetime import datetime
from random import Random

from gavel.models.calls.retry import Backoff

HINT_TEXT = 4000
"""Characters of a body that are searched for a hint."""

_NUMBER = re.compile(r"\d{1,13}(?:\.\d+)?")
_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_DURATION = re.compile(r"(?:\d{1,9}(?:\.\d+)?(?:ms|[smhd]))+")
_PART = re.compile(r"(\d{1,9}(?:\.\d+)?)(ms|[smhd])")
_WORDS = re.compile(
    r"(?:try again|retry|retry after|try again after|wait)(?: again)? (?:in|after|for)?\s*(?:about )?"
    r"((?:\d{1,9}(?:\.\d+)?\s?(?:milliseconds?|seconds?|minutes?|hours?|secs?|mins?|ms|[smhd])(?![a-z])\s?)+)"
    r"|\"?retry_?delay\"?\W{1,6}(\d{1,9}(?:\.\d+)?s)",
    re.IGNORECASE,
)
_LONG_UNITS = (("millisecond", "ms"), ("second", "s"), ("sec", "s"), ("minute", "m"), ("min", "m"), ("hour", "h"))
_EPOCH, _EPOCH_MS = 1e9, 1e12


def read_pace(headers: Mapping[str, str], text: str, now: float) -> float | None:
    """Return the seconds a refusal asks to wait, or None if it does not say.

    In this order: ``retry-after-ms``, ``Retry-After`` (seconds or an HTTP date), the message ("Please try again in
    644ms"), and the times at which spent limits begin anew (``x-ratelimit-reset-*``).

    Args:
        headers: of the answer; names in any case.
        text: its body or message.
        now: Unix seconds.
    """
    known = {name.lower(): value.strip() for name, value in headers.items()}
    after_ms = _parse_number(known.get("retry-after-ms", ""))
    if after_ms is not None:
        return after_ms / 1000.0
    after = parse_retry_after(known, now)
    if after is not None:
        return after
    found = _WORDS.search(text[:HINT_TEXT])
    if found is not None:
        return read_duration(_shorten_units(found[1] or found[2]))
    return _read_resets(known, now)


def parse_retry_after(headers: Mapping[str, str], now: float) -> float | None:
    """Read ``retry-after``: seconds (``2``, ``0.5``), a duration (``2s``) or an HTTP date; ``now`` in Unix seconds.
    None if absent or unreadable."""
    value = headers.get("retry-after", "").strip()
    seconds = _parse_number(value) if value else None
    if seconds is not None or not value:
        return seconds
    if _DURATION.fullmatch(value):
        return read_duration(value)
    try:
        return max(0.0, email.utils.parsedate_to_datetime(value).timestamp() - now)
    except (ValueError, OverflowError):
        return None


def read_duration(text: str) -> float | None:
    """Read a duration such as ``6ms``, ``1m30s`` or ``12.5s`` in seconds; None if it is none."""
    compact = text.replace(" ", "").lower()
    if not _DURATION.fullmatch(compact):
        return None
    return sum(float(number) * _UNITS[unit] for number, unit in _PART.findall(compact))


def _shorten_units(text: str) -> str:
    text = text.lower()
    for long, short in _LONG_UNITS:
        text = re.sub(rf"{long}s?(?![a-z])", short, text)
    return text


def _parse_number(value: str) -> float | None:
    return float(value) if _NUMBER.fullmatch(value) else None


def _read_resets(headers: Mapping[str, str], now: float) -> float | None:
    """Return the longest time until a limit that is spent begins anew; the reset of one that is not spent says
    nothing.
    """
    found = []
    for name, value in headers.items():
        if "ratelimit" not in name or "reset" not in name:
            continue
        left = headers.get(name.replace("reset", "remaining"))
        # A prompt may be larger than the tokens that are left; a request is one.
        spent = left is None or _parse_number(left) in (None, 0.0) or "tokens" in name
        seconds = _compute_until(value, now)
        if spent and seconds is not None:
            found.append(seconds)
    return max(found, default=None)


def _compute_until(value: str, now: float) -> float | None:
    number = _parse_number(value)
    if number is not None:
        at = number / 1000.0 if number >= _EPOCH_MS else number
        return max(0.0, at - now) if at >= _EPOCH else at
    if _DURATION.fullmatch(value):
        return read_duration(value)
    try:
        return max(0.0, datetime.fromisoformat(value.replace("Z", "+00:00")).timestamp() - now)
    except (ValueError, OverflowError):
        return None


class Pace:
    """When a service may be asked again (monotonic seconds).

    Args:
        backoff: the pauses where the server gives no hint, and the spread of those where it does.
        rng: draws them.
    """

    __slots__ = ("_backoff", "_rng", "answered_at", "refusals", "until")

    def __init__(self, backoff: Backoff, rng: Random) -> None:
        self._backoff, self._rng = backoff, rng
        self.until = 0.0
        self.refusals = 0  # in a row, those of one burst counted once
        self.answered_at = float("-inf")

    @property
    def careful(self) -> bool:
        """Whether one call at a time is to find out if the service answers again."""
        return self.refusals > 1

    def compute_wait(self, now: float) -> float:
        """Return the seconds until the pause is over; 0 without one."""
        return max(0.0, self.until - now)

    def record_refusal(self, now: float, hint: float | None, *, anew: bool) -> None:
        """Note a refusal; ``anew``: the call was admitted after the refusal before, so it is not of the same burst."""
        self.refusals += anew
        pause = 0.0
        if hint is not None:
            pause = self._backoff.compute_delay(1, self._rng, hint)
        if anew and self.careful:
            pause = max(pause, self._backoff.compute_pause(self.refusals - 1, self._rng))
        self.until = max(self.until, now + pause)

    def record_answer(self, now: float, *, good: bool, anew: bool) -> None:
        """Note an answer that is no such refusal; ``good``: it was a reply; ``anew``: as in ``record_refusal``."""
        if anew:
            self.refusals = 0
        if good:
            self.answered_at = now
