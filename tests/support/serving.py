"""A service of environments in this process, on a real socket, over whatever models a test names; and requests to it as
raw bytes.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import aiohttp
import orjson

from gavel.envs.interfaces.http.app import GATE, build_app
from gavel.envs.interfaces.http.gate import Gate, HttpOptions
from gavel.envs.interfaces.http.running import IDLE, Running
from gavel.envs.interfaces.served import ServedEnvironment
from gavel.launch.compose.compose import compose_config
from gavel.launch.serving.parts import list_services, make_offers
from gavel.models.pool import open_services

NOWHERE = ("judge.base_url=http://127.0.0.1:1/v1", "judge.model=judge-model")
"""A judge that is never reached."""


def judged_at(url: str) -> tuple[str, ...]:
    """The words that name a judge."""
    return (f"judge.base_url={url}", "judge.model=judge-model", "judge.attempts=1")


@dataclass(frozen=True)
class Service:
    """What is served, where, and its gate."""

    running: Running
    served: Mapping[str, ServedEnvironment]
    gate: Gate

    @property
    def url(self) -> str:
        return self.running.url

    @property
    def port(self) -> int:
        return self.running.port

    async def post(self, path: str, value: Any, **headers: str) -> tuple[int, Any]:
        """Post a JSON document; return status and answer."""
        status, _, answer = await self.send(
            "POST", path, orjson.dumps(value), **{"Content-Type": "application/json", **headers}
        )
        return status, answer

    async def send(
        self, method: str, path: str, body: bytes | None = None, **headers: str
    ) -> tuple[int, Mapping[str, str], Any]:
        async with (
            aiohttp.ClientSession() as session,
            session.request(
                method, self.url + path, data=body, headers=headers, skip_auto_headers=["Content-Type"]
            ) as response,
        ):
            return response.status, response.headers, orjson.loads(await response.read())

    async def raw(self, data: bytes, timeout: float = 10.0) -> bytes:
        """Send bytes on a connection of their own; return all that comes until the service closes it."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        try:
            writer.write(data)
            await writer.drain()
            return await asyncio.wait_for(reader.read(), timeout)
        finally:
            writer.close()

    async def idle(self, timeout: float = 10.0) -> None:
        """Wait until nothing is in flight."""
        async with asyncio.timeout(timeout):
            while self.gate.in_flight:  # noqa: ASYNC110 - the count is set in many places
                await asyncio.sleep(0.005)


@contextlib.asynccontextmanager
async def serving(
    *words: str, folder: Path, options: HttpOptions | None = None, idle: float = IDLE, **changes: Any
) -> AsyncIterator[Service]:
    """Serve what ``gavel serve`` with these words would; ``changes`` are of each environment (``deadline``)."""
    offers = make_offers(compose_config("serve", words))
    async with open_services(
        list_services(offers), log_dir=folder, progress=lambda _: None, replies=folder / "replies.sqlite"
    ) as pool:
        for offer in offers:
            offer.set_models(pool.models)
        served = {offer.name: replace(offer.make_served(), **changes) for offer in offers}
        app = build_app(served, options or HttpOptions())
        running = await Running.start(app, "127.0.0.1", 0, idle=idle)
        try:
            yield Service(running, served, app[GATE])
        finally:
            await running.close()


def request(path: str, body: bytes, *, length: int | None = None, **headers: str) -> bytes:
    """A whole request as bytes; ``length`` is what it promises, None the truth."""
    lines = {
        "Host": "127.0.0.1",
        "Content-Type": "application/json",
        "Content-Length": str(len(body) if length is None else length),
    }
    head = "".join(f"{name.replace('_', '-')}: {value}\r\n" for name, value in {**lines, **headers}.items())
    return f"POST {path} HTTP/1.1\r\n{head}\r\n".encode() + body
