"""Which failures are tried again, and how long to wait: pure, no I/O.

A failure is classified first (``classify_*``); permanent ones are never tried again. The wait before try n + 1 has full jitter,
``uniform(0, min(cap, base * 2**n))``; a server's ``Retry-After`` comes on top of it. The caller bounds both by the call's deadline.
"""

from __future__ import annotations

import asyncio
import email.utils
import os
import re
import ssl
from collections.abc import Mapping
from dataclasses import dataclass, replace
from random import Random

import aiohttp

from gavel.models.failures import FailureKind
from gavel.models.types import CallRole

_K = FailureKind


@dataclass(frozen=True, slots=True)
class Refusal:
    """One failed try: ``kind`` and ``reason`` as in ``ModelFailure``; ``retryable`` within the call; ``trips`` says that no call to
    this service can succeed until a person acts; ``overloaded`` that the server asks for less; ``broken`` that it may be dead;
    ``raw`` is the reply's text."""

    kind: FailureKind
    reason: str
    retryable: bool
    status: int | None = None
    trips: bool = False
    overloaded: bool = False
    retry_after: float | None = None
    raw: str | None = None

    @property
    def broken(self) -> bool:
        """Whether the try says that the server does not work: no answer, or a status from 500 on."""
        return self.status is None or self.status >= 500


@dataclass(frozen=True)
class _Rule:
    kind: FailureKind | None  # None: judge_failed for a judge, provider_unavailable for others
    retryable: bool
    trips: bool = False
    overloaded: bool = False


_AGAIN = _Rule(_K.PROVIDER_UNAVAILABLE, retryable=True)
_BUSY = _Rule(_K.PROVIDER_UNAVAILABLE, retryable=True, overloaded=True)
_REFUSED = _Rule(None, retryable=False)
_ACCOUNT = _Rule(_K.PROVIDER_QUOTA_EXHAUSTED, retryable=False, trips=True)
_UNKNOWN_MODEL = _Rule(_K.PROVIDER_UNAVAILABLE, retryable=False, trips=True)
_OVERFLOW = _Rule(_K.CONTEXT_OVERFLOW, retryable=False)

STATUSES: dict[int, _Rule] = {
    401: _ACCOUNT,
    402: _ACCOUNT,
    403: _ACCOUNT,
    404: _UNKNOWN_MODEL,
    408: _Rule(_K.TRANSPORT_TIMEOUT, retryable=True, overloaded=True),
    409: _AGAIN,
    425: _AGAIN,
    429: _BUSY,
    503: _BUSY,
    529: _BUSY,
}
"""By HTTP status; any other from 500 on is tried again, any other below is refused for good."""

_CONTEXT = re.compile(
    r"context_length_exceeded|maximum context length|maximum model length|exceeds? (?:the )?context|prompt is too long"
    r"|input is too long|too many (?:input )?tokens",
    re.IGNORECASE,
)
_SPENT = re.compile(
    r"insufficient_quota|billing_hard_limit|account is not active|account_deactivated|credit balance is too low"
    r"|invalid_api_key|invalid x-api-key|authentication_error",
    re.IGNORECASE,
)
MESSAGES: tuple[tuple[re.Pattern[str], frozenset[int], _Rule], ...] = (
    (_SPENT, frozenset((200, 400, 401, 402, 403, 429)), _ACCOUNT),
    (_CONTEXT, frozenset((200, 400, 413, 422)), _OVERFLOW),
)
"""What a body says beats its status, under the statuses given. The phrases of a spent account are those VERA-MH never retries."""

_EXCEPTIONS: tuple[tuple[type[BaseException], _Rule], ...] = (
    (aiohttp.ClientConnectorCertificateError, _Rule(_K.TRANSPORT_UNREACHABLE, retryable=False, trips=True)),
    (ssl.SSLCertVerificationError, _Rule(_K.TRANSPORT_UNREACHABLE, retryable=False, trips=True)),
    (aiohttp.ConnectionTimeoutError, _Rule(_K.TRANSPORT_UNREACHABLE, retryable=True)),
    (aiohttp.ServerTimeoutError, _Rule(_K.TRANSPORT_TIMEOUT, retryable=True, overloaded=True)),
    (asyncio.TimeoutError, _Rule(_K.TRANSPORT_TIMEOUT, retryable=True, overloaded=True)),
    (aiohttp.ClientConnectorError, _Rule(_K.TRANSPORT_UNREACHABLE, retryable=True)),
    (aiohttp.ClientProxyConnectionError, _Rule(_K.TRANSPORT_UNREACHABLE, retryable=True)),
    (aiohttp.ClientError, _Rule(_K.TRANSPORT_PEER_DROP, retryable=True)),
    (OSError, _Rule(_K.TRANSPORT_PEER_DROP, retryable=True)),
)
"""By exception, the first that fits."""

TRANSPORT_ERRORS: tuple[type[Exception], ...] = (aiohttp.ClientError, asyncio.TimeoutError, OSError)
"""What a broken exchange may raise; anything else is a fault of ours."""


def classify_exception(error: BaseException) -> Refusal:
    """Classify one of ``TRANSPORT_ERRORS``."""
    rule = next(rule for kind, rule in _EXCEPTIONS if isinstance(error, kind))
    assert rule.kind is not None
    text = _worded(error) or type(error).__name__
    return Refusal(rule.kind, f"{type(error).__name__}: {text}"[:300], rule.retryable, trips=rule.trips, overloaded=rule.overloaded)


_TLS = re.compile(r" ssl:(?:<[^>]*>|\S+)")
_NOT_TAKEN = re.compile(r"(?:\[Errno (\d+)\] )?Connect call failed")


def _worded(error: BaseException) -> str:
    """Say what was wrong; of a connection that was not taken, where and in the operating system's words if it gave a number."""
    if not isinstance(error, aiohttp.ClientConnectorError) or isinstance(error, aiohttp.ClientSSLError):
        return str(error)
    found = _NOT_TAKEN.search(str(error.os_error))
    number = (found and found[1]) or error.os_error.errno
    if found is None or not number:
        return _TLS.sub("", str(error))
    return f"Cannot connect to {error.host}:{error.port}: {os.strerror(int(number))}"


def classify_status(status: int, message: str, role: CallRole) -> Refusal:
    """Classify an HTTP status with the body's message (cut, and free of secrets)."""
    rule = next((rule for words, statuses, rule in MESSAGES if status in statuses and words.search(message)), None)
    rule = rule or STATUSES.get(status) or (_AGAIN if status >= 500 else _REFUSED)
    return _refuse(rule, role, f"HTTP {status}: {message or 'no message'}", status)


def classify_error_body(code: int | None, message: str, role: CallRole) -> Refusal:
    """Classify an error that came under status 200; ``code`` is the status it names, if any."""
    if code is not None and 400 <= code < 600:
        return replace(classify_status(code, message, role), status=200)
    rule = next((rule for words, _, rule in MESSAGES if words.search(message)), _AGAIN)
    return _refuse(rule, role, f"an error under status 200: {message or 'no message'}", 200)


def _refuse(rule: _Rule, role: CallRole, reason: str, status: int) -> Refusal:
    own = _K.JUDGE_FAILED if role == "judge" else _K.PROVIDER_UNAVAILABLE
    return Refusal(rule.kind or own, reason, rule.retryable, status, rule.trips, rule.overloaded)


def parse_retry_after(headers: Mapping[str, str], now: float) -> float | None:
    """Read ``Retry-After``: seconds (``2``, ``0.5``) or an HTTP date; ``now`` in Unix seconds. None if absent or unreadable."""
    value = headers.get("Retry-After", "").strip()
    if not value:
        return None
    if re.fullmatch(r"\d{1,9}(\.\d+)?", value):
        return float(value)
    try:
        return max(0.0, email.utils.parsedate_to_datetime(value).timestamp() - now)
    except ValueError:
        return None


@dataclass(frozen=True)
class Backoff:
    """Full jitter; seconds. The defaults are VERA-MH's."""

    base: float = 0.75
    cap: float = 8.0

    def delay(self, failures: int, rng: Random, retry_after: float | None = None) -> float:
        """Return the wait after the ``failures``-th failed try (from 1); never less than ``retry_after``."""
        ceiling = min(self.cap, self.base * 2 ** min(failures - 1, 30))
        if retry_after is None:
            return rng.uniform(0.0, ceiling)
        return retry_after + rng.uniform(0.0, min(self.base, ceiling))  # spread the herd that was told the same second
