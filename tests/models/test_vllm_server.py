"""The life cycle of one server: ready only when it truly answers, watched afterwards, every end named with the end of
its log.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import time
import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from tests.support.fake_vllm import fake_python
from tests.support.processes import matching, wait_until

from gavel.models.failures import FailureKind
from gavel.models.service import Service
from gavel.models.vllm.ports import pick_port
from gavel.models.vllm.server import ManagedServer, Patience, ServerDied, ServerError, ServerPlan

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="looks at processes through /proc")
QUICK = Patience(poll=0.05, interval=0.1, answer=0.5)


def make(
    folder: Path, behaviour: str = "ready", *, lines: list[str] | None = None, timeout: float = 30.0, **arguments: Any
) -> ManagedServer:
    service = Service(
        mode="managed",
        model="tiny",
        cpu=True,
        python=fake_python(folder / "bin"),
        startup_timeout=timeout,
        engine_args={"behaviour": behaviour, **arguments},
    )
    plan = ServerPlan("judge", service, "/models/tiny", True, pick_port("judge"))
    progress = (lines if lines is not None else []).append
    return ManagedServer(plan, log=folder / "logs" / "judge.log", progress=progress, patience=QUICK)


@asynccontextmanager
async def started(server: ManagedServer) -> AsyncIterator[aiohttp.ClientSession]:
    await server.start()
    try:
        async with aiohttp.ClientSession() as session:
            yield session
    finally:
        await server.stop()


async def failure_of(server: ManagedServer, timeout: float) -> ServerDied:
    await asyncio.wait_for(server.failed.wait(), timeout)
    assert server.failure is not None
    return server.failure


async def test_a_started_server_answers_and_says_how_far_it_came(tmp_path: Path) -> None:
    lines: list[str] = []
    server = make(tmp_path, lines=lines)
    async with started(server) as session, session.get(f"{server.base_url}/models") as answer:
        assert (await answer.json())["data"][0]["id"] == "tiny"
    assert lines[0].startswith("judge: loading weights")
    assert lines[-1].startswith("judge: ready after")
    assert server.failure is None, "an end that we asked for is no failure"


async def test_a_stopped_server_leaves_no_process_even_when_it_is_stubborn(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MARK", mark := uuid.uuid4().hex)
    server = make(tmp_path, "stubborn")
    async with started(server):
        assert len(matching(mark)) >= 5
    assert not matching(mark)


@pytest.mark.parametrize("code", [0, 3])
async def test_a_server_that_ends_before_it_is_ready_is_an_error_with_code_and_log(code: int, tmp_path: Path) -> None:
    server = make(tmp_path, "exit", code=code)
    with pytest.raises(ServerError) as caught:
        await server.start()
    text = str(caught.value)
    assert text.startswith("judge: ")
    assert f"ended with exit code {code} before it was ready" in text
    assert "the weights are made of cheese" in text
    assert str(server.log) in text


async def test_a_server_that_never_answers_is_given_up_in_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MARK", mark := uuid.uuid4().hex)
    with pytest.raises(ServerError, match=r"not ready within 0\.5 s"):
        await make(tmp_path, "silent", timeout=0.5).start()
    assert not matching(mark)


async def test_a_start_that_lasts_says_so_again_and_again(tmp_path: Path) -> None:
    lines: list[str] = []
    server = make(tmp_path, "silent", lines=lines)
    server._patience = replace(QUICK, silence=0.2)
    task = asyncio.create_task(server.start())
    try:
        await asyncio.to_thread(wait_until, lambda: len(lines) >= 3, 10.0)
    finally:
        task.cancel()
        await asyncio.wait({task})
    assert all(line.startswith(("judge: the process is starting (", "judge: loading weights (")) for line in lines)


@pytest.mark.parametrize(
    ("behaviour", "told"),
    [("stranger", r"\['another-model'\], not 'tiny'"), ("mute", "400: .*this model has no chat template")],
)
async def test_health_alone_is_not_ready(behaviour: str, told: str, tmp_path: Path) -> None:
    with pytest.raises(ServerError, match=told):
        await make(tmp_path, behaviour).start()


async def test_a_cancelled_start_leaves_no_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MARK", mark := uuid.uuid4().hex)
    task = asyncio.create_task(make(tmp_path, "silent").start())
    await asyncio.to_thread(wait_until, lambda: len(matching(mark)) == 2, 10.0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert not matching(mark)


@pytest.mark.parametrize("code", [0, 5])
async def test_a_server_that_ends_is_a_failure_at_once(code: int, tmp_path: Path) -> None:
    server = make(tmp_path)
    async with started(server) as session:
        with pytest.raises(aiohttp.ClientError):
            await session.post(f"{server.root}/exit", json={"code": code})
        died = await failure_of(server, 1.0)
    assert died.kind is FailureKind.TRANSPORT_UNREACHABLE
    assert died.reason.startswith(
        f"the server of service judge ended with exit code {code}; its log {server.log} says: "
    )
    assert "\n" not in died.reason
    assert died.report.endswith(f"The end of its log {server.log}:\n    INFO Starting to load model")


async def test_a_server_killed_from_outside_is_a_failure_at_once(tmp_path: Path) -> None:
    server = make(tmp_path)
    told: list[ServerDied] = []
    server.notify_death(told.append)
    async with started(server) as session:
        async with session.get(f"{server.root}/environment") as answer:
            pid = (await answer.json())["pid"]
        began = time.monotonic()
        os.kill(pid, signal.SIGKILL)
        died = await failure_of(server, 2.0)
        assert time.monotonic() - began < 1.0
    assert "was killed by SIGKILL" in died.reason
    assert told == [died]


async def test_a_server_that_hangs_is_dead_after_three_strikes_and_is_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MARK", mark := uuid.uuid4().hex)
    server = make(tmp_path)
    async with started(server) as session:
        await session.post(f"{server.root}/hang")
        died = await failure_of(server, 10.0)
        assert "does not live: /health did not answer within 0.5 s, 3 times in a row" in died.reason
        await asyncio.to_thread(wait_until, lambda: not matching(mark), 5.0)


async def test_the_log_of_an_earlier_start_is_kept(tmp_path: Path) -> None:
    for _ in range(2):
        async with started(make(tmp_path)):
            pass
    assert (tmp_path / "logs" / "judge.log").read_text().count("INFO Starting to load model") == 2
