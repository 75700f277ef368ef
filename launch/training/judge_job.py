"""A judge served for other processes, on one node of its job: ready, published, watched, and ended when nobody needs it."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import aiohttp

from gavel.launch.training import judge_folder
from gavel.launch.training.plan import JudgePlan, read_judge_plan
from gavel.launch.training.slurm import job_is_gone
from gavel.models.errors import GavelError
from gavel.models.pool import ServicePool, open_services
from gavel.models.service import Service
from gavel.models.vllm import probe
from gavel.models.vllm.arguments import LOOPBACK

ENDED, DIED = 0, 4
EVERYWHERE = "0.0.0.0"
_QUEUE_EVERY = 6
"""Beats between two questions to Slurm's queue."""


async def serve(folder: Path, node: int) -> int:
    """Serve until nobody uses the judge or waits for it, or until SIGTERM; return 0, or 4 when it could not be served or died."""
    plan, asked = read_judge_plan(folder), asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, asked.set)
    work = asyncio.create_task(_serve(plan, folder, node))
    asking = asyncio.create_task(asked.wait())
    try:
        await asyncio.wait({work, asking}, return_when=asyncio.FIRST_COMPLETED)
        return work.result() if work.done() else ENDED
    except GavelError as failed:
        (folder / f"failed-{node}.txt").write_text(str(failed), encoding="utf-8")
        say(str(failed))
        return DIED
    finally:
        for task in (work, asking):
            task.cancel()
        await asyncio.wait({work, asking})


async def _serve(plan: JudgePlan, folder: Path, node: int) -> int:
    services = {name: here(service, plan.replicas[name]) for name, service in plan.services.items()}
    store = Path(plan.cache) if plan.cache else None
    async with open_services(
        services, log_dir=folder / f"logs-{node}", progress=say, assets_cache=store,
        mirror=Path(plan.mirror) if plan.mirror else None, offline=plan.offline,
    ) as pool:  # fmt: skip
        endpoint = judge_folder.Endpoint(
            node, (host := await _reachable(pool)), os.environ.get("SLURM_JOB_ID"), plan.digest,
            {name: tuple(url.replace(LOOPBACK, host) for url in pool.urls(name)) for name in services},
        )  # fmt: skip
        file = judge_folder.publish(folder, endpoint)
        say(f"serving at {', '.join(url for urls in endpoint.urls.values() for url in urls)}")
        died, unused = asyncio.create_task(pool.wait_failure()), asyncio.create_task(_unused(plan, folder, file, node))
        try:
            await asyncio.wait({died, unused}, return_when=asyncio.FIRST_COMPLETED)
            if died.done():
                (folder / f"failed-{node}.txt").write_text(died.result().report, encoding="utf-8")
                say(died.result().report)
                return DIED
            say("nobody needs this judge any more")
            return ENDED
        finally:
            judge_folder.withdraw(file, endpoint)
            for task in (died, unused):
                task.cancel()
            await asyncio.wait({died, unused})


def here(service: Service, replicas: int) -> Service:
    """Return a service as one node serves it: so many of its replicas, listening beyond the loopback; one that lives is enough."""
    args: Mapping[str, object] = {"host": EVERYWHERE, **(service.engine_args or {})}
    return replace(service, replicas=replicas, min_replicas=1, engine_args=args)


async def _reachable(pool: ServicePool) -> str:
    """Return the first of this machine's names at which the servers answer from here; the loopback if none does."""
    root = pool.servers[0].root
    async with aiohttp.ClientSession() as session:
        for host in judge_folder.hosts():
            with contextlib.suppress(probe.ProbeFailed):
                await probe.healthy(session, root.replace(LOOPBACK, host), 5.0)
                return host
    return LOOPBACK


async def _unused(plan: JudgePlan, folder: Path, file: Path, node: int) -> None:
    """Return once the folder says ``done``, or every run that used the judge or waited for it is gone; the first node decides."""
    beat, unused_since = 0, None
    while not ((folder / "done").exists() or judge_folder.closing(folder, judge_folder.me()).exists()):
        await asyncio.sleep(judge_folder.BEAT_S / 5)
        beat += 1
        with contextlib.suppress(OSError):
            os.utime(file)
        if plan.lease is None or node:
            continue
        users = list(judge_folder.waiting(folder, plan.lease))
        unused_since = None if users else unused_since or time.monotonic()
        if unused_since is not None and time.monotonic() - unused_since >= judge_folder.LINGER_S:
            judge_folder.close_unless_used(folder, plan.lease)
        if beat % _QUEUE_EVERY == 0:
            for path, job in users:
                over: bool = bool(job) and await asyncio.to_thread(job_is_gone, str(job))
                for file_of_it in (path, path.with_suffix(".begun")) if over else ():
                    file_of_it.unlink(missing_ok=True)


def say(line: str) -> None:
    """Write one line to the job's output at once."""
    sys.stdout.write(line + "\n")
    sys.stdout.flush()
