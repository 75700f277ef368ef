"""Grades the completions of one step of TRL's GRPO trainer: rewards for what was graded, None for what was not.

Contract: TRL 1.16.0, ``trl/trainer/grpo_trainer.py``: a reward function may give None for a completion. Where it is the
only reward function, that completion stays out of its group's mean and spread and has advantage 0. Its tokens still
count in the length by which the step's loss is divided. TRL 1.5 made a 0 of it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field

from gavel.envs.failure_policy import FailureWatch
from gavel.envs.interfaces.nemo_rl.driver import watch_over
from gavel.envs.interfaces.nemo_rl.endings import Limits
from gavel.envs.interfaces.nemo_rl.grading import SampleGrader
from gavel.envs.interfaces.nemo_rl.ledger import StepLedger
from gavel.envs.interfaces.nemo_rl.metrics import Tallies
from gavel.envs.interfaces.nemo_rl.stamps import UID, Samples, make_info, with_ending


@dataclass(frozen=True, slots=True)
class TrlCompletion:
    """One reply of the policy: ``task`` is the task's JSON, ``ids`` its tokens with the end token, if it got there;
    ``think_prefilled`` says that its prompt opened the thinking block."""

    task: str
    text: str
    ids: tuple[int, ...]
    prompt_tokens: int
    think_prefilled: bool = False


@dataclass
class Scorer:
    """Scores steps; every completion ends as a row of the ledger.

    Args:
        grader: grades one completion.
        steps: where the samples of each step are stored.
        watch: says when too much is ungraded.
        limits: when a reply was cut.
    """

    grader: SampleGrader
    steps: StepLedger
    watch: FailureWatch
    limits: Limits
    samples: Samples = field(default_factory=Samples)
    metrics: dict[str, float] = field(default_factory=dict)
    """Of the newest step: see ``nemo_rl.metrics.Tallies``."""

    async def score_step(self, step: int, completions: Sequence[TrlCompletion]) -> list[float | None]:
        """Return a reward for each completion of a step, None where it is ungraded.

        Args:
            step: counts from 1.
            completions: in TRL's order, those of one prompt beside each other.

        Raises:
            TrainingStopped: the failure policy says stop.
            GavelError: the reward policy cannot reward what was graded.
        """
        infos = self.samples.stamp_infos(
            [make_info(one.task, "train", None, None) for one in completions], [one.task for one in completions]
        )
        await asyncio.gather(
            *(
                self.grader.step_sample(one.text, with_ending(info, self._make_ending(one)))
                for one, info in zip(completions, infos, strict=True)
            )
        )
        uids = [info[UID] for info in infos]
        verdicts, _ = self.grader.take_verdicts(uids)
        graded = [verdict is not None and verdict.graded for verdict in verdicts]
        self.steps.add(step, "train", {uid: float(good) for uid, good in zip(uids, graded, strict=True)})
        tallies = Tallies()
        tallies.add_verdicts(verdicts)
        self.metrics = tallies.compute_metrics()
        watch_over(self.watch, verdicts)
        return [verdict.reward if verdict is not None else None for verdict in verdicts]

    def _make_ending(self, one: TrlCompletion) -> dict[str, object]:
        return {
            "finish_reason": self.limits.finish_reason(one.prompt_tokens, one.ids),
            "think_prefilled": one.think_prefilled,
            "prompt_tokens": one.prompt_tokens,
            "completion_tokens": len(one.ids),
            "last_id": one.ids[-1] if one.ids else None,
        }
