"""A judge that another job serves, as a verb uses it: waited for, asked at its addresses, and left again."""

from __future__ import annotations

import asyncio
import contextlib
import os
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path

from gavel.launch.runs.training_plan import JudgePlan, read_judge_plan
from gavel.launch.training.judge import folder as judge_folder
from gavel.launch.training.judge.watch import wait_ready
from gavel.launch.training.trainer_config import make_external
from gavel.models.codec import compute_digest, to_plain
from gavel.models.errors import ConfigError
from gavel.models.service import Service

READY_S = 1800.0
"""Seconds that a judge may take to be ready once somebody waits for it."""
LEASE_S = 30 * 86400.0
"""Seconds that a judge waits for parts that have not begun; Slurm's queue says much earlier that none will."""


def make_shared_plan(
    services: Mapping[str, Service], cache: str | None, mirror: str | None, offline: bool
) -> JudgePlan:
    """Return the plan of a judge on one node for the parts of one rollout."""
    return JudgePlan(
        services,
        {name: service.replicas for name, service in services.items()},
        1,
        compute_digest([to_plain(services), 1]),
        LEASE_S,
        cache,
        mirror,
        offline,
    )


@contextlib.contextmanager
def join_judge(
    folder: Path, run: Path, services: Mapping[str, Service], say: Callable[[str], None]
) -> Iterator[dict[str, Service]]:
    """Yield the managed ``services`` that are served from ``folder``, at their addresses there; until the block ends
    the judge knows that ``run`` uses it.

    Raises:
        ConfigError: what is served there is not what this composition names.
        JudgeLost: it was not ready in time, or could not be.
    """
    plan = read_judge_plan(folder)
    mine = {name: service for name, service in services.items() if name in plan.services}
    _check_services(folder, plan, mine)
    over = threading.Event()
    beating = threading.Thread(target=_touch_regularly, args=(folder, run, over), name="gavel-judge", daemon=True)
    judge_folder.begin_run(folder, run)
    beating.start()
    try:
        urls = asyncio.run(wait_ready(plan, folder, say, timeout=READY_S, requeues=True))
        yield {name: replace(made, base_url=urls[name]) for name, made in make_external(mine).items()}
    finally:
        over.set()
        beating.join()
        judge_folder.leave_run(folder, run)


def _check_services(folder: Path, plan: JudgePlan, mine: Mapping[str, Service]) -> None:
    for name, service in mine.items():
        if plan.services[name] != service:
            raise ConfigError(
                "another model, or the same one served otherwise, is in this folder",
                where=str(folder),
                field=name,
                found=str(plan.services[name].model),
                allowed=str(service.model),
                remedy="compose the judge as it was composed there, or name another judge_folder",
            )
    if not mine:
        raise ConfigError(
            "nothing that is asked here is served in this folder",
            field="judge_folder",
            found=str(folder),
            allowed="the folder of a judge that is managed in this composition, too",
        )


def _touch_regularly(folder: Path, run: Path, over: threading.Event) -> None:
    while not over.wait(judge_folder.BEAT_S):
        with contextlib.suppress(OSError):
            os.utime(judge_folder.make_user_path(folder, run))
