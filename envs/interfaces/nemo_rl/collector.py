"""``async_grpo_train``'s collector of trajectories: it rolls out in a process of its own, so what must be done between
a rollout and the replay buffer is done there.

The driver swaps this class in for NeMo-RL's. Each group goes into the queue with its verdicts beside it (``TOLD``) and
with its ungraded samples taken out; what the driver reads later came through buffer and checkpoint with the group.
The process may be of another interpreter, NeMo-RL's for vLLM: nothing is imported here that it might lack, see
``stamps``. ``algorithms/async_utils/trajectory_collector.py`` of NVIDIA-NeMo/RL at
7ea279abfbeb698b092856d0dab61e7cf39bc909.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any

import torch
from nemo_rl.algorithms.async_utils.trajectory_collector import AsyncTrajectoryCollector
from nemo_rl.experience import rollouts

from gavel.envs.interfaces.nemo_rl.endings import Endings
from gavel.envs.interfaces.nemo_rl.gathering import StepGatherer
from gavel.envs.interfaces.nemo_rl.gym_groups import GROUP, is_counted, wrap_group
from gavel.envs.interfaces.nemo_rl.masking import REPORT_SECONDS, TOLD, take_out_ungraded
from gavel.envs.interfaces.nemo_rl.stamps import UID, Samples, is_ours, list_rows
from gavel.envs.interfaces.nemo_rl.threads import widen_executor

STOCK: Any = AsyncTrajectoryCollector.__ray_metadata__.modified_class.__ray_actor_class__
"""NeMo-RL's own class; what it exports under that name is Ray's wrapper of it."""


class GavelCollector(STOCK):  # type: ignore[misc]  # NeMo-RL has no types for us
    """Collects trajectories as NeMo-RL's class does; every group that it queues is marked.

    Args:
        options: as NeMo-RL's class takes them.
    """

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        widen_executor()
        self._samples = Samples()
        self._endings = Endings(self.master_config.policy)
        self._endings.use_tokenizer(self.tokenizer)
        setattr(rollouts, GROUP, wrap_group(getattr(rollouts, GROUP), rollouts.calculate_single_metric))
        rollouts.calculate_rewards = self._endings.wrap_rewards(StepGatherer(rollouts.calculate_rewards))

    async def _collect_rollout_batch(self, repeated_batch: Any, **options: Any) -> None:
        """Stamp before the first of several attempts: a row that is sent again is the same sample."""
        batch = repeated_batch.copy()
        batch["extra_env_info"] = self._samples.stamp_infos(batch["extra_env_info"], list_rows(batch))
        await super()._collect_rollout_batch(repeated_batch=batch, **options)

    async def _iter_rollout_groups(
        self, repeated_batch: Any, num_generations: int, **options: Any
    ) -> AsyncIterator[Any]:
        infos = repeated_batch["extra_env_info"]
        rolled = super()._iter_rollout_groups(repeated_batch=repeated_batch, num_generations=num_generations, **options)
        async for group in rolled:
            if TOLD not in group.final_batch:  # NeMo Gym's come with their verdicts
                start = group.group_index * num_generations
                await self._settle_group(group.final_batch, infos[start : start + num_generations])
            yield group

    async def _settle_group(self, final: Any, infos: Sequence[Any]) -> None:
        """Ask what became of a group's samples, write it beside them, and take the ungraded ones out."""
        told: list[dict[str, Any]] = [
            {"uid": info[UID] if is_ours(info) else "", "verdict": None, "figures": None} for info in infos
        ]
        handles = {id(self.task_to_env[name]): self.task_to_env[name] for name in final["task_name"]}
        for key, handle in handles.items():
            places = [
                place
                for place, name in enumerate(final["task_name"])
                if told[place]["uid"] and id(self.task_to_env[name]) == key
            ]
            report = await _ask_verdicts(handle, [told[place]["uid"] for place in places]) if places else None
            if report is None:
                continue
            verdicts = json.loads(report["verdicts"])
            for place, verdict in zip(places, verdicts, strict=True):
                told[place]["verdict"] = verdict
            if (first := next(filter(None, verdicts), None)) is not None:
                graded = sum(is_counted(told[place]) for place in places)
                figures = {"env": first["env"], "graded": graded, "metrics": report["metrics"]}
                told[places[0]]["figures"] = figures
        final[TOLD] = told
        take_out_ungraded(final, torch.tensor([float(is_counted(one)) for one in told]))


async def _ask_verdicts(handle: Any, uids: list[str]) -> Mapping[str, Any] | None:
    """Ask an actor for its report; None where it gives none in time."""
    try:
        return await asyncio.wait_for(_call(handle, uids), REPORT_SECONDS)
    except TimeoutError:
        return None


async def _call(handle: Any, uids: list[str]) -> Mapping[str, Any]:
    return await handle.report.remote(uids)  # type: ignore[no-any-return]
