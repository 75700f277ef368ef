"""How fast a step of many samples is judged inside NeMo-RL's own rollouts; needs ``NEMO_RL_ROOT``."""

from __future__ import annotations

import asyncio
import inspect
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
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
    folder: Path, tokenizer: Any, *, way: str = "sync", prompts: int = 64, generations: int = 32, steps: int = 3
) -> Iterator[Speed]:
    """Yield the speeds of some steps of ``prompts * generations`` samples, all graded by one judge call each.

    ``way``: ``sync`` and ``async`` are the rollouts of ``grpo_train``, ``collector`` is the one in the collector of
    ``async_grpo_train``, without Ray's actor around it.

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
                engine = harness.Canned(tokenizer, reply)
                if way == "collector":
                    collector = _make_collector(engine, tokenizer, handles)
                    with _timed(collector, "_settle_group") as spent:
                        weighed = asyncio.run(_collect(collector, batch, generations))
                else:
                    with _timed(driver, "_settle_batch") as spent:
                        final, _ = harness.roll(way, engine, batch, tokenizer, handles)
                    weighed = float(final["loss_multiplier"].sum())
                whole = time.perf_counter() - asked[-1]
                after = ray.get(handle.usage.remote())
                count = len(asked)
                assert weighed == count
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


def measure_gym(folder: Path, *, prompts: int, generations: int, steps: int, latency: float) -> Iterator[Speed]:
    """Yield the speeds of some steps that NeMo Gym rolls out, with a judge of ``latency`` seconds.

    ``judged`` begins with the first reply of the policy, which takes no time: the rest is drawn beside the judging, in
    NeMo Gym's servers. ``whole`` begins with the rollout. A running Ray is taken for granted.
    """
    import nemo_rl.algorithms.grpo as grpo
    from tests.envs.interfaces.nemo_rl_gym import Setup, train_gym

    count, found, drawn = prompts * generations, list[Speed](), list[float]()

    def say(_: str, place: int) -> str:
        drawn.append(time.perf_counter())
        return f"{RIGHT} {place}"

    with server_process("--reply", f"{answer.__module__}:answer", "--latency", str(latency)) as url:

        class Timed(Setup):
            def __call__(self, *args: Any, **options: Any) -> Any:
                made = super().__call__(*args, **options)
                rollout = grpo.run_nemo_gym_rollout_sync

                def run_rollout(*args: Any, **options: Any) -> Any:
                    bare = count / asyncio.run(_ask(url, count))
                    drawn.clear()
                    before, wall, cpu = _read_agent(folder), time.perf_counter(), time.thread_time()
                    rolled = rollout(*args, **options)
                    ended = time.perf_counter()
                    rates = count / (ended - drawn[0]), count / (ended - wall)
                    after, own = _read_agent(folder), time.thread_time() - cpu
                    assert float(rolled.final_batch["loss_multiplier"].sum()) == count
                    spent = (after[0] - before[0]) / count * 1e3, own / count * 1e3
                    found.append(Speed(*rates, bare, *spent, after[1]))
                    return rolled

                grpo.run_nemo_gym_rollout_sync = run_rollout
                return made

        train_gym(
            folder,
            url,
            say,
            tasks=prompts * steps,
            prompts=prompts,
            generations=generations,
            steps=steps,
            more=[f"judge.max_in_flight={IN_FLIGHT}"],
            make=Timed,
        )
    yield from found


def _read_agent(folder: Path) -> tuple[float, float]:
    """CPU seconds and the memory, in 10^6 bytes, of the process that serves our agent."""
    import psutil

    for one in psutil.process_iter(["cmdline"]):
        words = one.info["cmdline"] or []
        if "--serve" in words and str(folder) in one.environ().get("NEMO_GYM_CONFIG_DICT", ""):
            used = one.cpu_times()
            return used.user + used.system, one.memory_info().rss / 1e6
    raise AssertionError("no agent is running")


@dataclass
class _Spent:
    wall: float = 0.0
    cpu: float = 0.0
    until: float = 0.0
    lock: threading.Lock = field(default_factory=threading.Lock)

    def on(self, work: Callable[..., Any]) -> Callable[..., Any]:
        """Return ``work``, whose time is added here; where several are at work at once, from the first to the last."""

        def timed(*args: Any, **options: Any) -> Any:
            wall, cpu = self.enter(), time.thread_time()
            try:
                return work(*args, **options)
            finally:
                self.leave(wall)
                self.cpu += time.thread_time() - cpu

        async def timed_call(*args: Any, **options: Any) -> Any:
            wall = self.enter()
            try:
                return await work(*args, **options)
            finally:
                self.leave(wall)

        return timed_call if inspect.iscoroutinefunction(work) else timed

    def enter(self) -> float:
        """Begin to wait; return since when."""
        return time.perf_counter()

    def leave(self, begun: float) -> None:
        """End a wait that began then."""
        now = time.perf_counter()
        with self.lock:
            self.wall += max(now - max(begun, self.until), 0.0)
            self.until = max(self.until, now)


@contextmanager
def _timed(owner: Any, settle: str) -> Iterator[_Spent]:
    """Time what the rollout waits for: its environments' step, and the settling of verdicts."""
    import nemo_rl.experience.rollouts as rollouts

    spent, kept = _Spent(), rollouts.calculate_rewards
    rollouts.calculate_rewards = spent.on(kept)
    setattr(owner, settle, spent.on(getattr(owner, settle)))
    try:
        yield spent
    finally:
        rollouts.calculate_rewards = kept
        delattr(owner, settle)


def _make_collector(engine: Any, tokenizer: Any, handles: dict[str, Any]) -> Any:
    """The asynchronous trainer's collector with what a rollout needs of it."""
    from gavel.envs.interfaces.nemo_rl.collector import GavelCollector

    collector: Any = GavelCollector.__new__(GavelCollector)
    collector.policy_generation, collector.tokenizer, collector.task_to_env = engine, tokenizer, handles
    collector.master_config = SimpleNamespace(policy={"max_total_sequence_length": 2048})
    collector._max_rollout_turns, collector._deduplicate_multimodal_data = 1, False
    return collector


async def _collect(collector: Any, batch: Any, generations: int) -> float:
    """Roll a batch out as the collector does; return the weight of all samples."""
    from gavel.envs.interfaces.nemo_rl.stamps import Samples, list_rows

    batch = batch.copy()
    batch["extra_env_info"] = Samples().stamp_infos(batch["extra_env_info"], list_rows(batch))
    groups = collector._iter_rollout_groups(
        repeated_batch=batch, num_generations=generations, use_nemo_gym=False, task_index_to_group_index={}
    )
    return sum([float(group.final_batch["loss_multiplier"].sum()) async for group in groups])


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
