"""SingleController's rollouts: it rolls out in a process of its own, so this class, built on the driver, travels there
with its hooks.

SingleController gives every sample weight 1 and knows no mask, so a group with an ungraded sample is not given to it:
the rollout fails with NeMo-RL's own ``RolloutInfraFailure`` and is drawn again, within the trainer's budgets; what no
second try can mend (a terminal kind) with ``RolloutDataFailure``. ``experience/rollout_manager.py`` and
``experience/failures.py`` of NVIDIA-NeMo/RL at 7ea279abfbeb698b092856d0dab61e7cf39bc909.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from importlib import import_module
from typing import Any

from nemo_rl.experience.failures import RolloutDataFailure, RolloutInfraFailure
from nemo_rl.experience.rollout_manager import AsyncRolloutImpl

from gavel.envs.failure_policy import FailurePolicy, FailureWatch
from gavel.envs.interfaces.nemo_rl.driver import watch_over
from gavel.envs.interfaces.nemo_rl.endings import Endings
from gavel.envs.interfaces.nemo_rl.hooks import settle_estimators
from gavel.envs.interfaces.nemo_rl.ledger import SampleVerdict, decode_verdicts
from gavel.envs.interfaces.nemo_rl.masking import REPORT_SECONDS
from gavel.envs.interfaces.nemo_rl.metrics import Tallies
from gavel.envs.interfaces.nemo_rl.stamps import UID, Samples, is_ours
from gavel.envs.interfaces.nemo_rl.threads import ROLLOUT_THREADS
from gavel.models.failures import KINDS


class GavelRolloutImpl(AsyncRolloutImpl):  # type: ignore[misc]  # NeMo-RL has no types for us
    """Rolls out one prompt group, all of it graded or none.

    Args:
        gavel_policy: the trainer's ``policy`` section.
        gavel_failure: how much may be ungraded.
        options: as NeMo-RL's class takes them.
    """

    def __init__(self, *, gavel_policy: Mapping[str, Any], gavel_failure: FailurePolicy, **options: Any) -> None:
        super().__init__(**options)
        self._endings = Endings(gavel_policy)
        self._watch = FailureWatch(gavel_failure)
        self._samples: Samples | None = None

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Arrive in the controller's process, which computes the advantages: a resumed buffer may be trained on before
        any rollout.
        """
        self.__dict__.update(state)
        settle_estimators()

    async def run_rollout(self, input_sample: Any) -> Any:
        """Return the group's record.

        Raises:
            RolloutInfraFailure, RolloutDataFailure: a sample was not graded.
            TrainingStopped: too many were not.
        """
        if not is_ours(input_sample["extra_env_info"]):
            return await super().run_rollout(input_sample)
        samples = self._start_samples()
        count = self._num_generations_per_prompt
        infos = samples.stamp_infos([input_sample["extra_env_info"]] * count, [0] * count)
        record = await super().run_rollout({**input_sample, "extra_env_info": _Stamped(infos)})
        record.extra_env_info = input_sample["extra_env_info"]
        handle = self._task_to_env[input_sample["task_name"]]
        uids = [info[UID] for info in infos]
        report = await asyncio.wait_for(_ask_verdicts(handle, uids), REPORT_SECONDS)
        verdicts = decode_verdicts(report["verdicts"])
        watch_over(self._watch, verdicts)
        for verdict in verdicts:
            if verdict is None or not verdict.graded:
                raise _make_failure(verdict)
        tallies = Tallies()
        tallies.add_verdicts(verdicts)
        tallies.environments.append((verdicts[0].env if verdicts[0] else "", len(verdicts), report["metrics"]))
        record.rollout_metrics.update(tallies.compute_metrics())
        return record

    async def _run_single_rollout(self, input_sample: Any, traj_idx: int) -> Any:
        infos = input_sample["extra_env_info"]
        if isinstance(infos, _Stamped):
            input_sample = {**input_sample, "extra_env_info": infos.infos[traj_idx]}
        return await super()._run_single_rollout(input_sample, traj_idx)

    def _start_samples(self) -> Samples:
        """Hook this process, once: the samples' numbers start here, and threads suffice for a step of every sample."""
        if self._samples is None:
            self._samples = Samples()
            self._endings.use_tokenizer(self._tokenizer)
            manager: Any = import_module("nemo_rl.experience.rollout_manager")
            manager.calculate_rewards = self._endings.wrap_rewards(manager.calculate_rewards)
            asyncio.get_running_loop().set_default_executor(
                ThreadPoolExecutor(ROLLOUT_THREADS, thread_name_prefix="gavel-rollout")
            )
        return self._samples


class _Stamped:
    """The infos of a group's samples, in the place of the one that the prompt has."""

    def __init__(self, infos: Sequence[Any]) -> None:
        self.infos = infos


async def _ask_verdicts(handle: Any, uids: list[str]) -> Mapping[str, Any]:
    return await handle.report.remote(uids)  # type: ignore[no-any-return]


def _make_failure(verdict: SampleVerdict | None) -> Exception:
    """Texts only: what crosses processes must survive pickling."""
    if verdict is None or verdict.failure is None:
        cut: Exception = RolloutInfraFailure("an episode was cut before it could be graded")
        return cut
    failure = verdict.failure
    kind: type[Exception] = RolloutDataFailure if KINDS[failure.kind].terminal else RolloutInfraFailure
    return kind(f"a sample was not graded: {failure.kind} ({failure.stage}): {failure.reason}")
