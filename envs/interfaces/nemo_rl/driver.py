"""The driver's part: stamps samples, asks the actors what became of them, takes the ungraded ones out. No verdict means
ungraded.

NeMo-RL cannot say that a sample was not graded: a lost call would be a 0 that shifts its siblings' baseline. An episode
that is cut (a cap on turns, an observation that overflows, an error it swallows) ends without a last ``step`` and keeps
reward 0; so only a verdict that an actor has written down counts.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any, ClassVar

from gavel.envs.failure_policy import FailurePolicy, FailureWatch
from gavel.envs.interfaces.nemo_rl.endings import Endings
from gavel.envs.interfaces.nemo_rl.ledger import SampleVerdict, StepLedger, decode_verdicts
from gavel.envs.interfaces.nemo_rl.masking import (
    GRADED,
    REPORT_SECONDS,
    TOLD,
    compute_graded_accuracy,
    compute_graded_pass_k,
    list_environments,
    take_out_ungraded,
)
from gavel.envs.interfaces.nemo_rl.metrics import Tallies, compute_reward_range
from gavel.envs.interfaces.nemo_rl.stamps import UID, Samples, is_ours, list_rows
from gavel.models.codec import to_plain
from gavel.models.errors import GavelError
from gavel.models.failures import FailureKind

_ROUNDING = 1e-4

Report = Callable[[Any, list[str]], Mapping[str, Any] | None]


class TrainingStopped(GavelError):
    """Too much was not graded: the run stops, its last checkpoint is whole."""

    exit_code = 4


def ask_actor(handle: Any, uids: list[str]) -> Mapping[str, Any] | None:
    """Ask an actor for its report; None where it gives none in time."""
    import ray

    try:
        return ray.get(handle.report.remote(uids), timeout=REPORT_SECONDS)  # type: ignore[no-any-return]
    except ray.exceptions.GetTimeoutError:
        return None


@dataclass(slots=True)
class Validation:
    """What a validation under way has seen: rewards and whether they count, in order."""

    rewards: list[float] = field(default_factory=list)
    graded: list[bool] = field(default_factory=list)
    tallies: Tallies = field(default_factory=Tallies)
    uids: list[str] = field(default_factory=list)


# A context variable, not an attribute: a validation and the rollouts in it share a thread's context, two validations at
# once do not.
_VALIDATION: ContextVar[Validation | None] = ContextVar("gavel_validation", default=None)


@dataclass(slots=True)
class DriverStep:
    """What the rollouts of one training step have come to; dynamic sampling makes several of them. ``rewards`` are as
    the trainer has scaled and shaped them, of graded samples; ``weights`` those of what it trains on, by uid;
    ``graded`` the column of that batch."""

    tallies: Tallies = field(default_factory=Tallies)
    rewards: list[float] = field(default_factory=list)
    lost: bool = False
    weights: dict[str, float] = field(default_factory=dict)
    graded: Any = None
    trained: bool = False


class Driver:
    """Wraps NeMo-RL's rollouts, validation and logging; ``hooks.install_hooks`` puts the wrappers in place.

    Args:
        policy: the trainer's ``policy`` section, resolved.
        failure: how much may be ungraded.
        steps: where the samples of each step are stored; None: nowhere.
        report: asks an actor.
        joins: whether a step may be made of several rollouts (``grpo.use_dynamic_sampling``); its metrics are then over
            all of them.
        several: whether several environments are trained on.
    """

    step_counter: ClassVar[str] = "total_steps"
    """Where the trainer's save state counts the steps done."""

    def __init__(
        self,
        policy: Mapping[str, Any],
        failure: FailurePolicy,
        steps: StepLedger | None = None,
        report: Report = ask_actor,
        *,
        joins: bool = False,
        several: bool = False,
    ) -> None:
        self.several = several
        self.endings = Endings(policy)
        self._samples = Samples()
        self._watches = {split: FailureWatch(failure) for split in ("train", "validation")}
        self._steps, self._report = steps, report
        self._joins = joins
        self._step = DriverStep()
        self._metrics: dict[str, Any] = {}
        self._graded: Any = None
        self._environments: Sequence[str] = ()
        self._done: int | None = None

    @property
    def step_under_way(self) -> int | None:
        """The number of the step under way, from 1; None before the trainer has said where it starts."""
        return self._done + 1 if self._done is not None else None

    def wrap_training(self, original: Callable[..., Any]) -> Callable[..., Any]:
        """Return ``grpo_train`` whose steps are counted from where it starts."""
        signature = inspect.signature(original)

        @functools.wraps(original)
        def run_train(*args: Any, **options: Any) -> Any:
            state = signature.bind(*args, **options).arguments["grpo_save_state"]
            self._done = int(vars(state)[self.step_counter])
            return original(*args, **options)

        return run_train

    def record_bound(self, largest: float, allowed: float) -> None:
        """Note the largest advantage of a step by amount, and what the rewards allow, for the trainer's logger."""
        self._metrics |= {"advantages/largest": largest, "advantages/bound": allowed}

    def wrap_rollout(self, original: Callable[..., Any]) -> Callable[..., Any]:
        """Return a rollout of a whole batch whose result knows what is graded."""
        signature = inspect.signature(original)

        def run_rollout(*args: Any, **options: Any) -> Any:
            bound = signature.bind(*args, **options)
            batch = bound.arguments["input_batch"]
            if not any(is_ours(info) for info in batch["extra_env_info"]):
                return self._mark_others(original(*args, **options))
            self.endings.use_tokenizer(bound.arguments["tokenizer"])
            batch = batch.copy()
            infos = self._samples.stamp_infos(batch["extra_env_info"], list_rows(batch))
            batch["extra_env_info"] = list(infos)
            bound.arguments["input_batch"] = batch
            final, metrics = original(*bound.args, **bound.kwargs)
            metrics = {**metrics, **self._settle_batch(final, infos, bound.arguments["task_to_env"])}
            metrics |= _correct_range(metrics, final)
            self._metrics = metrics
            return final, metrics

        return run_rollout

    def wrap_validate(self, original: Callable[..., Any]) -> Callable[..., Any]:
        """Return ``validate`` whose accuracy and pass_k count graded samples only."""
        signature = inspect.signature(original)

        def run_validate(*args: Any, **options: Any) -> Any:
            token = _VALIDATION.set(seen := Validation())
            try:
                metrics, timings = original(*args, **options)
            finally:
                _VALIDATION.reset(token)
            if not seen.rewards:
                return metrics, timings
            arguments = signature.bind(*args, **options).arguments
            if not any(seen.graded):
                raise TrainingStopped(
                    "no sample of the validation was graded: its accuracy would be made of placeholders"
                )
            metrics = {
                **metrics,
                "accuracy": compute_graded_accuracy(seen.rewards, seen.graded),
                **seen.tallies.compute_metrics(),
            }
            if "pass_k" in metrics:
                metrics["pass_k"] = _compute_pass_k(
                    seen, arguments["master_config"].grpo.val_num_generations_per_prompt
                )
            if self._steps is not None:
                weights = {uid: float(counts) for uid, counts in zip(seen.uids, seen.graded, strict=True) if uid}
                self._steps.add(int(arguments["step"]), "validation", weights)
            return metrics, timings

        return run_validate

    def find_graded(self, rewards: Any) -> Any:
        """Return the graded column for the trainer's rewards of its newest rollout, and correct its logged mean."""
        graded, step = self._graded, self._step
        if graded is None or len(graded) != len(rewards):
            return None
        counted = graded.to(rewards.device) != 0
        step.rewards += rewards[counted].tolist()
        step.lost = step.lost or not bool(counted.all())
        if step.lost:
            # What stands in a rollout's metrics overrides the trainer's own figure of that name, which is over every
            # sample.
            self._metrics["reward"] = sum(step.rewards) / len(step.rewards) if step.rewards else float("nan")
        return graded

    def find_environments(self, count: int) -> Sequence[str]:
        """Return the environments of the newest rollout's samples, if it had ``count``; else none."""
        return self._environments if len(self._environments) == count else ()

    def record_batch(self, batch: Any, mask: Any) -> None:
        """Note the samples and weights that a step trains on.

        Args:
            batch: what the trainer kept of its rollouts; None where it does not hand it over.
            mask: ``[B, tokens]``: each token's weight, after everything that the trainer itself takes out.
        """
        infos = batch.get("extra_env_info") if batch is not None else None
        if infos is None:
            return  # no rollout of ours
        weights = mask.amax(dim=1).tolist()
        self._step.weights = {
            info[UID]: float(weight) for info, weight in zip(infos, weights, strict=True) if is_ours(info)
        }
        self._step.graded, self._step.trained = batch.get(GRADED), True
        if self._joins and self._step.graded is not None and "filtered_reward" in batch:
            # A group is kept whole, with its placeholders, which are no figures.
            self._metrics["filtered_reward"] = float(batch["filtered_reward"][self._step.graded != 0].mean())

    def finish_step(self, estimator: Any) -> None:
        """Do nothing: a step ends with the trainer's logging."""

    def wrap_logging(self, original: Callable[..., Any]) -> Callable[..., Any]:
        """Return the trainer's logging of a step's rewards; it alone is told the step's number."""
        signature = inspect.signature(original)

        def run_log(*args: Any, **options: Any) -> Any:
            bound, step = signature.bind(*args, **options), self._step
            self._done = int(bound.arguments["total_steps"]) + 1
            if self._steps is not None and step.weights:
                self._steps.add(int(bound.arguments["total_steps"]) + 1, "train", step.weights)
            counted = step.graded != 0 if step.graded is not None else None
            if counted is not None and bool(counted.any()) and not bool(counted.all()):
                for name in ("baseline", "advantages"):  # their placeholders are no figures
                    bound.arguments[name] = bound.arguments[name][counted]
            return original(*bound.args, **bound.kwargs)

        return run_log

    def explain_unmarked(self) -> str | None:
        """Say why a batch without the graded column must not be trained on."""
        if self._graded is None or bool((self._graded != 0).all()):
            return None
        return (
            "this NeMo-RL does not hand the rollout's batch to its advantage estimator, so ungraded samples "
            "cannot be left out"
        )

    def _mark_others(self, rolled: tuple[Any, Any]) -> tuple[Any, Any]:
        """Mark a batch with no sample of ours: dynamic sampling may join it to one that has some."""
        import torch

        final, _ = rolled
        self._graded, self._environments = None, ()
        final[GRADED] = torch.ones(len(final["total_reward"]))
        final[TOLD] = [{"uid": "", "verdict": None, "figures": None} for _ in final["total_reward"]]
        return rolled

    def _settle_batch(self, final: Any, infos: Sequence[Any], environments: Mapping[str, Any]) -> dict[str, float]:
        """Ask what became of the samples, take out the ungraded ones; return the metrics.

        Raises:
            TrainingStopped: too many are ungraded.
        """
        import torch

        validation = _VALIDATION.get()
        if validation is None and (self._step.trained or not self._joins):
            self._step = DriverStep()
        tallies = validation.tallies if validation is not None else self._step.tallies
        verdicts = self._ask_verdicts(final["task_name"], infos, environments, tallies)
        ours = [is_ours(info) for info in infos]
        graded = [
            not mine or (verdict is not None and verdict.graded) for mine, verdict in zip(ours, verdicts, strict=True)
        ]
        check_rewards(final["total_reward"].tolist(), verdicts)
        take_out_ungraded(final, torch.tensor(graded, dtype=torch.float32))
        mine = [place for place, one in enumerate(ours) if one]
        tallies.add_verdicts([verdicts[place] for place in mine], [final["task_name"][place] for place in mine])
        if validation is not None:
            validation.rewards += final["total_reward"].tolist()
            validation.graded += graded
            validation.uids += [info[UID] if is_ours(info) else "" for info in infos]
        else:
            self._graded, self._environments = final[GRADED], list_environments(final)
            final[TOLD] = [
                {"uid": info[UID] if is_ours(info) else "", "verdict": to_plain(verdict), "figures": None}
                for info, verdict in zip(infos, verdicts, strict=True)
            ]
        watch = self._watches["train" if validation is None else "validation"]
        watch_over(watch, [verdicts[place] for place in mine])
        return tallies.compute_metrics()

    def _ask_verdicts(
        self, names: Sequence[str], infos: Sequence[Any], environments: Mapping[str, Any], tallies: Tallies
    ) -> list[SampleVerdict | None]:
        found: dict[str, SampleVerdict] = {}
        handles = {id(environments[name]): environments[name] for name in dict.fromkeys(names)}
        for key, handle in handles.items():
            uids = [
                info[UID]
                for name, info in zip(names, infos, strict=True)
                if is_ours(info) and id(environments[name]) == key
            ]
            report = self._report(handle, uids) if uids else None
            if report is None:
                continue
            told = [verdict for verdict in decode_verdicts(report["verdicts"]) if verdict is not None]
            found |= {verdict.uid: verdict for verdict in told}
            if told and report["metrics"]:
                tallies.environments.append((told[0].env, sum(verdict.graded for verdict in told), report["metrics"]))
        return [found.get(info[UID]) if is_ours(info) else None for info in infos]


def _correct_range(metrics: Mapping[str, Any], final: Any) -> dict[str, float]:
    """Return a rollout's own figures of its rewards, where it has some, over graded samples alone."""
    found = compute_reward_range(final["total_reward"][final[GRADED] != 0].tolist())
    return {name: value for name, value in found.items() if name in metrics}


def watch_over(watch: FailureWatch, verdicts: Sequence[SampleVerdict | None]) -> None:
    """Apply a failure policy to samples; a prompt that does not fit is a fault of the data, and does not count.

    Raises:
        TrainingStopped: it says stop; tells the newest failure that was seen.
    """
    for verdict in verdicts:
        failure = verdict.failure if verdict is not None else None
        if failure is not None and failure.kind is FailureKind.CONTEXT_OVERFLOW and failure.stage == "policy":
            continue
        graded = verdict is not None and verdict.graded
        if not graded:  # the row at which it says stop may be a graded one, of a later step even
            cut = "its episode was cut before it could be graded"
            watch.newest = cut if failure is None else f"{failure.kind}: {failure.reason}"
        stop = watch.observe_result(graded=graded)
        if stop is not None:
            raise TrainingStopped(f"{stop}; the newest: {watch.newest}")


def check_rewards(rewards: Sequence[float], verdicts: Sequence[SampleVerdict | None]) -> None:
    """A reward that is not the verdict's would mean that something between changed it; that must not be trained on."""
    for reward, verdict in zip(rewards, verdicts, strict=True):
        if verdict is None or verdict.reward is None:
            continue
        if not abs(reward - verdict.reward) <= _ROUNDING * max(1.0, abs(verdict.reward)):  # so that a NaN is found, too
            raise RuntimeError(f"sample {verdict.uid} has reward {reward}, and its verdict says {verdict.reward}")


def _compute_pass_k(seen: Validation, k: int) -> float:
    known = compute_graded_pass_k(seen.rewards, seen.graded, k)
    if known is None:
        raise TrainingStopped("pass_k is known of no prompt: each has an ungraded reply and none that passed")
    return known
