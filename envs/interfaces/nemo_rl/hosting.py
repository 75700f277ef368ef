"""What grades a training's samples, whoever calls it: the actor of NeMo-RL's contract, or NeMo Gym's agent."""

from __future__ import annotations

import asyncio
import contextlib
import re
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from gavel.envs.interfaces.nemo_rl.config import ActorConfig, build_parts, read_config
from gavel.envs.interfaces.nemo_rl.grading import SampleGrader
from gavel.envs.interfaces.nemo_rl.ledger import Ledger, encode_verdicts
from gavel.envs.types import Digests, Environment, Result
from gavel.models.codec import compute_digest, to_plain
from gavel.models.pool import ServicePool, open_services

_SLICE = re.compile(r"@(?![0-9]+$)")
"""A metric of a slice (``accuracy@law``); a trainer's logger gets the whole only, slices are in the ledger."""


@runtime_checkable
class UsesCheckers(Protocol):
    """An environment whose CPU-heavy checks can be run elsewhere."""

    def use_checkers(self, checkers: Any) -> None:
        """Run them there from now on."""
        ...


class SampleHost:
    """One environment of a training with its reward, its ledger and its open services.

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
        self._open = contextlib.AsyncExitStack()
        self._pool: ServicePool | None = None
        self._opening = asyncio.Lock()

    async def report(self, uids: list[str]) -> dict[str, Any]:
        """Return ``verdicts`` (of ``encode_verdicts``; None where a sample has none) and ``metrics`` (the
        environment's, over what was graded here since it was last asked about)."""
        verdicts, results = self._grader.take_verdicts(uids)
        environment = self._assembly.environment
        metrics = await asyncio.to_thread(compute_own_metrics, environment, results) if results else {}
        return {"verdicts": encode_verdicts(verdicts), "metrics": metrics}

    async def shutdown(self) -> bool:
        """Close every connection and the ledger; steps under way end as ungraded."""
        await self._open.aclose()
        self._pool = None
        self._ledger.close()
        return True

    async def open_services(self) -> None:
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


def compute_own_metrics(environment: Environment, results: Sequence[Result]) -> dict[str, float]:
    """Return an environment's own figures of results, by short name, those of slices left out."""
    return {
        name.removeprefix(f"{environment.name}/"): float(metric.value)
        for name, metric in environment.summarize(results).metrics.items()
        if not _SLICE.search(name)
    }


def _ignore_progress(_: str) -> None:
    """What a pool says while it starts interests nobody here: every service is external."""
