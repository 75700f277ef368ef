"""The process of the agent, as NeMo Gym starts it: its config is read, rows are taken over HTTP, a death is mended.

NeMo Gym's clients try a server that is gone again and again, and nobody in NeMo-RL looks whether one has died: so the
process that Gym starts watches the one that serves, and starts it anew. Its ledger says what was graded before.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import aiohttp
import orjson
from aiohttp import web

from gavel.envs.interfaces.nemo_gym.started import end_with_parent, read_address, read_block, read_mapping, read_started
from gavel.envs.interfaces.nemo_rl.gym_agent import GymAgent, read_row
from gavel.models.errors import ConfigError, GavelError, shorten_value
from gavel.models.failures import FailureKind, ModelFailure

SERVE = "--serve"
GROUP, AGENT = "responses_api_agents", "gavel_agent"
"""Where the agent's ``app.py`` lies below the search directory."""
ATTEMPTS = 3
"""Requests of one reply; each waits ``DRAW_SECONDS`` at most."""
DRAW_SECONDS = 3600.0
_PAUSE = 1.0
_MAX_ROW_BYTES = 1 << 28
_EARLY_SECONDS, _EARLY_DEATHS, _LONGEST_PAUSE = 20.0, 3, 60.0
"""Deaths so soon after a start, one after the other, with which one that never lived longer is given up; and the
longest pause before one that did is started again.
"""


class ModelServer:
    """A model server of NeMo Gym's, over HTTP."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._session: aiohttp.ClientSession | None = None

    async def draw_reply(self, body: Mapping[str, Any], cookies: dict[str, str]) -> dict[str, Any]:
        """Return the Responses object of a request, tried again where the server cannot serve.

        Raises:
            ModelFailure: it gives none.
        """
        for attempt in range(1, ATTEMPTS + 1):
            try:
                return await self._post(body, cookies)
            except ModelFailure as failed:
                if attempt == ATTEMPTS or failed.kind is FailureKind.CONTEXT_OVERFLOW:
                    raise
                await asyncio.sleep(_PAUSE * 2 ** (attempt - 1))
        raise AssertionError("a last attempt returns or raises")

    async def close(self) -> None:
        """Close its connections."""
        if self._session is not None:
            await self._session.close()

    async def _post(self, body: Mapping[str, Any], cookies: dict[str, str]) -> dict[str, Any]:
        if self._session is None:
            connector = aiohttp.TCPConnector(limit=0, keepalive_timeout=60.0)
            self._session = aiohttp.ClientSession(
                connector=connector,
                cookie_jar=aiohttp.DummyCookieJar(),
                timeout=aiohttp.ClientTimeout(total=DRAW_SECONDS),
            )
        try:
            sent = self._session.post(
                self._url, data=orjson.dumps(body), headers={"Content-Type": "application/json"}, cookies=cookies
            )
            async with sent as answered:
                cookies |= {name: value.value for name, value in answered.cookies.items()}
                raw, status = await answered.read(), answered.status
        except TimeoutError:
            raise ModelFailure(FailureKind.TRANSPORT_TIMEOUT, f"no reply in {DRAW_SECONDS:g} s") from None
        except (aiohttp.ClientError, OSError) as failed:
            reason = f"{type(failed).__name__}: {failed}"
            raise ModelFailure(FailureKind.TRANSPORT_UNREACHABLE, reason) from None
        if status != 200:
            text = raw.decode("utf-8", "replace")
            kind = FailureKind.CONTEXT_OVERFLOW if "context length" in text else FailureKind.PROVIDER_UNAVAILABLE
            raise ModelFailure(kind, f"NeMo Gym's model server answered {status}: {shorten_value(text)}")
        try:
            answer = orjson.loads(raw)
        except orjson.JSONDecodeError as failed:  # a NaN among the log-probabilities is none, either
            raise ModelFailure(FailureKind.PROVIDER_UNAVAILABLE, f"this reply is no JSON: {failed}") from None
        if not isinstance(answer, dict):
            raise ModelFailure(FailureKind.PROVIDER_UNAVAILABLE, f"this is no reply: {shorten_value(answer)}")
        return answer


def read_agent(variables: Mapping[str, str]) -> tuple[Mapping[str, Any], str, str, int]:
    """Return what Gym's config says of the agent: its environment's config, the model server's URL, host and port.

    Raises:
        ConfigError: it says too little, or the file that it names cannot be read.
    """
    config, instance = read_started(variables)
    _, block = read_block(config, instance, GROUP)
    host, port = read_address(block, instance)
    server = str(read_mapping(block.get("model_server"), f"{instance}.model_server").get("name"))
    model_host, model_port = read_address(read_block(config, server, "responses_api_models")[1], server)
    path = block.get("gavel")
    if not isinstance(path, str):
        raise ConfigError(
            "the agent's config is not named", field=f"{instance}.gavel", found=shorten_value(path), allowed="a file"
        )
    try:
        own = orjson.loads(Path(path).read_bytes())
    except (OSError, orjson.JSONDecodeError) as failed:
        raise ConfigError("the agent's config cannot be read", where=path, found=str(failed)) from None
    return read_mapping(own, path), f"http://{model_host}:{model_port}/v1/responses", host, port


def make_app(agent: GymAgent, model: ModelServer) -> web.Application:
    """Return the agent's service: ``GET /`` and ``POST /run``."""

    async def answer_ready(_: web.Request) -> web.Response:
        return web.json_response({"service": "gavel"})

    async def answer_run(request: web.Request) -> web.Response:
        try:
            row = read_row(await request.read())
            return web.Response(body=await agent.answer_row(row), content_type="application/json")
        except (ValueError, KeyError) as failed:
            return web.json_response({"error": f"this row is not of this training: {failed}"}, status=422)

    async def close(_: web.Application) -> None:
        await agent.shutdown()
        await model.close()

    app = web.Application(client_max_size=_MAX_ROW_BYTES)
    app.add_routes([web.get("/", answer_ready), web.post("/run", answer_run)])
    app.on_cleanup.append(close)
    return app


async def serve_agent(variables: Mapping[str, str]) -> None:
    """Serve until SIGTERM or SIGINT.

    Raises:
        ConfigError, AssetError: the config does not fit.
    """
    config, url, host, port = read_agent(variables)
    model = ModelServer(url)
    runner = web.AppRunner(make_app(GymAgent(config, model), model), access_log=None)
    await runner.setup()
    try:
        await web.TCPSite(runner, host, port, backlog=4096, reuse_address=True).start()
        told = asyncio.Event()
        for number in (signal.SIGINT, signal.SIGTERM):
            asyncio.get_running_loop().add_signal_handler(number, told.set)
        await told.wait()
    finally:
        await runner.cleanup()


def watch_server(words: Sequence[str]) -> int:
    """Run the serving process, and again where it died; return the code with which it ended well, was told to end, or
    could never be started.
    """
    early, lived, told = 0, False, False
    while True:
        begun = time.monotonic()
        with subprocess.Popen(words, preexec_fn=end_with_parent) as running:  # one thread here

            def end(*_: object, running: subprocess.Popen[bytes] = running) -> None:
                nonlocal told
                told = True
                running.terminate()

            for number in (signal.SIGINT, signal.SIGTERM):
                signal.signal(number, end)
            code = running.wait()
        if told or code in (0, ConfigError.exit_code):
            return 0 if told else code
        late = time.monotonic() - begun >= _EARLY_SECONDS
        lived, early = lived or late, 0 if late else early + 1
        if early >= _EARLY_DEATHS and not lived:
            return code
        sys.stderr.write(f"gavel: the agent ended with {code}; it is started again\n")
        time.sleep(min(2.0**early - 1, _LONGEST_PAUSE))
        if told:
            return 0


def main(argv: Sequence[str] | None = None) -> int:
    """Run the agent that Gym has started; return the exit code."""
    words = sys.argv[1:] if argv is None else argv
    end_with_parent()
    if SERVE not in words:
        return watch_server([sys.executable, "-m", "gavel.envs.interfaces.nemo_rl.gym_process", SERVE])
    with contextlib.suppress(ImportError):
        import uvloop

        uvloop.install()
    try:
        asyncio.run(serve_agent(os.environ))
    except GavelError as failed:
        sys.stderr.write(f"gavel: {failed}\n")
        return failed.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main())
