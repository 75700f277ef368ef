"""Headless Chromium over its DevTools protocol, with aiohttp alone; tests skip where there is no Chromium.

In a test::

    async with Browser.start(tmp_path) as browser:
        page = await browser.open(path.as_uri())
        await page.until("document.documentElement.dataset.ready === 'yes'")
        assert await page.run("document.title") == "…"

``page.dialogs`` counts alerts (a script that ran), ``page.requests`` are the addresses it asked for, ``page.errors``
what scripts and the content policy complained about.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import shutil
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp
import pytest

CHROMIUM = next(
    (found for name in ("chromium", "chromium-browser", "google-chrome") if (found := shutil.which(name))), None
)
needs_chromium = pytest.mark.skipif(
    CHROMIUM is None, reason="no Chromium on this machine (Debian: apt-get install chromium)"
)
_FLAGS = (
    "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--remote-debugging-port=0", "--no-first-run",  # noqa: E501
    "--disable-background-networking", "--disable-component-update", "--disable-sync", "--hide-scrollbars", "about:blank",  # noqa: E501
)  # fmt: skip


@dataclass
class Page:
    """A tab."""

    socket: aiohttp.ClientWebSocketResponse
    url: str
    dialogs: int = 0
    requests: list[str] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)
    _next: int = 0
    _waiting: dict[int, asyncio.Future[Any]] = field(default_factory=dict)

    async def listen(self) -> None:
        async for message in self.socket:
            event = message.json()
            if "id" in event and event["id"] in self._waiting:
                self._waiting.pop(event["id"]).set_result(event)
            elif event.get("method") == "Page.javascriptDialogOpening":
                self.dialogs += 1
                await self.socket.send_json(
                    {"id": 0, "method": "Page.handleJavaScriptDialog", "params": {"accept": True}}
                )
            elif event.get("method") == "Network.requestWillBeSent":
                self.requests.append(event["params"]["request"]["url"])
            elif event.get("method") in ("Runtime.exceptionThrown", "Log.entryAdded"):
                self.errors.append(str(event["params"]))

    async def send(self, method: str, **params: Any) -> Any:
        """Send a command; return its result."""
        self._next += 1
        future = self._waiting[self._next] = asyncio.get_running_loop().create_future()
        await self.socket.send_json({"id": self._next, "method": method, "params": params})
        answer = await asyncio.wait_for(future, 60)
        assert "error" not in answer, answer
        return answer["result"]

    async def run(self, script: str) -> Any:
        """Return the value of an expression; a promise is waited for."""
        answer = await self.send("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in answer, answer["exceptionDetails"]
        return answer["result"].get("value")

    async def until(self, condition: str, timeout: float = 30.0) -> None:
        """Wait until an expression is true; one that throws is not."""
        deadline = time.monotonic() + timeout
        while not await self.run(f"(() => {{ try {{ return Boolean({condition}) }} catch {{ return false }} }})()"):
            assert time.monotonic() < deadline, f"never true: {condition}; errors: {self.errors}"
            await asyncio.sleep(0.02)

    async def press(self, key: str) -> None:
        """Press a key."""
        text = {"text": key} if len(key) == 1 else {}
        for kind in ("keyDown", "keyUp"):
            await self.send("Input.dispatchKeyEvent", type=kind, key=key, **(text if kind == "keyDown" else {}))

    async def size(self, width: int, height: int, *, dark: bool = False) -> None:
        """Set the size of the window and the preferred colours."""
        await self.send(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=width < 600
        )
        scheme = [{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}]
        await self.send("Emulation.setEmulatedMedia", features=scheme)

    async def shot(self, path: Path, *, whole: bool = False) -> None:
        """Write a picture of the page."""
        answer = await self.send("Page.captureScreenshot", format="png", captureBeyondViewport=whole)
        path.write_bytes(base64.b64decode(answer["data"]))


@dataclass
class Browser:
    """A running Chromium."""

    port: int
    session: aiohttp.ClientSession
    _tasks: list[asyncio.Task[None]] = field(default_factory=list)

    @classmethod
    @contextlib.asynccontextmanager
    async def start(cls, folder: Path) -> AsyncIterator[Browser]:
        """Start one with an empty profile below ``folder``, and end it."""
        assert CHROMIUM is not None
        profile = folder / "chromium"
        process = await asyncio.create_subprocess_exec(
            CHROMIUM,
            *_FLAGS[:-1],
            f"--user-data-dir={profile}",
            _FLAGS[-1],
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.DEVNULL,
        )
        try:
            async with aiohttp.ClientSession() as session:
                browser = cls(await _port(profile / "DevToolsActivePort", process), session)
                try:
                    yield browser
                finally:
                    for task in browser._tasks:
                        task.cancel()
                    await asyncio.gather(*browser._tasks, return_exceptions=True)
        finally:
            with contextlib.suppress(ProcessLookupError):
                process.terminate()
            await process.wait()

    async def open(self, url: str, *, width: int = 1280, height: int = 900, dark: bool = False) -> Page:
        """Open a page in a tab of its own."""
        async with self.session.put(f"http://127.0.0.1:{self.port}/json/new?about:blank") as answer:
            target = await answer.json()
        socket = await self.session.ws_connect(target["webSocketDebuggerUrl"], max_msg_size=0)
        page = Page(socket, url)
        self._tasks.append(asyncio.create_task(page.listen()))
        for domain in ("Page", "Runtime", "Network", "Log"):
            await page.send(f"{domain}.enable")
        await page.size(width, height, dark=dark)
        await page.send("Page.navigate", url=url)
        return page


async def _port(file: Path, process: asyncio.subprocess.Process) -> int:
    deadline = time.monotonic() + 60
    while not (file.exists() and file.read_text().strip()):
        assert process.returncode is None, "Chromium ended at once"
        assert time.monotonic() < deadline, "Chromium did not start"
        await asyncio.sleep(0.05)
    return int(file.read_text().split()[0])
