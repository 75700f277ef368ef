"""How fast a step of many samples is judged inside NeMo-RL's own synchronous rollout; needs ``NEMO_RL_ROOT``."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp
from tests.envs.interfaces import nemo_rl_harness as harness
from tests.envs.interfaces.nemo_rl_support import RIGHT, actor_config, answer, write_tasks
from tests.support.fault_server import server_process

from gavel.envs.failure_policy import FailurePolicy
from gavel.envs.interfaces.nemo_rl.driver import Driver

LATENCY, IN_FLIGHT = 0.1, 64
IDEAL = IN_FLIGHT / LATENCY
"""Judgements a second of a judge of 100 ms that is never left idle."""


@dataclass(frozen=True)
class Speed:
    """Of one step; rates are judgements a second.

    ``judged``: over the time that the trainer waits for its environment: the hooks, the way to the actor and back,
    judging, verdicts.
    ``whole``: from the last reply to the end of the rollout, with what NeMo-RL itself does for each sample. ``bare``: a
    client that does nothing but ask the same judge, right before. ``actor_ms`` and ``driver_ms``: CPU time a sample,
    ``driver_ms`` of ours alone.
    """

    judged: float
    whole: float
    bare: float
    actor_ms: float
    driver_ms: float
    peak_mb: float


def measure(
    folder: Path, tokenizer: Any, *, prompts: int = 64, generations: int = 32, steps: int = 3
) -> Iterator[Speed]:
    """Yield the speeds of some steps of ``prompts * generations`` samples, all graded by one judge call each.

    Registered environments and a running Ray are taken for granted.
    """
    import ray
    from nemo_rl.environments.utils import create_env

    tasks = write_tasks(folder / "tasks.jsonl", "abstention", prompts)
    batch, warm = (harness.batch_of(tasks, "abstention", tokenizer, count) for count in (generations, 1))
    driver = Driver(harness.policy_section(tokenizer), FailurePolicy(max_ungraded_fraction=1.0))
    with (
        server_process("--reply", f"{answer.__module__}:answer", "--latency", str(LATENCY)) as url,
        harness.hooked(driver),
    ):
        config = actor_config("abstention", url, f"judge.max_in_flight={IN_FLIGHT}", ledger=str(folder / "ledger"))
        handle = create_env("gavel_abstention", config)
        handles = {batch["task_name"][0]: handle}
        harness.roll("sync", harness.Canned(tokenizer, lambda *_: "warm"), warm, tokenizer, handles)
        try:
            for step in range(steps):
                bare = prompts * generations / asyncio.run(_ask(url, prompts * generations))
                asked: list[float] = []

                def reply(_: str, count: int, asked: list[float] = asked, step: int = step) -> str:
                    asked.append(time.perf_counter())
                    return f"{RIGHT} {step} {count}"

                before = ray.get(handle.usage.remote())
                with _timed(driver) as spent:
                    final, metrics = harness.roll("sync", harness.Canned(tokenizer, reply), batch, tokenizer, handles)
                whole = time.perf_counter() - asked[-1]
                after = ray.get(handle.usage.remote())
                count = len(asked)
                assert final["loss_multiplier"].sum() == metrics["judge/calls"] == count
                yield Speed(
                    count / spent.wall,
                    count / whole,
                    bare,
                    (after["cpu_s"] - before["cpu_s"]) / count * 1e3,
                    spent.cpu / count * 1e3,
                    after["peak_mb"],
                )
        finally:
            ray.kill(handle)


@dataclass
class _Spent:
    wall: float = 0.0
    cpu: float = 0.0

    def on(self, work: Callable[..., Any]) -> Callable[..., Any]:
        """Return ``work``, whose time is added here."""

        def timed(*args: Any, **options: Any) -> Any:
            wall, cpu = time.perf_counter(), time.thread_time()
            try:
                return work(*args, **options)
            finally:
                self.wall, self.cpu = self.wall + time.perf_counter() - wall, self.cpu + time.thread_time() - cpu

        return timed


@contextmanager
def _timed(driver: Any) -> Iterator[_Spent]:
    """Time what the rollout waits for: its environments' step, and the driver's settling of verdicts."""
    import nemo_rl.experience.rollouts as rollouts

    spent, kept = _Spent(), rollouts.calculate_rewards
    rollouts.calculate_rewards, driver._settle_batch = spent.on(kept), spent.on(driver._settle_batch)
    try:
        yield spent
    finally:
        rollouts.calculate_rewards = kept
        del driver._settle_batch


async def _ask(url: str, count: int) -> float:
    """Ask a judge ``count`` times, ``IN_FLIGHT`` at once; return the seconds."""
    body = {"model": "judge-abstention", "messages": [{"role": "user", "content": f"Is it {RIGHT}?"}]}
    left = iter(range(count))

    async def ask(session: aiohttp.ClientSession) -> None:
        for _ in left:
            async with session.post(f"{url}/chat/completions", json=body) as reply:
                await reply.read()

    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as session:
        begun = time.perf_counter()
        await asyncio.gather(*(ask(session) for _ in range(IN_FLIGHT)))
        return time.perf_counter() - begun
