"""A client of the service: tasks and replies in, typed answers out."""

from __future__ import annotations

import asyncio
import os
import random
from collections.abc import AsyncGenerator, Iterable, Mapping, Sequence
from typing import Any, TypeVar, cast

import aiohttp
import orjson

from gavel.envs.interfaces.http.records import (
    GradeAnswer,
    Graded,
    Health,
    Invalid,
    Observed,
    OpenAnswer,
    Opened,
    Problem,
    Refused,
    StepAnswer,
    Ungraded,
)
from gavel.models.closing import AsyncClosing
from gavel.models.codec import decode, find_non_finite, to_json
from gavel.models.errors import GavelError, RecordError, shorten_value
from gavel.models.types import Message, Reply

Said = str | Reply | Sequence[Message]
"""What was said: the text of one reply, one reply, or every message, the task's own first."""

T = TypeVar("T")

_ENDS: Mapping[str, type[Any]] = {"graded": Graded, "ungraded": Ungraded, "invalid": Invalid}
_OPEN: Mapping[str, type[Any]] = {"opened": Opened, "ungraded": Ungraded, "invalid": Invalid}
_STEP: Mapping[str, type[Any]] = {"observed": Observed, **_ENDS}
_MANY: Mapping[str, type[Any]] = {**_ENDS, "error": Refused}
"""What each call may be answered with, by ``status``."""
_BUSY = frozenset((429, 503))
_TOO_LARGE = frozenset((413, 422))
"""A batch of too many bytes, or of too many items: what is wrong with one item is answered in its own place."""
_BROKEN = (aiohttp.ClientConnectionError, aiohttp.ClientPayloadError, TimeoutError)
_LONGEST_WAIT = 30.0
MOST_AT_ONCE = 256
"""Items in one request: what the service takes unless it was told otherwise."""


class ServiceRefused(GavelError):
    """The service answered with an error, or could not be reached; ``status`` is 0 then."""

    def __init__(self, status: int, problem: Problem) -> None:
        super().__init__(status, problem)
        self.status, self.problem = status, problem

    def __str__(self) -> str:
        said = self.problem
        rows = (("found", said.found), ("allowed", said.allowed), ("fix", said.fix))
        head = f"{said.field}: {said.problem}" if said.field else said.problem
        return "\n".join(
            [f"{self.status or 'no answer'}: {head}", *(f"  {name + ':':<9}{text}" for name, text in rows if text)]
        )


class GavelClient(AsyncClosing):
    """Calls one environment of a service. Safe to share between the tasks of an event loop; ``SyncGavelClient`` is for
    other callers.

    Use it with ``async with``, or call ``close`` at the end. Connections are opened at the first call and used again by
    later ones; in another event loop, or in a child forked from its process, it connects anew.

    Every call may be sent again, for a grade depends on nothing but the task and what was said: where the service is
    busy or ending (429, 503), or the connection breaks, it is, after the time the service names or with growing waits.

    Args:
        url: where the service is, for example ``http://127.0.0.1:9400``.
        env: the name it serves the environment as.
        api_key: the key it asks for, if it does.
        timeout: seconds for one answer.
        attempts: tries of one call, at least 1.
        connections: to the service at once.
    """

    def __init__(
        self,
        url: str,
        env: str,
        *,
        api_key: str | None = None,
        timeout: float = 900.0,
        attempts: int = 5,
        connections: int = 64,
    ) -> None:
        if attempts < 1:
            raise ValueError(f"attempts is {attempts}; at least 1")
        self._url, self._env, self._attempts, self._connections = url.rstrip("/"), env, attempts, connections
        self._headers = {
            "Content-Type": "application/json",
            **({"Authorization": f"Bearer {api_key.strip()}"} if api_key else {}),
        }
        self._timeout = aiohttp.ClientTimeout(total=timeout)
        self._session: aiohttp.ClientSession | None = None
        self._home: tuple[int, asyncio.AbstractEventLoop] | None = None
        self._ending: AsyncGenerator[None, None] | None = None
        # Kept: a forked child that collected its parent's would disturb the parent's loop.
        self._elsewhere: list[object] = []

    async def close(self) -> None:
        """Close the connections; a later call opens new ones."""
        ending, self._ending, self._session = self._ending, None, None
        if ending is not None:
            await ending.aclose()

    async def open(self, task: Mapping[str, Any]) -> OpenAnswer:
        """Begin an episode; only environments that speak first need it.

        Raises:
            ServiceRefused: the request was not done.
        """
        return cast("OpenAnswer", _read_answer(await self._post_value("open", {"task": task}), _OPEN))

    async def step(self, task: Mapping[str, Any], said: Said) -> StepAnswer:
        """Return what follows the newest reply: ``Observed``, or the end.

        Raises:
            ServiceRefused: the request was not done.
        """
        return cast("StepAnswer", _read_answer(await self._post_value("step", _make_item(task, said)), _STEP))

    async def grade(self, task: Mapping[str, Any], said: Said) -> GradeAnswer:
        """Grade a reply, or a conversation that is over.

        Returns:
            ``Graded`` with its reward; ``Ungraded`` where a judge or the service failed; ``Invalid`` where the
            task cannot be used.

        Raises:
            ServiceRefused: the request was not done.
        """
        return cast("GradeAnswer", _read_answer(await self._post_value("grade", _make_item(task, said)), _ENDS))

    async def grade_many(self, items: Iterable[tuple[Mapping[str, Any], Said]]) -> list[GradeAnswer | Refused]:
        """Grade several, in requests of at most ``MOST_AT_ONCE``, fewer where the service takes fewer; the answers are
        in the order of ``items``, ``Refused`` where one could not be read or is larger than the service takes.

        Raises:
            ServiceRefused: a whole request was not done.
        """
        sent = [_make_item(task, said) for task, said in items]
        parts = [sent[start : start + MOST_AT_ONCE] for start in range(0, max(len(sent), 1), MOST_AT_ONCE)]
        return [answer for part in parts for answer in await self._grade_part(part)]

    async def _grade_part(self, sent: list[Any]) -> list[GradeAnswer | Refused]:
        try:
            found = await self._post_value("grade", sent)
        except ServiceRefused as refused:
            if refused.status not in _TOO_LARGE or not sent:
                raise
            if len(sent) == 1:
                return [Refused("error", refused.problem)]
            half = len(sent) // 2
            return [*await self._grade_part(sent[:half]), *await self._grade_part(sent[half:])]
        if not isinstance(found, list) or len(found) != len(sent):
            raise _make_foreign(200, shorten_value(found))
        return [cast("GradeAnswer | Refused", _read_answer(one, _MANY)) for one in found]

    async def health(self) -> Health:
        """Return how the service fares; also while it is ending.

        Raises:
            ServiceRefused: it could not be reached.
        """
        status, body, _ = await self._send_once("GET", "/healthz", None)
        if status not in (200, 503):
            raise _read_refusal(status, body)
        try:
            return decode(Health, body)
        except RecordError:
            raise _make_foreign(status, _show_body(body)) from None

    async def _post_value(self, verb: str, value: object) -> Any:
        body = _encode_body(value)
        for attempt in range(1, self._attempts + 1):
            try:
                status, answer, wait = await self._send_once("POST", f"/v1/{self._env}/{verb}", body)
            except _BROKEN as failed:
                if attempt == self._attempts:
                    raise ServiceRefused(
                        0, Problem(f"{type(failed).__name__} {failed}".rstrip(), "", self._url)
                    ) from failed
                wait = 0.0
            else:
                if status == 200:
                    return _parse_body(answer)
                if status not in _BUSY or attempt == self._attempts:
                    raise _read_refusal(status, answer)
            await asyncio.sleep(min(wait + random.uniform(0, 0.1 * 2**attempt), _LONGEST_WAIT))
        raise AssertionError("unreachable")

    async def _send_once(self, method: str, path: str, body: bytes | None) -> tuple[int, bytes, float]:
        try:
            async with (await self._open_session()).request(
                method, self._url + path, data=body, allow_redirects=False
            ) as response:
                wait = response.headers.get("Retry-After", "")
                return response.status, await response.read(), float(wait) if wait.isdecimal() else 0.0
        except (aiohttp.InvalidURL, aiohttp.NonHttpUrlClientError) as failed:
            raise ServiceRefused(
                0, Problem("this is no address", "url", shorten_value(self._url), "http://HOST:PORT")
            ) from failed
        except aiohttp.ClientResponseError as failed:  # what came is no HTTP
            raise _make_foreign(0, shorten_value(failed.message)) from failed

    async def _open_session(self) -> aiohttp.ClientSession:
        """Return the session of this process and event loop; connections of another cannot be used here."""
        home = (os.getpid(), asyncio.get_running_loop())
        if self._session is None or self._home != home:
            if self._home is not None and self._home[0] != home[0]:
                self._elsewhere.append((self._session, self._ending, self._home))
            self._session, self._home = self._make_session(), home
            self._ending = _close_with_loop(self._session)
            await anext(self._ending)
        return self._session

    def _make_session(self) -> aiohttp.ClientSession:
        return aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=self._connections),
            timeout=self._timeout,
            headers=self._headers,
            cookie_jar=aiohttp.DummyCookieJar(),
        )


async def _close_with_loop(session: aiohttp.ClientSession) -> AsyncGenerator[None, None]:
    """Close a session when this is closed, which an event loop does to what still waits as it ends."""
    try:
        yield
    finally:
        await session.close()


def assistant(text: str, finish_reason: str = "stop", model: str = "policy") -> Message:
    """Return a policy's message for a conversation: ``finish_reason`` is ``length`` where the reply was cut at a limit
    of tokens.
    """
    return Message("assistant", text, Reply(text, finish_reason, model))


def _make_item(task: Mapping[str, Any], said: Said) -> dict[str, Any]:
    return {"task": task, ("reply" if isinstance(said, str | Reply) else "messages"): said}


def _encode_body(value: object) -> bytes:
    try:
        body = to_json(value)
    except orjson.JSONEncodeError as failed:
        raise ServiceRefused(0, Problem(f"this cannot be sent as JSON: {failed}")) from failed
    if b"null" in body and (bad := find_non_finite(value)) is not None:
        raise ServiceRefused(
            0, Problem("this cannot be sent as JSON: the number is not finite", bad.path, str(bad.value))
        )
    return body


def _read_answer(value: Any, wanted: Mapping[str, type[Any]]) -> Any:
    cls = wanted.get(str(value.get("status"))) if isinstance(value, dict) else None
    if cls is None:
        raise _make_foreign(200, shorten_value(value), f"a status among {', '.join(wanted)}")
    try:
        return decode(cls, value)
    except RecordError as failed:
        raise _make_foreign(200, f"{failed.field}: {failed.problem}") from failed


def _parse_body(body: bytes) -> Any:
    try:
        return orjson.loads(body)
    except orjson.JSONDecodeError:
        raise _make_foreign(200, _show_body(body)) from None


def _read_refusal(status: int, body: bytes) -> ServiceRefused:
    try:
        return ServiceRefused(status, decode(Refused, body).error)
    except RecordError:
        return _make_foreign(status, _show_body(body))


def _make_foreign(status: int, found: str, allowed: str = "") -> ServiceRefused:
    return ServiceRefused(
        status,
        Problem("the answer is none of this service", "", found, allowed, "is this its address, and its version?"),
    )


def _show_body(body: bytes) -> str:
    return shorten_value(body[:200].decode(errors="replace"))
