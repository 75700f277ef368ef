"""What every request passes: the key, the host, the body within its bounds, a place among what is in flight; and the
end of it all.
"""

from __future__ import annotations

import asyncio
import hmac
import time
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import orjson
from aiohttp import web

from gavel.envs.interfaces.http.records import Problem, Refused
from gavel.models.calls.transport import is_loopback_address
from gavel.models.codec import to_json
from gavel.models.errors import shorten_value

MIB = 2**20
SMALL_BYTES = 64 * 1024
"""A body of this size passes whatever else arrives, so that large ones which never end hold up no ordinary client."""


@dataclass(frozen=True, slots=True)
class HttpOptions:
    """Bounds of the service.

    Args:
        max_body_bytes: of one request.
        max_in_flight: items (tasks of a batch) in work at once; more are answered 429.
        max_batch: items in one request, at most ``max_in_flight``.
        body_timeout: seconds for the body to arrive, and for the answer to be taken.
        retry_after: seconds that a refused client is told to wait.
        api_key: what callers must send; None asks for none.
        loopback_hosts: answer requests made to this machine's own names alone, so that no web page elsewhere can use
            the service.
        max_bodies_bytes: of all requests whose bodies are arriving, together; where they are more, those larger than
            ``SMALL_BYTES`` are answered 503.
    """

    max_body_bytes: int = 8 * MIB
    max_in_flight: int = 512
    max_batch: int = 256
    body_timeout: float = 30.0
    retry_after: int = 1
    api_key: str | None = field(default=None, repr=False)
    loopback_hosts: bool = False
    max_bodies_bytes: int = 64 * MIB


class HttpProblem(Exception):
    """A request that is answered with an error status; ``headers`` go with it."""

    def __init__(self, status: int, problem: Problem, headers: dict[str, str] | None = None) -> None:
        super().__init__(problem.problem)
        self.status, self.problem, self.headers = status, problem, headers or {}

    @property
    def refused(self) -> Refused:
        """The body of the answer."""
        return Refused("error", self.problem)

    def make_response(self) -> web.Response:
        """Return the answer."""
        response = make_json_response(self.refused, self.status, self.headers)
        if "Connection" in self.headers:
            response.force_close()
        return response


def make_json_response(value: object, status: int = 200, headers: dict[str, str] | None = None) -> web.Response:
    """Return an answer with a JSON body."""
    return web.Response(body=to_json(value), status=status, headers=headers, content_type="application/json")


class Gate:
    """Admits requests and counts them; one for a service. All of it runs on the service's event loop."""

    def __init__(self, options: HttpOptions) -> None:
        self.options = options
        self.in_flight = 0
        self.draining = False
        self.refused: Counter[int] = Counter()
        self.started = time.monotonic()
        self._limits: set[asyncio.Timeout] = set()
        self._idle = asyncio.Event()
        self._idle.set()
        self._local: set[str] = set()
        self._arriving = 0
        self._key = None if options.api_key is None else options.api_key.encode()

    def check_host(self, request: web.Request) -> None:
        """Check which name the request was made to.

        Raises:
            HttpProblem: 403.
        """
        # Without the header aiohttp would ask the resolver for this machine's name, which is nothing that the caller
        # said.
        host = request.host if "Host" in request.headers else ""
        if self.options.loopback_hosts and not self._is_local(host):
            problem = Problem(
                "this service answers on a loopback address only",
                "Host",
                _show_header(host) or "none",
                "127.0.0.1, ::1, localhost",
            )
            raise HttpProblem(403, problem)

    def check_key(self, request: web.Request) -> None:
        """Check the caller's key, in constant time.

        Raises:
            HttpProblem: 401.
        """
        if self._key is None:
            return
        scheme, _, sent = request.headers.get("Authorization", "").partition(" ")
        if scheme.lower() != "bearer" or not hmac.compare_digest(
            sent.strip().encode("utf-8", "surrogateescape"), self._key
        ):
            problem = Problem(
                "the key is missing or wrong",
                "Authorization",
                "another key" if sent else "no key",
                "Bearer KEY",
                "send the key that this service was started with",
            )
            raise HttpProblem(401, problem, {"WWW-Authenticate": "Bearer"})

    def _is_local(self, host: str) -> bool:
        if host in self._local:
            return True
        local = is_local_host(host)
        if local and len(self._local) < 64:
            self._local.add(host)
        return local

    async def read_body(self, request: web.Request) -> Any:
        """Return the JSON document in the body.

        Raises:
            HttpProblem: 400, 408, 413 or 415.
        """
        if (
            request.content_type != "application/json"
            or (request.charset or "utf-8").lower().replace("-", "") != "utf8"
        ):
            found = _show_header(request.headers.get("Content-Type", "none"))
            raise HttpProblem(415, Problem("the body must be JSON in UTF-8", "Content-Type", found, "application/json"))
        if "Content-Encoding" in request.headers:
            found = _show_header(request.headers["Content-Encoding"])
            raise HttpProblem(
                415, Problem("a body that is compressed is not read", "Content-Encoding", found, "no such header")
            )
        body = await self._read_bytes(request)
        try:
            return orjson.loads(body)
        except orjson.JSONDecodeError as failed:
            shown = shorten_value(body[:400].decode(errors="replace").strip() or "an empty body")
            raise HttpProblem(400, Problem(f"the body is not JSON: {failed}", "", shown, "one JSON document")) from None

    async def _read_bytes(self, request: web.Request) -> bytes:
        most = self.options.max_body_bytes
        if (request.content_length or 0) > most:
            raise _make_too_large(str(request.content_length), most)
        try:
            async with asyncio.timeout(self.options.body_timeout) as limit:
                return await self._collect_bytes(request, most)
        except TimeoutError:
            if not limit.expired():
                raise
            problem = Problem("the body did not arrive in time", allowed=f"{self.options.body_timeout:g} seconds")
            raise HttpProblem(408, problem, {"Connection": "close"}) from None
        except web.RequestPayloadError as failed:
            raise HttpProblem(
                400, Problem(f"the body is broken: {shorten_value(str(failed))}"), {"Connection": "close"}
            ) from None

    async def _collect_bytes(self, request: web.Request, most: int) -> bytes:
        """Return the body; its bytes count while it arrives, not before, so that a caller who only announces holds no
        room.
        """
        body = bytearray()
        try:
            async for chunk in request.content.iter_any():
                body += chunk
                self._arriving += len(chunk)
                if len(body) > most:
                    raise _make_too_large(f"more than {most}", most)
                if self._arriving > self.options.max_bodies_bytes and len(body) > SMALL_BYTES:
                    problem = Problem(
                        "too many bodies are arriving at once",
                        "",
                        f"more than {self.options.max_bodies_bytes} bytes",
                        f"{self.options.max_bodies_bytes} bytes at once",
                        "send it again later",
                    )
                    raise HttpProblem(
                        503, problem, {"Retry-After": str(self.options.retry_after), "Connection": "close"}
                    )
            return bytes(body)
        finally:
            self._arriving -= len(body)

    @asynccontextmanager
    async def admit_items(self, items: int) -> AsyncIterator[None]:
        """Hold a place for ``items`` while the block runs; what still runs when the service ends is answered 503.

        Raises:
            HttpProblem: 422, 429 or 503.
        """
        self._check_room(items)
        self.in_flight += items
        self._idle.clear()
        try:
            async with asyncio.timeout(None) as limit:
                self._limits.add(limit)
                try:
                    yield
                finally:
                    self._limits.discard(limit)
        except TimeoutError:
            if not limit.expired():
                raise
            raise self._make_closing_problem() from None
        finally:
            self.in_flight -= items
            if self.in_flight == 0:
                self._idle.set()

    def _check_room(self, items: int) -> None:
        if self.draining:
            raise self._make_closing_problem()
        if items > self.options.max_batch:
            raise HttpProblem(
                422, Problem("this batch is too long", "", f"{items} items", f"at most {self.options.max_batch}")
            )
        if self.in_flight + items > self.options.max_in_flight:
            problem = Problem(
                "too much is in flight",
                "",
                f"{self.in_flight} items in flight",
                f"{self.options.max_in_flight} at once",
                "send it again later, or fewer at once",
            )
            raise HttpProblem(429, problem, {"Retry-After": str(self.options.retry_after)})

    def _make_closing_problem(self) -> HttpProblem:
        headers = {"Retry-After": str(self.options.retry_after), "Connection": "close"}
        return HttpProblem(503, Problem("the service is ending", fix="send it again to the next one"), headers)

    async def drain_requests(self, seconds: float) -> int:
        """Let in no further work, wait for what is in flight, end what takes longer than ``seconds``; return how many
        were ended.
        """
        self.draining = True
        try:
            async with asyncio.timeout(seconds):
                await self._idle.wait()
        except TimeoutError:
            pass
        return await self.cut_requests()

    async def cut_requests(self) -> int:
        """End everything in flight now; return how many requests that were."""
        self.draining = True
        late = tuple(self._limits)
        for limit in late:
            limit.reschedule(asyncio.get_running_loop().time())
        if late:
            await self._idle.wait()
        return len(late)


def _show_header(header: str) -> str:
    """Return a header as it can stand in an answer: it may hold any bytes."""
    return shorten_value(header.encode("utf-8", "surrogateescape").decode("utf-8", "replace"))


def _make_too_large(found: str, most: int) -> HttpProblem:
    problem = Problem(
        "the body is too large", "Content-Length", f"{found} bytes", f"at most {most} bytes", "send fewer items at once"
    )
    return HttpProblem(413, problem, {"Connection": "close"})


def is_local_host(header: str) -> bool:
    """Tell whether a ``Host`` header, its port included, names this machine alone: no web page elsewhere can send such
    a one.
    """
    name = header.strip("[]") if header.endswith("]") else header.rsplit(":", 1)[0].strip("[]")
    return is_loopback_address(name.lower())
