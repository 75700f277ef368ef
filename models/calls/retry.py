"""Which failures are tried again, and how long to wait: pure, no I/O.

A failure is classified first (``classify_*``); permanent ones are never tried again. The wait before try n + 1 has full
jitter, ``uniform(0, min(cap, base * 2**n))``. A refusal for too many requests is no failed try: it paces the service
(``pace``).
"""

from __future__ import annotations

import asyncio
import os
import re
import ssl
from dataclasses import dataclass, replace
from random import Random

import aiohttp

from gavel.models.calls.error_words import Meaning, read_meaning
from gavel.models.failures import FailureKind
from gavel.models.types import CallRole

_K = FailureKind


@dataclass(frozen=True, slots=True)
class Refusal:
    """One failed try: ``kind`` and ``reason`` as in ``ModelFailure``; ``retryable`` within the call; ``trips`` says
    that no call to this service can succeed until a person acts; ``overloaded`` that the server asks for less;
    ``paced`` that it is well and only wants to be asked later, ``retry_after`` seconds from now if it says so;
    ``broken`` that it may be dead; ``raw`` is the reply's text."""

    kind: FailureKind
    reason: str
    retryable: bool
    status: int | None = None
    trips: bool = False
    overloaded: bool = False
    retry_after: float | None = None
    raw: str | None = None
    paced: bool = False

    @property
    def broken(self) -> bool:
        """Whether the try says that the server does not work: no answer, or a status from 500 on."""
        return not self.paced and (self.status is None or self.status >= 500)

    def add_hint(self, seconds: float | None) -> Refusal:
        """Return this refusal with the wait that the server asks for; one that is busy and says until when is paced."""
        busy = self.overloaded and self.kind is _K.PROVIDER_UNAVAILABLE
        return replace(self, retry_after=seconds, paced=self.paced or (busy and seconds is not None))


@dataclass(frozen=True)
class _Rule:
    kind: FailureKind | None  # None: judge_failed for a judge, provider_unavailable for others
    retryable: bool
    trips: bool = False
    overloaded: bool = False
    paced: bool = False


_AGAIN = _Rule(_K.PROVIDER_UNAVAILABLE, retryable=True)
_BUSY = _Rule(_K.PROVIDER_UNAVAILABLE, retryable=True, overloaded=True)
_PACED = _Rule(_K.PROVIDER_UNAVAILABLE, retryable=True, overloaded=True, paced=True)
_REFUSED = _Rule(None, retryable=False)
_ACCOUNT = _Rule(_K.PROVIDER_QUOTA_EXHAUSTED, retryable=False, trips=True)
_UNKNOWN_MODEL = _Rule(_K.PROVIDER_UNAVAILABLE, retryable=False, trips=True)

STATUSES: dict[int, _Rule] = {
    401: _ACCOUNT,
    402: _ACCOUNT,
    403: _ACCOUNT,
    404: _UNKNOWN_MODEL,
    408: _Rule(_K.TRANSPORT_TIMEOUT, retryable=True, overloaded=True),
    409: _AGAIN,
    425: _AGAIN,
    429: _PACED,
    503: _BUSY,
    529: _BUSY,
}
"""By HTTP status; any other from 500 on is tried again, any other below is refused for good."""

_MEANINGS: dict[Meaning, _Rule] = {
    "account": _ACCOUNT,
    "paced": _PACED,
    "overflow": _Rule(_K.CONTEXT_OVERFLOW, retryable=False),
    "filtered": _Rule(_K.CONTENT_FILTERED, retryable=False),
    "unknown_model": _UNKNOWN_MODEL,
    "unfit": _REFUSED,
}
"""What a body says beats its status."""

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
    text = _describe_error(error) or type(error).__name__
    return Refusal(
        rule.kind, f"{type(error).__name__}: {text}"[:300], rule.retryable, trips=rule.trips, overloaded=rule.overloaded
    )


_TLS = re.compile(r" ssl:(?:<[^>]*>|\S+)")
_NOT_TAKEN = re.compile(r"(?:\[Errno (\d+)\] )?Connect call failed")


def _describe_error(error: BaseException) -> str:
    """Say what was wrong; of a connection that was not taken, where and in the operating system's words if it gave a
    number.
    """
    if not isinstance(error, aiohttp.ClientConnectorError) or isinstance(error, aiohttp.ClientSSLError):
        return str(error)
    found = _NOT_TAKEN.search(str(error.os_error))
    number = (found and found[1]) or error.os_error.errno
    if found is None or not number:
        return _TLS.sub("", str(error))
    return f"Cannot connect to {error.host}:{error.port}: {os.strerror(int(number))}"


def classify_status(status: int, message: str, role: CallRole, host: str = "") -> Refusal:
    """Classify an HTTP status with the body's message (cut, and free of secrets) and the name of the host it came
    from.
    """
    meaning = read_meaning(status, message, host)
    rule = _MEANINGS[meaning] if meaning else STATUSES.get(status) or (_AGAIN if status >= 500 else _REFUSED)
    return _make_refusal(rule, role, f"HTTP {status}: {message or 'no message'}", status)


def classify_error_body(code: int | None, message: str, role: CallRole, host: str = "") -> Refusal:
    """Classify an error that came under status 200; ``code`` is the status it names, if any."""
    if code is not None and 400 <= code < 600:
        return replace(classify_status(code, message, role, host), status=200)
    meaning = read_meaning(200, message, host)
    return _make_refusal(
        _MEANINGS[meaning] if meaning else _AGAIN, role, f"an error under status 200: {message or 'no message'}", 200
    )


def _make_refusal(rule: _Rule, role: CallRole, reason: str, status: int) -> Refusal:
    own = _K.JUDGE_FAILED if role == "judge" else _K.PROVIDER_UNAVAILABLE
    return Refusal(rule.kind or own, reason, rule.retryable, status, rule.trips, rule.overloaded, paced=rule.paced)


@dataclass(frozen=True)
class Backoff:
    """Full jitter; seconds. The defaults are VERA-MH's."""

    base: float = 0.75
    cap: float = 8.0

    def compute_delay(self, failures: int, rng: Random, retry_after: float | None = None) -> float:
        """Return the wait after the ``failures``-th failed try (from 1); never less than ``retry_after``."""
        ceiling = min(self.cap, self.base * 2 ** min(failures - 1, 30))
        if retry_after is None:
            return rng.uniform(0.0, ceiling)
        return retry_after + rng.uniform(0.0, min(self.base, ceiling))  # spread the herd that was told the same second

    def compute_pause(self, refusals: int, rng: Random) -> float:
        """Return how long a whole service rests after the ``refusals``-th refusal in a row (from 1) that gave no hint:
        from half the ceiling on, for there is no herd."""
        ceiling = min(self.cap, self.base * 2 ** min(refusals - 1, 30))
        return rng.uniform(ceiling / 2, ceiling)
