"""HTTP for model calls: one session per event loop, bounded bodies, proxies and certificates from the usual variables.

Connections are kept for ``KEEP_ALIVE`` seconds, less than the 5 s after which uvicorn (vLLM's server) closes an idle
one, so that a request seldom meets a socket that is being closed; where it does, it is sent once more on a new one.
"""

from __future__ import annotations

import asyncio
import base64
import ipaddress
import os
import re
import ssl
import urllib.request
from collections.abc import Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from weakref import WeakSet

import aiohttp
from yarl import URL

from gavel import __version__
from gavel.models.errors import ConfigError
from gavel.models.service import Service

if TYPE_CHECKING:
    from aiohttp.client_proto import ResponseHandler

KEEP_ALIVE = 4.0
"""Seconds an idle connection is kept; below uvicorn's default of 5."""

MAX_BODY = 8 * 2**20
"""Bytes of a reply's body; the longest replies of today's models are below 1 MiB."""

_KEY_LIKE = re.compile(r"\b(?:sk|nvapi|hf|gsk|xai)[-_][A-Za-z0-9_\-]{8,}|(?<=Bearer )\S{8,}")


class OversizedBody(aiohttp.ClientError):
    """A body longer than ``MAX_BODY``; the connection is dropped."""


@dataclass(frozen=True, slots=True)
class Answered:
    """An HTTP answer, body read whole."""

    status: int
    headers: Mapping[str, str]
    body: bytes


class _Connector(aiohttp.TCPConnector):
    """Notes whether the connection a request got had been used before."""

    def __init__(self, reused: ContextVar[bool], **options: Any) -> None:
        super().__init__(**options)
        self._reused_flag = reused
        self._used: WeakSet[ResponseHandler] = WeakSet()

    async def connect(self, req: Any, traces: Any, timeout: Any) -> Any:
        connection = await super().connect(req, traces, timeout)
        protocol = connection.protocol
        assert protocol is not None
        if protocol in self._used:
            self._reused_flag.set(True)
        else:
            self._used.add(protocol)
            self._reused_flag.set(False)
        return connection


class Transport:
    """Posts JSON to one service; usable from several event loops, one after the other or at once.

    Args:
        name: the service's name, for errors.
        service: credentials are read from its variables now; they never appear in an error.
        urls: what will be posted to; proxies are decided for each once.

    Raises:
        ConfigError: none of the variables for the key is set, or one for a header is not.
    """

    def __init__(self, name: str, service: Service, urls: Sequence[str]) -> None:
        self._headers, self._secrets = _make_headers(name, service)
        self._proxies = {url: _find_proxy(url) for url in urls}
        self._urls = {url: URL(url) for url in urls}
        self._tls = any(url.startswith("https") for url in urls)
        self._connect = service.timeout.connect
        self._sessions: dict[asyncio.AbstractEventLoop, aiohttp.ClientSession] = {}
        self._reused: ContextVar[bool] = ContextVar("reused", default=False)
        self._closed = False

    @property
    def closed(self) -> bool:
        """Whether ``close`` was called."""
        return self._closed

    async def post(self, url: str, body: bytes, timeout: float) -> Answered:
        """Send one request and read the whole answer, within ``timeout`` seconds in all.

        Raises:
            TRANSPORT_ERRORS: of ``gavel.models.calls.retry``; also for a body longer than ``MAX_BODY``.
        """
        session = self._sessions.get(asyncio.get_running_loop()) or await self._open_session()
        limits = aiohttp.ClientTimeout(total=timeout, connect=min(self._connect, timeout))
        try:
            return await self._exchange_request(session, "POST", url, body, limits)
        except (aiohttp.ServerDisconnectedError, aiohttp.ClientOSError) as error:
            if isinstance(error, aiohttp.ClientConnectorError) or self._closed or not self._reused.get():
                raise
        # The server closed an idle connection while the request was on its way: it was not read, sending it again is
        # safe.
        return await self._exchange_request(session, "POST", url, body, limits)

    async def get(self, url: str, timeout: float) -> Answered:
        """Fetch one document, within ``timeout`` seconds; errors as of ``post``."""
        session = self._sessions.get(asyncio.get_running_loop()) or await self._open_session()
        return await self._exchange_request(
            session, "GET", url, None, aiohttp.ClientTimeout(total=timeout, connect=min(self._connect, timeout))
        )

    async def _exchange_request(
        self, session: aiohttp.ClientSession, method: str, url: str, body: bytes | None, limits: aiohttp.ClientTimeout
    ) -> Answered:
        target = self._urls.get(url) or URL(url)
        options = self._proxies.get(url) or {}
        self._reused.set(False)
        async with session.request(
            method, target, data=body, timeout=limits, allow_redirects=False, **options
        ) as response:
            # From here on bytes have come: a break is no longer that of an idle socket.
            self._reused.set(False)
            return Answered(response.status, response.headers, await _read_body(response))

    async def _open_session(self) -> aiohttp.ClientSession:
        if self._closed:
            raise aiohttp.ClientConnectionError("the client is closed")
        loop = asyncio.get_running_loop()
        for stale in [known for known in self._sessions if known.is_closed()]:
            await self._sessions.pop(stale).close()
        context: ssl.SSLContext | bool = _make_tls_context() if self._tls else True
        session = self._sessions.get(loop)
        if session is None:
            session = self._sessions[loop] = aiohttp.ClientSession(
                connector=_Connector(self._reused, limit=0, keepalive_timeout=KEEP_ALIVE, ssl=context),
                cookie_jar=aiohttp.DummyCookieJar(),
                headers=self._headers,
                trust_env=False,
            )
        return session

    async def close(self) -> None:
        """Close every connection; further posts fail."""
        self._closed = True
        while self._sessions:
            _, session = self._sessions.popitem()
            await session.close()

    def redact_secrets(self, text: str) -> str:
        """Return ``text`` without this service's credentials and without anything that looks like a key."""
        for secret in self._secrets:
            text = text.replace(secret, "[secret]")
        return _KEY_LIKE.sub("[secret]", text)


async def _read_body(response: aiohttp.ClientResponse) -> bytes:
    length = response.content_length
    if length is not None and length > MAX_BODY:
        response.close()
        raise OversizedBody(f"the body has {length} bytes; allowed: {MAX_BODY}")
    if length is not None and "Content-Encoding" not in response.headers:
        return await response.read()
    parts, size = [], 0
    async for part in response.content.iter_any():
        size += len(part)
        if size > MAX_BODY:
            response.close()
            raise OversizedBody(f"the body has more than {MAX_BODY} bytes")
        parts.append(part)
    return b"".join(parts)


def read_credentials(name: str, service: Service) -> dict[str, str]:
    """Return the headers of a service's requests, its credentials among them; never to be stored or shown.

    Raises:
        ConfigError: a credential's variable is not set.
    """
    return _make_headers(name, service)[0]


def _make_headers(name: str, service: Service) -> tuple[dict[str, str], tuple[str, ...]]:
    secrets: list[str] = []
    headers = {
        "Content-Type": "application/json",
        "Accept": "application/json",
        "Accept-Encoding": "identity",
        "User-Agent": f"gavel/{__version__}",
        **(service.default_headers or {}),
    }
    if service.organization:
        headers["OpenAI-Organization"] = service.organization
    if service.key_variables:
        secrets.append(_read_secret(f"{name}.api_key_env", service.key_variables))
        headers[service.key_header or "Authorization"] = secrets[-1] if service.key_header else f"Bearer {secrets[-1]}"
    for header, variable in (service.header_env or {}).items():
        secrets.append(_read_secret(f"{name}.header_env.{header}", (variable,)))
        headers[header] = secrets[-1]
    return headers, tuple(secrets)


def list_unset_variables(service: Service) -> list[str]:
    """Return the variables that a service needs for its credentials and does not have; of several for its key the
    first, for one suffices.
    """
    needed = [service.key_variables, *((variable,) for variable in (service.header_env or {}).values())]
    return [variables[0] for variables in needed if variables and _find_secret(variables) is None]


def _find_secret(variables: Sequence[str]) -> str | None:
    return next((found for found in (os.environ.get(variable, "").strip() for variable in variables) if found), None)


def _read_secret(field: str, variables: Sequence[str]) -> str:
    value = _find_secret(variables)
    if value is None:
        names = " or ".join(variables)
        raise ConfigError(
            "the variable that should hold the credential is not set",
            field=field,
            found=names,
            remedy=f"export {variables[0]}=…",
        )
    if not value.isprintable() or not value.isascii():
        raise ConfigError("the credential holds a character that no header can carry", field=field, found="(not shown)")
    return value


def _find_proxy(url: str) -> dict[str, Any]:
    """Return aiohttp's options for the proxy of ``url`` by the usual variables; none for loopback addresses."""
    parts = URL(url)
    host = parts.host or ""
    found = (
        None
        if is_loopback(host) or urllib.request.proxy_bypass(host)
        else urllib.request.getproxies().get(parts.scheme)
    )
    if not found:
        return {}
    proxy = URL(found)
    if proxy.user is None:
        return {"proxy": proxy}
    word = base64.b64encode(f"{proxy.user}:{proxy.password or ''}".encode()).decode()
    # A tunnel is asked for with headers of its own; plain HTTP goes to the proxy itself.
    place = "proxy_headers" if parts.scheme == "https" else "headers"
    return {"proxy": proxy.with_user(None), place: {"Proxy-Authorization": f"Basic {word}"}}


def is_loopback(host: str) -> bool:
    """Tell whether ``host`` is this machine's loopback, by name or address."""
    return host.endswith(".localhost") or is_loopback_address(host)


def is_loopback_address(host: str) -> bool:
    """Tell whether ``host`` is ``localhost`` or a loopback address; a name below ``.localhost``, which a resolver may
    place elsewhere,
    is none: for deciding who may come in."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _make_tls_context() -> ssl.SSLContext:
    bundle = next(
        (
            os.environ[name]
            for name in ("SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE")
            if os.environ.get(name)
        ),
        None,
    )
    return ssl.create_default_context(cafile=bundle)
