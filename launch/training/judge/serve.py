"""A judge served for other processes, on one node of its job: ready, published, watched, and ended when nobody needs
it.
"""

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

from gavel.launch.runs.training_plan import JudgePlan, read_judge_plan
from gavel.launch.training.judge import folder as judge_folder
from gavel.models.errors import GavelError
from gavel.models.pool import ServicePool, open_services
from gavel.models.service import Service
from gavel.models.vllm import probe
from gavel.models.vllm.arguments import LOOPBACK

ENDED, DIED = 0, 4
EVERYWHERE = "0.0.0.0"


async def serve_node(folder: Path, node: int) -> int:
    """Serve until nobody uses the judge or waits for it, or until SIGTERM; return 0, or 4 when it could not be served
    or died.
    """
    plan, asked = read_judge_plan(folder), asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, asked.set)
    work, unused = (
        asyncio.create_task(_serve_plan(plan, folder, node)),
        asyncio.create_task(_wait_unused(plan, folder, node)),
    )
    asking = asyncio.create_task(asked.wait())
    try:
        await asyncio.wait({work, unused, asking}, return_when=asyncio.FIRST_COMPLETED)
        if work.done():
            return work.result()
        print_line("nobody needs this judge any more" if unused.done() else "told to end")
        return ENDED
    except GavelError as failed:
        (folder / f"failed-{node}.txt").write_text(str(failed), encoding="utf-8")
        print_line(str(failed))
        return DIED
    finally:
        for task in (work, unused, asking):
            task.cancel()
        await asyncio.wait({work, unused, asking})


async def _serve_plan(plan: JudgePlan, folder: Path, node: int) -> int:
    services = {name: make_node_service(service, plan.replicas[name]) for name, service in plan.services.items()}
    store = Path(plan.cache) if plan.cache else None
    async with open_services(
        services,
        log_dir=folder / f"logs-{node}",
        progress=print_line,
        assets_cache=store,
        mirror=Path(plan.mirror) if plan.mirror else None,
        offline=plan.offline,
    ) as pool:
        endpoint = judge_folder.Endpoint(
            node,
            (host := await _find_reachable(pool)),
            os.environ.get("SLURM_JOB_ID"),
            plan.digest,
            {name: tuple(url.replace(LOOPBACK, host) for url in pool.list_urls(name)) for name in services},
        )
        file = judge_folder.publish_endpoint(folder, endpoint)
        print_line(f"serving at {', '.join(url for urls in endpoint.urls.values() for url in urls)}")
        try:
            died = await pool.wait_failure()
        finally:
            judge_folder.withdraw_endpoint(file, endpoint)
    (folder / f"died-{node}.txt").write_text(died.report, encoding="utf-8")
    print_line(died.report)
    return DIED


def make_node_service(service: Service, replicas: int) -> Service:
    """Return a service as one node serves it: so many of its replicas, listening beyond the loopback; one that lives is
    enough.
    """
    args: Mapping[str, object] = {"host": EVERYWHERE, **(service.engine_args or {})}
    return replace(service, replicas=replicas, min_replicas=1, engine_args=args)


async def _find_reachable(pool: ServicePool) -> str:
    """Return the first of this machine's names at which the servers answer from here; the loopback if none does."""
    root = pool.servers[0].root
    async with aiohttp.ClientSession() as session:
        for host in judge_folder.list_hosts():
            with contextlib.suppress(probe.ProbeFailed):
                await probe.check_health(session, root.replace(LOOPBACK, host), 5.0)
                return host
    return LOOPBACK


async def _wait_unused(plan: JudgePlan, folder: Path, node: int) -> None:
    """Return once the folder says ``done``, or every run that used the judge or waited for it is gone; the first node
    decides.
    """
    unused_since = None
    while not (
        (folder / "done").exists() or judge_folder.make_closing_path(folder, judge_folder.name_own_judge()).exists()
    ):
        await asyncio.sleep(judge_folder.BEAT_S / 5)
        if plan.lease is None or node:
            continue
        queued = judge_folder.read_queue(folder)
        used = any(True for _ in judge_folder.list_waiting(folder, plan.lease, queued))
        unused_since = None if used else unused_since or time.monotonic()
        if unused_since is not None and time.monotonic() - unused_since >= judge_folder.LINGER_S:
            judge_folder.close_unless_used(folder, plan.lease, queued)


def print_line(line: str) -> None:
    """Write one line to the job's output at once."""
    sys.stdout.write(line + "\n")
    sys.stdout.flush()
