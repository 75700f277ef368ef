"""``gavel judge``: serves in the foreground, says how to use it, and leaves nothing behind."""

from __future__ import annotations

import asyncio
import io
import os
import re
import signal
import sys
import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import aiohttp
import pytest
from rich.console import Console
from tests.support.fake_vllm import fake_python, model_directory
from tests.support.processes import matching, wait_until

from gavel.launch.commands.judge import serve_judge
from gavel.launch.config.schema import JudgeConfig, RunConfig
from gavel.models.errors import ConfigError
from gavel.models.service import Service

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="looks at processes through /proc")


@pytest.fixture
def config(tmp_path: Path) -> JudgeConfig:
    judge = Service(
        mode="managed", model=model_directory(tmp_path / "tiny"), cpu=True, python=fake_python(tmp_path / "bin")
    )
    return JudgeConfig(judge, RunConfig(str(tmp_path / "run")))


@asynccontextmanager
async def serving(config: JudgeConfig) -> AsyncIterator[tuple[asyncio.Task[int], io.StringIO, str]]:
    """Run the verb; give its task, its output and the URL it printed."""
    output = io.StringIO()
    task = asyncio.create_task(serve_judge(config, Console(file=output, width=200)))
    await asyncio.to_thread(wait_until, lambda: task.done() or "Ctrl-C" in output.getvalue(), 20.0)
    assert not task.done(), output.getvalue()
    found = re.search(r"at (http\S+)/v1", output.getvalue())
    assert found
    yield task, output, found[1]
    task.cancel()
    await asyncio.wait({task})


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
async def test_a_signal_ends_the_judge_and_leaves_nothing(
    number: signal.Signals, config: JudgeConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MARK", mark := uuid.uuid4().hex)
    async with serving(config) as (task, output, url):
        async with aiohttp.ClientSession() as session, session.get(f"{url}/v1/models") as answer:
            assert answer.status == 200
        assert f"judge=external judge.base_url={url}/v1 judge.model={config.judge.model}" in output.getvalue()
        os.kill(os.getpid(), number)
        assert await asyncio.wait_for(task, 10) == 0
    await asyncio.to_thread(wait_until, lambda: not matching(mark), 5.0)
    assert (Path(str(config.run.dir)) / "logs" / "judge.log").is_file()


async def test_a_judge_that_dies_is_reported_with_its_log(config: JudgeConfig) -> None:
    async with serving(config) as (task, output, url):
        async with aiohttp.ClientSession() as session:
            with pytest.raises(aiohttp.ClientError):
                await session.post(f"{url}/exit", json={"code": 0})
        assert await asyncio.wait_for(task, 10) == 4
    assert "ended with exit code 0" in output.getvalue()
    assert "Starting to load model" in output.getvalue()


async def test_an_interrupt_before_it_is_ready_is_an_interruption(
    config: JudgeConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MARK", mark := uuid.uuid4().hex)
    silent = replace(config, judge=replace(config.judge, engine_args={"behaviour": "silent"}))
    task = asyncio.create_task(serve_judge(silent, Console(file=io.StringIO())))
    await asyncio.to_thread(wait_until, lambda: len(matching(mark)) == 2, 20.0)
    os.kill(os.getpid(), signal.SIGTERM)
    assert await asyncio.wait_for(task, 10) == 130
    await asyncio.to_thread(wait_until, lambda: not matching(mark), 5.0)


async def test_a_dry_run_shows_the_command_and_starts_nothing(config: JudgeConfig, tmp_path: Path) -> None:
    output = io.StringIO()
    assert await serve_judge(replace(config, dry_run=True), Console(file=output, width=500)) == 0
    assert f"-m vllm.entrypoints.openai.api_server --model {config.judge.model}" in output.getvalue()
    assert not (tmp_path / "run").exists()


async def test_an_external_judge_cannot_be_served(config: JudgeConfig) -> None:
    external = Service(mode="external", model="m", base_url="http://127.0.0.1:9/v1")
    with pytest.raises(ConfigError, match=r"judge=smollm2"):
        await serve_judge(replace(config, judge=external))
