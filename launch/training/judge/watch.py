"""The judge as a training job sees it: waited for, asked once for real, watched, and given back."""

from __future__ import annotations

import asyncio
import contextlib
import os
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
from dataclasses import dataclass
from pathlib import Path

import aiohttp

from gavel.launch.runs.training_plan import JudgePlan, RunPlan
from gavel.launch.training.judge import folder as judge_folder
from gavel.models.errors import GavelError
from gavel.models.pool import open_services
from gavel.models.vllm import probe

POLL_S, ANSWER_S, STRIKES = 2.0, 8.0, 3
"""Seconds between two looks at each replica, and for its answer; so many failed looks in a row are a death."""


class JudgeLost(GavelError):
    """The judge did not come, or too little of it is left: the run stops, loudly."""

    exit_code = 4


class JudgeAway(JudgeLost):
    """A shared judge is gone for now, through no fault of the run, which begins again once it is there."""


@dataclass(frozen=True, slots=True)
class ReachedJudge:
    """The judge of a job: ``urls`` by service, and ``lost``, which returns why once too little of it is left."""

    urls: Mapping[str, tuple[str, ...]]
    lost: Callable[[], Coroutine[None, None, str]]


@contextlib.asynccontextmanager
async def judge_of(plan: RunPlan, run: Path, say: Callable[[str], None]) -> AsyncIterator[ReachedJudge]:
    """Have the judge ready; it is given back, or ended, with the block.

    Raises:
        JudgeLost: it was not ready in time, or could not be; a ``JudgeAway`` where the run can begin again.
    """
    if plan.judge is None:
        yield ReachedJudge({}, _wait_forever)
    elif plan.judge_folder is None:
        async with _serve_same_node(plan, plan.judge, run, say) as judge:
            yield judge
    else:
        async with _use_elsewhere(plan, plan.judge, Path(plan.judge_folder), run, say) as judge:
            yield judge


async def _wait_forever() -> str:
    await asyncio.Event().wait()
    raise AssertionError


@contextlib.asynccontextmanager
async def _serve_same_node(
    plan: RunPlan, judge: JudgePlan, run: Path, say: Callable[[str], None]
) -> AsyncIterator[ReachedJudge]:
    """Serve the judge on the last GPUs of this node."""
    before = os.environ.get("CUDA_VISIBLE_DEVICES")
    os.environ["CUDA_VISIBLE_DEVICES"] = ",".join(split_gpus(before, plan.trainer_gpus, plan.judge_gpus)[1])
    async with contextlib.AsyncExitStack() as stack:
        try:
            pool = await stack.enter_async_context(
                open_services(
                    judge.services,
                    log_dir=run / "logs",
                    progress=say,
                    assets_cache=Path(judge.cache) if judge.cache else None,
                    mirror=Path(judge.mirror) if judge.mirror else None,
                    offline=judge.offline,
                )
            )
        finally:
            os.environ.pop("CUDA_VISIBLE_DEVICES")
            if before is not None:
                os.environ["CUDA_VISIBLE_DEVICES"] = before

        async def wait_lost() -> str:
            return (await pool.wait_failure()).report

        yield ReachedJudge({name: pool.list_urls(name) for name in judge.services}, wait_lost)


def split_gpus(visible: str | None, trainer: int, judge: int) -> tuple[list[str], list[str]]:
    """Return the names of the trainer's GPUs and of the judge's: the first ones and those behind them.

    Without CUDA_VISIBLE_DEVICES they are counted from 0; one that names fewer than are needed is used as it is, and the
    server's start says what is missing.
    """
    names = (
        [name for name in visible.split(",") if name] if visible else [str(number) for number in range(trainer + judge)]
    )
    return names[: max(len(names) - judge, 0)] if judge else names, names[len(names) - judge :] if judge else []


@contextlib.asynccontextmanager
async def _use_elsewhere(
    plan: RunPlan, judge: JudgePlan, folder: Path, run: Path, say: Callable[[str], None]
) -> AsyncIterator[ReachedJudge]:
    """Use a judge of another part of the job, or of another job."""
    judge_folder.begin_run(folder, run)
    beating = asyncio.create_task(_touch_regularly(folder, run))
    try:
        urls = await wait_ready(judge, folder, say, timeout=plan.ready_timeout, requeues=plan.requeues)
        yield ReachedJudge(urls, lambda: watch_replicas(urls, plan.min_replicas, folder, say))
    finally:
        beating.cancel()
        await asyncio.wait({beating})
        judge_folder.pause_run(folder, run)


async def _touch_regularly(folder: Path, run: Path) -> None:
    while True:
        with contextlib.suppress(OSError):
            os.utime(judge_folder.make_user_path(folder, run))
        await asyncio.sleep(judge_folder.BEAT_S)


async def wait_ready(
    judge: JudgePlan, folder: Path, say: Callable[[str], None], *, timeout: float, requeues: bool
) -> dict[str, tuple[str, ...]]:
    """Return the addresses by service once every node of a judge serves and answers; ``requeues`` says that whoever
    waits can begin again, so that one whose node is gone is waited for.

    Raises:
        JudgeLost: it was not ready within ``timeout`` seconds, or could not be; a ``JudgeAway`` with ``requeues``.
    """
    limit, told, refused = time.monotonic() + timeout, -1, ""
    while True:
        found = judge_folder.list_endpoints(folder)
        _refuse_endpoints(judge, found, folder, requeues=requeues)
        if len(found) != told:
            told = len(found)
            say(f"judge: {told} of {judge.nodes} nodes ready ({folder})")
        if told >= judge.nodes:
            urls = {name: tuple(url for one in found for url in one.urls[name]) for name in judge.services}
            try:
                await _probe_replicas(judge, urls)
            except JudgeLost as failed:
                if not requeues:
                    raise
                refused = f"\n{failed}"  # a judge whose node is gone has left its address; the next one takes it back
            else:
                return urls
        if time.monotonic() > limit:
            lost = JudgeAway if requeues else JudgeLost
            raise lost(f"the judge was not ready within {timeout:g} s (placement.ready_timeout): {folder}{refused}")
        await asyncio.sleep(0.5)


def _refuse_endpoints(judge: JudgePlan, found: list[judge_folder.Endpoint], folder: Path, *, requeues: bool) -> None:
    for one in found:
        if one.digest != judge.digest:
            raise JudgeLost(
                f"the judge in {folder} is not the one this run is composed with: {one.digest}, not {judge.digest}"
            )
    if failed := judge_folder.list_failures(folder):
        raise JudgeLost(f"the judge could not be served:\n{failed[0]}")
    if (code := judge_folder.read_exit_code(folder)) is not None:
        raise (JudgeAway if requeues else JudgeLost)(
            f"the judge's job ended before it was ready, with exit code {code}: {folder}"
        )


async def _probe_replicas(judge: JudgePlan, urls: Mapping[str, tuple[str, ...]]) -> None:
    """Ask every replica, from where the trainer is, which model it serves and for one real completion."""
    async with aiohttp.ClientSession() as session:
        for name, found in urls.items():
            model = str(judge.services[name].model)
            for url in found:
                try:
                    await probe.check_served_model(session, _strip_v1(url), model, ANSWER_S)
                    await probe.check_completion(session, _strip_v1(url), model)
                except probe.ProbeFailed as failed:
                    raise JudgeLost(f"the judge {name} at {url} does not answer as it should: {failed}") from None


def _strip_v1(url: str) -> str:
    return url.removesuffix("/").removesuffix("/v1")


async def watch_replicas(
    urls: Mapping[str, tuple[str, ...]], least: Mapping[str, int], folder: Path, say: Callable[[str], None]
) -> str:
    """Look at every replica until fewer than ``least`` of a service live; return that, with what the judge said about
    its end.
    """
    strikes = {url: 0 for found in urls.values() for url in found}
    async with aiohttp.ClientSession() as session:
        while True:
            await asyncio.gather(*(_check_replica(session, url, strikes, say) for url in strikes))
            for name, found in urls.items():
                alive = sum(strikes[url] < STRIKES for url in found)
                if alive < least[name]:
                    said = "\n".join(judge_folder.list_deaths(folder))
                    return (
                        f"the judge {name} is lost: {alive} of {len(found)} replicas live, {least[name]} are "
                        f"needed\n{said}"
                    ).rstrip()
            await asyncio.sleep(POLL_S)


async def _check_replica(
    session: aiohttp.ClientSession, url: str, strikes: dict[str, int], say: Callable[[str], None]
) -> None:
    try:
        await probe.check_health(session, _strip_v1(url), ANSWER_S)
    except probe.ProbeFailed as failed:
        strikes[url] += 1
        if strikes[url] == STRIKES:
            say(f"judge: {url} is lost ({failed})")
    else:
        if strikes[url] >= STRIKES:
            say(f"judge: {url} is back")
        strikes[url] = 0
