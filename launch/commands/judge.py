"""``gavel judge``: a managed judge served in the foreground, until it is interrupted or dies."""

from __future__ import annotations

import asyncio
import shlex
import signal
import socket
import time
from pathlib import Path

from rich.console import Console

from gavel.launch.config.schema import JudgeConfig
from gavel.models.errors import ConfigError
from gavel.models.pinned import find_default_cache
from gavel.models.pool import ServicePool, open_services
from gavel.models.service import Service
from gavel.models.service_check import check_service
from gavel.models.vllm import embedded
from gavel.models.vllm.arguments import LOOPBACK, build_command
from gavel.models.vllm.resolve import find_local_directory

ENDED, DIED, INTERRUPTED = 0, 4, 130
NAME, KEY = "general", "judge"
"""The judge as a service, and its key in the config."""


def run(config: JudgeConfig, console: Console) -> int:
    """Serve the judge of ``config``; return the exit code."""
    return asyncio.run(serve_judge(config, console))


async def serve_judge(config: JudgeConfig, console: Console | None = None) -> int:
    """Serve the judge until SIGINT or SIGTERM, or until it dies; nothing is left running.

    Returns:
        0 when a ready judge was asked to end, 130 when it was interrupted before it was ready, 4 when it died.

    Raises:
        ConfigError: the judge is not a managed service, or cannot work on this machine.
        ServerError: it did not become ready.
    """
    console = console or Console()
    _check_judge(config.judge)
    if config.dry_run:
        command = build_command(config.judge, _find_model(config.judge), config.judge.port)
        console.print(shlex.join(command), markup=False, highlight=False, soft_wrap=True)
        return ENDED
    loop, asked = asyncio.get_running_loop(), asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, asked.set)
    ready = asyncio.Event()
    work = asyncio.create_task(_serve_until_end(config, console, ready))
    asking = asyncio.create_task(asked.wait())
    try:
        await asyncio.wait({work, asking}, return_when=asyncio.FIRST_COMPLETED)
        if work.done():
            return work.result()
        console.print("ending …", highlight=False)
        return ENDED if ready.is_set() else INTERRUPTED
    finally:
        for task in (work, asking):
            task.cancel()
        await asyncio.wait({work, asking})
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.remove_signal_handler(number)


async def _serve_until_end(config: JudgeConfig, console: Console, ready: asyncio.Event) -> int:
    folder = Path(config.run.dir or f"runs/judge-{time.strftime('%Y%m%d-%H%M%S')}")

    def say_line(line: str) -> None:
        console.print(line, highlight=False, soft_wrap=True, markup=False)

    async with open_services({NAME: config.judge}, log_dir=folder / "logs", progress=say_line) as pool:
        say_line(_make_announcement(config.judge, pool))
        ready.set()
        died = await pool.wait_failure()
        say_line(died.report)
    return DIED


def _make_announcement(judge: Service, pool: ServicePool) -> str:
    urls = [_make_reachable(judge, url) for url in pool.list_urls(NAME)]
    lines = [f"serving {judge.model} at {url}" for url in urls]
    base = urls[0] if len(urls) == 1 else f"[{','.join(urls)}]"
    hint = shlex.join(("judge=external", f"judge.base_url={base}", f"judge.model={judge.model}"))
    return "\n".join([*lines, f"use it with: {hint}", "Ctrl-C ends it"])


def _make_reachable(judge: Service, url: str) -> str:
    """Return the URL others use: the machine's name where the server listens beyond the loopback."""
    listens_on = (judge.engine_args or {}).get("host", LOOPBACK)
    return url if listens_on == LOOPBACK else url.replace(LOOPBACK, socket.getfqdn())


def _check_judge(judge: Service) -> None:
    if judge.mode != "managed":
        raise ConfigError(
            "there is nothing to serve: this judge is asked where it is served already",
            field="judge.mode",
            found=judge.mode,
            allowed="managed",
            remedy="choose one that is served here: judge=smollm2 or judge=qwen3_32b",
        )
    check_service(KEY, judge)


def _find_model(judge: Service) -> str:
    model = embedded.find_embedded(str(judge.model))
    return str(
        embedded.make_prepared_path(model, find_default_cache())
        if model
        else find_local_directory(KEY, judge) or judge.model
    )
