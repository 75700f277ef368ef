"""The driver's part in ``async_grpo_train``, whose rollouts are marked where they are made (``collector``): it reads
what came with each batch, out of a replay buffer, and perhaps out of a checkpoint.

One call of the advantage estimator is one step there; nothing else of a step passes through a function that could be
wrapped. ``algorithms/grpo.py`` of NVIDIA-NeMo/RL at 7ea279abfbeb698b092856d0dab61e7cf39bc909.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from gavel.envs.failure_policy import FailurePolicy
from gavel.envs.interfaces.nemo_rl.driver import Driver, TrainingStopped, check_rewards, watch_over
from gavel.envs.interfaces.nemo_rl.ledger import SampleVerdict, StepLedger
from gavel.envs.interfaces.nemo_rl.masking import GRADED, TOLD
from gavel.envs.interfaces.nemo_rl.metrics import Tallies, compute_reward_range
from gavel.envs.interfaces.nemo_rl.stamps import UID, is_ours
from gavel.models.codec import decode

_UNMARKED = (
    "the replay buffer holds samples of which nothing says whether they were graded: it was saved by a training "
    "without gavel's hooks, and a lost call among them would be trained on as a zero; nothing of this step was "
    "trained on\n  fix:     remove replay_buffer.pt from the checkpoint that the run starts from; its prompts are "
    "then not trained on"
)


class AsyncDriver(Driver):
    """Wraps ``async_grpo_train``, its validation and its estimators.

    Args:
        policy: the trainer's ``policy`` section, resolved.
        failure: how much may be ungraded.
        steps: where the samples of each step are stored; None: nowhere.
        several: whether several environments are trained on.
    """

    step_counter = "current_step"

    def __init__(
        self,
        policy: Mapping[str, Any],
        failure: FailurePolicy,
        steps: StepLedger | None = None,
        *,
        several: bool = False,
    ) -> None:
        super().__init__(policy, failure, steps, several=several)
        self._failed: Exception | None = None

    def wrap_training(self, original: Callable[..., Any]) -> Callable[..., Any]:
        """Return ``async_grpo_train`` whose steps are counted from where it starts."""
        counted = super().wrap_training(original)

        def run_train(*args: Any, **options: Any) -> Any:
            try:
                return counted(*args, **options)
            except KeyError as failed:  # NeMo-RL joins groups of which some lack a column
                if any(column in str(failed) for column in (TOLD, GRADED)):
                    raise TrainingStopped(_UNMARKED) from failed
                raise

        return run_train

    def wrap_validate(self, original: Callable[..., Any]) -> Callable[..., Any]:
        """Return ``validate``; the trainer goes on where the one before its first step fails, so that its error is kept
        and raised at that step.
        """
        validate = super().wrap_validate(original)

        def run_validate(*args: Any, **options: Any) -> Any:
            try:
                return validate(*args, **options)
            except Exception as failed:
                self._failed = failed
                raise

        return run_validate

    def record_batch(self, batch: Any, mask: Any) -> None:
        """Read what came with the batch of a step, before its advantages are computed.

        Args:
            batch: the groups that the trainer drew from its buffer.
            mask: ``[B, tokens]``: each token's weight, after everything that the trainer itself takes out.

        Raises:
            TrainingStopped: it has no marks, or too many of its samples are ungraded.
        """
        if self._failed is not None:
            raise self._failed
        told = _read_told(batch)
        verdicts = decode(list[SampleVerdict | None], [one["verdict"] for one in told])
        check_rewards(batch["total_reward"].tolist(), verdicts)
        tallies = Tallies()
        mine = [place for place, one in enumerate(told) if one["uid"]]
        ours = [verdicts[place] for place in mine]
        tallies.add_verdicts(ours, [batch["task_name"][place] for place in mine] if "task_name" in batch else ())
        tallies.environments += self._list_figures(told)
        rewards = batch["total_reward"][batch[GRADED] != 0].tolist()
        self._metrics = {**tallies.compute_metrics(), **compute_reward_range(rewards)}
        self._metrics["reward"] = sum(rewards) / len(rewards) if rewards else float("nan")
        weights = mask.amax(dim=1).tolist()
        self._step.weights = {
            one["uid"]: float(weight) for one, weight in zip(told, weights, strict=True) if one["uid"]
        }
        watch_over(self._watches["train"], ours)

    def _list_figures(self, told: Sequence[Mapping[str, Any]]) -> list[tuple[str, int, Mapping[str, float]]]:
        """Return the environments' own metrics of a step: the environment, its graded samples, the metrics."""
        figures = [one["figures"] for one in told if one["figures"] is not None]
        return [(one["env"], one["graded"], one["metrics"]) for one in figures]

    def finish_step(self, estimator: Any) -> None:
        """Store the step and give its metrics to the trainer: it lays an estimator's ``last_metrics`` over its own."""
        assert self._done is not None, "a training was started"
        self._done += 1
        if self._steps is not None and self._step.weights:
            self._steps.add(self._done, "train", self._step.weights)
        estimator.last_metrics = dict(self._metrics)


def _read_told(batch: Any) -> Sequence[Mapping[str, Any]]:
    """Return what was told of a batch's samples.

    Raises:
        TrainingStopped: that of a sample is missing, or is another's.
    """
    if batch is None or TOLD not in batch or GRADED not in batch:
        raise TrainingStopped(_UNMARKED)
    told: Sequence[Mapping[str, Any]] = batch[TOLD]
    infos = batch["extra_env_info"] if "extra_env_info" in batch else [None] * len(told)
    if any(is_ours(info) and info.get(UID) != one["uid"] for one, info in zip(told, infos, strict=True)):
        raise TrainingStopped(_UNMARKED)
    return told
