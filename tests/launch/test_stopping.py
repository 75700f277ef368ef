"""Every verb ends on SIGINT and SIGTERM, however it was started; closed descriptors and readers that went away end no
command.
"""

from __future__ import annotations

import asyncio
import importlib
import os
import shlex
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest
from rich.console import Console
from tests.support.fault_server import FaultServer
from tests.support.runs import arguments, gavel, reply, start, write_tasks

from gavel.launch.cli.command_line import main
from gavel.launch.compose.verbs import VERBS, Verb
from gavel.launch.rollout import session
from gavel.launch.rollout.session import _keep_lease
from gavel.launch.runs.folder import RunFolder
from gavel.launch.runs.signals import cancel_by_signals

STOPS = (signal.SIGINT, signal.SIGTERM)


def _ignoring() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)


@pytest.mark.parametrize("stop", STOPS)
@pytest.mark.parametrize("before", [None, _ignoring])
async def test_a_rollout_ends_on_either_signal_though_sigint_was_ignored(
    tmp_path: Path, stop: signal.Signals, before: Callable[[], None] | None
) -> None:
    async with FaultServer(reply=reply, latency=0.05) as server:
        words = arguments(write_tasks(tmp_path / "t.jsonl", 400), tmp_path / "run", server.base_url, "concurrency=4")
        process = await start(*words, preexec_fn=before)
        await server.until(10, timeout=30)
        process.send_signal(stop)
        out, err = await asyncio.wait_for(process.communicate(), 20)
    assert process.returncode == 130, out.decode() + err.decode()


@pytest.mark.parametrize("stop", STOPS)
@pytest.mark.parametrize(
    "verb", [("serve", "env=abstention", "judge=external", "judge.base_url=URL", "judge.model=m", "http.port=0")]
)
async def test_a_service_ends_on_either_signal_though_sigint_was_ignored(
    verb: tuple[str, ...], stop: signal.Signals
) -> None:
    async with FaultServer(reply=reply) as server:
        process = await start(*(word.replace("URL", server.base_url) for word in verb), preexec_fn=_ignoring)
        assert process.stdout is not None
        await asyncio.wait_for(process.stdout.readline(), 30)
        process.send_signal(stop)
        out, err = await asyncio.wait_for(process.communicate(), 20)
    assert process.returncode in (0, 130), out.decode() + err.decode()


def test_a_loop_that_is_held_up_is_broken_off(tmp_path: Path) -> None:
    code = (
        "import asyncio, os, signal, time\n"
        "from gavel.launch.runs.signals import cancel_by_signals\n"
        "async def work():\n"
        "    with cancel_by_signals():\n"
        "        os.kill(os.getpid(), signal.SIGTERM)\n"
        "        end = time.monotonic() + 60\n"
        "        while time.monotonic() < end: pass\n"
        "try:\n    asyncio.run(work())\nexcept KeyboardInterrupt:\n    raise SystemExit(130)\n"
    )
    begun = time.monotonic()
    assert subprocess.run([sys.executable, "-c", code], timeout=50, check=False).returncode == 130
    assert time.monotonic() - begun < 50


async def test_the_lease_is_kept_while_the_loop_is_held_up() -> None:
    beats, enough = 0, threading.Event()

    class Folder:
        def renew_lease(self) -> None:
            nonlocal beats
            beats += 1
            if beats >= 3:
                enough.set()

    with _keep_lease(cast("RunFolder", Folder())):
        assert enough.wait(60)  # holds this very loop up


async def test_the_lease_beats_while_stored_rows_are_read_back(monkeypatch: pytest.MonkeyPatch) -> None:
    beating: list[str] = []

    async def look(*_: object) -> int:
        beating.extend(thread.name for thread in threading.enumerate())
        return 0

    monkeypatch.setattr(session, "_run_session", look)
    folder = cast("RunFolder", SimpleNamespace(renew_lease=lambda: None))
    assert await session.run_session(cast("session.Session", None), folder, Console()) == 0
    assert "gavel-lease" in beating
    assert "gavel-lease" not in [thread.name for thread in threading.enumerate()]


async def test_the_handlers_before_are_put_back() -> None:
    before = [signal.getsignal(number) for number in STOPS]
    with cancel_by_signals():
        assert [signal.getsignal(number) for number in STOPS] != before
    assert [signal.getsignal(number) for number in STOPS] == before


@pytest.mark.parametrize("closed", [(0,), (0, 1), (0, 1, 2)])
async def test_closed_descriptors_are_given_something_to_be(tmp_path: Path, closed: tuple[int, ...]) -> None:
    def close() -> None:
        for number in closed:
            os.close(number)

    async with FaultServer(reply=reply) as server:
        words = arguments(write_tasks(tmp_path / "t.jsonl", 3), tmp_path / "run", server.base_url)
        assert (await gavel(*words, preexec_fn=close)).code == 0


@pytest.mark.parametrize("words", [("list",), ("--help",), ("rollout", "--help")])
def test_a_reader_that_went_away_gives_141(words: tuple[str, ...]) -> None:
    command = shlex.join([sys.executable, "-m", "gavel.launch.cli", *words])
    done = subprocess.run(
        ["bash", "-c", f"{command} | true; exit ${{PIPESTATUS[0]}}"], capture_output=True, check=False, timeout=60
    )
    assert (done.returncode, done.stderr) == (141, b"")


@pytest.mark.parametrize("stop", STOPS)
@pytest.mark.parametrize("verb", VERBS.values(), ids=list(VERBS))
def test_whatever_a_verb_is_at_it_ends_on_either_signal_though_sigint_was_ignored(
    verb: Verb, stop: signal.Signals, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def work_on(_config: object, _console: object) -> int:
        os.kill(os.getpid(), stop)
        end = time.monotonic() + 60
        while time.monotonic() < end:
            pass
        return 0

    monkeypatch.setattr("gavel.launch.compose.compose.compose_config", lambda *_words: None)
    monkeypatch.setattr(importlib.import_module(verb.module), "run", work_on)
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        assert main([verb.name]) == 130
    finally:
        signal.signal(signal.SIGINT, before)
    assert "interrupted" in capsys.readouterr().err
