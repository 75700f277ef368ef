"""The environment as NeMo-RL sees it; one class serves all of them. This is the plain class; ``ray_actor`` makes it an
actor.

Contract: ``nemo_rl/environments/interfaces.py`` of NVIDIA-NeMo/RL at 7ea279abfbeb698b092856d0dab61e7cf39bc909,
measured: ``step`` gets lists of equal length and gives six fields, unpacked by position.
"""

from __future__ import annotations

import asyncio
import resource
from collections.abc import Mapping, Sequence
from typing import Any

from gavel.envs.interfaces.nemo_rl.grading import Stepped
from gavel.envs.interfaces.nemo_rl.hosting import SampleHost
from gavel.envs.interfaces.nemo_rl.returned import fill_fields, find_type
from gavel.envs.interfaces.nemo_rl.stamps import UID

_STARTED_AT_ONCE = 8
"""Samples begun before the loop may send what they ask: else the judge waits until the last of thousands is
prepared.
"""
OBSERVER = "environment"
"""The role that NeMo-RL's own environments give their observations; it is not read otherwise."""


class GavelEnvironment(SampleHost):
    """Steps a batch of samples, each on its own: a failure of one touches no other.

    Args:
        config: ``env.<name>`` of the trainer's config, resolved.

    Raises:
        ConfigError, AssetError: it does not fit; nothing was called.
    """

    def __init__(self, config: Mapping[str, Any]) -> None:
        super().__init__(config)
        self._tensors = Tensors()

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
        await self.open_services()
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

    async def global_post_process_and_metrics(self, batch: Any) -> tuple[Any, dict[str, Any]]:
        """Return the batch as it is, and no metrics: NeMo-RL calls this nowhere, and the driver's hooks carry them
        instead.
        """
        return batch, {}

    async def usage(self) -> dict[str, float]:
        """Return what this process has used: ``peak_mb``, the most memory it held (10^6 bytes), and ``cpu_s``."""
        used = resource.getrusage(resource.RUSAGE_SELF)
        return {"peak_mb": used.ru_maxrss * 1024 / 1e6, "cpu_s": used.ru_utime + used.ru_stime}

    def _is_graded(self, stepped: Stepped, info: Mapping[str, Any]) -> bool:
        """Tell whether a sample has no end yet, or a graded one."""
        verdict = self._ledger.find(info[UID]) if stepped.terminated else None
        return not stepped.terminated or (verdict is not None and verdict.graded)


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
