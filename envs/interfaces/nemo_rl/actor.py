"""The environment as NeMo-RL sees it; one class serves all of them. This is the plain class; ``ray_actor`` makes it an
actor.

Contract: ``nemo_rl/environments/interfaces.py`` of NVIDIA-NeMo/RL at 7ea279abfbeb698b092856d0dab61e7cf39bc909,
measured: ``step`` gets lists of equal length and gives six fields, unpacked by position.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
import resource
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from gavel.envs.interfaces.nemo_rl.config import ActorConfig, build_parts, read_config
from gavel.envs.interfaces.nemo_rl.grading import SampleGrader, Stepped
from gavel.envs.interfaces.nemo_rl.ledger import Ledger, encode_verdicts
from gavel.envs.interfaces.nemo_rl.returned import fill_fields, find_type
from gavel.envs.interfaces.nemo_rl.stamps import UID
from gavel.envs.types import Digests, Result
from gavel.models.codec import compute_digest, to_plain
from gavel.models.pool import ServicePool, open_services

_SLICE = re.compile(r"@(?![0-9]+$)")
"""A metric of a slice (``accuracy@law``); a trainer's logger gets the whole only, slices are in the ledger."""
_STARTED_AT_ONCE = 8
"""Samples begun before the loop may send what they ask: else the judge waits until the last of thousands is
prepared.
"""
OBSERVER = "environment"
"""The role that NeMo-RL's own environments give their observations; it is not read otherwise."""


@runtime_checkable
class UsesCheckers(Protocol):
    """An environment whose CPU-heavy checks can be run elsewhere."""

    def use_checkers(self, checkers: Any) -> None:
        """Run them there from now on."""
        ...


class GavelEnvironment:
    """Steps a batch of samples, each on its own: a failure of one touches no other.

    Args:
        config: ``env.<name>`` of the trainer's config, resolved.

    Raises:
        ConfigError, AssetError: it does not fit; nothing was called.
    """

    def __init__(self, config: Mapping[str, Any]) -> None:
        self._config: ActorConfig = read_config(config)
        self._assembly, reward = build_parts(self._config)
        folder = Path(self._config.ledger) if self._config.ledger else None
        self._ledger = Ledger(folder, self._config.name or self._assembly.environment.name)
        digests = Digests(compute_digest(to_plain(self._config)), self._assembly.rubric_digests)
        self._grader = SampleGrader(
            self._assembly.environment,
            reward,
            self._ledger,
            digests,
            deadline=self._config.deadline,
            policy_model=self._config.policy_model,
        )
        self._tensors = Tensors()
        self._open = contextlib.AsyncExitStack()
        self._pool: ServicePool | None = None
        self._opening = asyncio.Lock()

    async def step(
        self, message_log_batch: Sequence[Sequence[Mapping[str, Any]]], metadata: Sequence[Mapping[str, Any]]
    ) -> Any:
        """Step ``B`` samples.

        Args:
            message_log_batch: of each sample, its messages with ``role`` and ``content``; only the newest is read.
            metadata: of each sample, its ``extra_env_info``.

        Returns:
            observations, metadata, next stop strings, rewards (float32 tensor ``[B]``), terminateds (bool tensor
            ``[B]``), answers.

        Raises:
            GavelError: nothing of this batch could be trusted (no hooks, a reward policy that does not fit).
        """
        await self._open_services()
        tasks = []
        for log, info in zip(message_log_batch, metadata, strict=True):
            tasks.append(asyncio.create_task(self._grader.step_sample(str(log[-1]["content"]), info)))
            if len(tasks) % _STARTED_AT_ONCE == 0:
                await asyncio.sleep(0)
        try:
            stepped = await asyncio.gather(*tasks)
            return self._tensors.pack(
                stepped, [self._is_graded(one, info) for one, info in zip(stepped, metadata, strict=True)]
            )
        finally:
            for task in tasks:
                task.cancel()  # where one has raised, the answers to the others serve nothing

    async def report(self, uids: list[str]) -> dict[str, Any]:
        """Return ``verdicts`` (of ``encode_verdicts``; None where a sample has none) and ``metrics`` (the
        environment's, over what was graded here since it was last asked about)."""
        verdicts, results = self._grader.take_verdicts(uids)
        metrics = await asyncio.to_thread(self._compute_metrics, results) if results else {}
        return {"verdicts": encode_verdicts(verdicts), "metrics": metrics}

    async def global_post_process_and_metrics(self, batch: Any) -> tuple[Any, dict[str, Any]]:
        """Return the batch as it is, and no metrics: NeMo-RL calls this nowhere, and the driver's hooks carry them
        instead.
        """
        return batch, {}

    async def usage(self) -> dict[str, float]:
        """Return what this process has used: ``peak_mb``, the most memory it held (10^6 bytes), and ``cpu_s``."""
        used = resource.getrusage(resource.RUSAGE_SELF)
        return {"peak_mb": used.ru_maxrss * 1024 / 1e6, "cpu_s": used.ru_utime + used.ru_stime}

    async def shutdown(self) -> bool:
        """Close every connection and the ledger; steps under way end as ungraded."""
        await self._open.aclose()
        self._pool = None
        self._ledger.close()
        return True

    def _is_graded(self, stepped: Stepped, info: Mapping[str, Any]) -> bool:
        """Tell whether a sample has no end yet, or a graded one."""
        verdict = self._ledger.find(info[UID]) if stepped.terminated else None
        return not stepped.terminated or (verdict is not None and verdict.graded)

    async def _open_services(self) -> None:
        """Open the judge's connections once, on the loop that uses them."""
        if self._pool is not None:
            return
        async with self._opening:
            if self._pool is None:
                self._use_ray_checkers()
                assets = self._config.parts.assets
                pool = await self._open.enter_async_context(
                    open_services(
                        self._assembly.services,
                        log_dir=Path(self._config.ledger or tempfile.gettempdir()),
                        progress=_ignore_progress,
                        replies=Path(assets.replies) if assets.replies else None,
                        key=self._config.make_service_key,
                    )
                )
                self._assembly.models.set_models(pool.models)
                self._pool = pool

    def _use_ray_checkers(self) -> None:
        environment = self._assembly.environment
        if self._config.check_workers and isinstance(environment, UsesCheckers):
            from gavel.envs.interfaces.nemo_rl.ray_checkers import RayCheckers

            environment.use_checkers(RayCheckers(self._config.check_workers))

    def _compute_metrics(self, results: Sequence[Result]) -> dict[str, float]:
        environment = self._assembly.environment
        return {
            name.removeprefix(f"{environment.name}/"): float(metric.value)
            for name, metric in environment.summarize(results).metrics.items()
            if not _SLICE.search(name)
        }


class Tensors:
    """Packs steps as NeMo-RL wants them.

    Made before the event loop is busy: torch takes seconds to import, NeMo-RL's contract too.
    """

    def __init__(self) -> None:
        import torch  # only NeMo-RL's side has it

        self._torch, self._returned = torch, find_type()

    def pack(self, stepped: Sequence[Stepped], graded: Sequence[bool]) -> tuple[Any, ...]:
        """Return the fields of an ``EnvironmentReturn``."""
        torch = self._torch
        values = (
            [{"role": OBSERVER, "content": one.observation} for one in stepped],
            [one.info for one in stepped],
            [None] * len(stepped),
            torch.tensor([one.reward for one in stepped], dtype=torch.float32),
            torch.tensor([one.terminated for one in stepped], dtype=torch.bool),
            None,
        )
        return fill_fields(self._returned, values, torch.tensor(graded, dtype=torch.bool))


def _ignore_progress(_: str) -> None:
    """What a pool says while it starts interests nobody here: every service is external."""
