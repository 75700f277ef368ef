"""The driver's part: stamps samples, asks the actors what became of them, takes the ungraded ones out. No verdict means ungraded.

NeMo-RL cannot say that a sample was not graded: a lost call would be a 0 that shifts its siblings' baseline. An episode that is cut (a
cap on turns, an observation that overflows, an error it swallows) ends without a last ``step`` and keeps reward 0; so only a verdict
that an actor has written down counts.
"""

from __future__ import annotations

import inspect
import os
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from gavel.envs.failure_policy import FailurePolicy, FailureWatch
from gavel.envs.interfaces.nemo_rl.endings import TAIL, Limits, ending_of, limits_from
from gavel.envs.interfaces.nemo_rl.ledger import Steps, Verdict, verdict_from
from gavel.envs.interfaces.nemo_rl.masking import GRADED, graded_accuracy, graded_pass_k, take_out
from gavel.envs.interfaces.nemo_rl.metrics import Tallies
from gavel.envs.interfaces.nemo_rl.sample import UID, is_ours, stamp, with_ending
from gavel.models.errors import GavelError
from gavel.models.failures import FailureKind

REPORT_SECONDS = 120.0
"""An actor that does not tell its verdicts within this time is taken to have none."""
_ROUNDING = 1e-4
_TEXTS_KEPT = 4096

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
class Samples:
    """Numbers samples: unique over all processes of a run and all its restarts."""

    token: str = field(default_factory=lambda: os.urandom(6).hex())
    count: int = 0

    def stamped(self, infos: Sequence[Any], rows: Sequence[Any]) -> list[Any]:
        """Return the infos, ours stamped; ``rows`` says which are rollouts of one row."""
        seen: Counter[Any] = Counter()
        found = []
        for info, row in zip(infos, rows, strict=True):
            if is_ours(info):
                info = stamp(info, f"{self.token}-{self.count:09x}", seen[row])
                self.count, seen[row] = self.count + 1, seen[row] + 1
            found.append(info)
        return found


@dataclass(slots=True)
class Endings:
    """Tells each sample how its newest reply ended; wraps ``calculate_rewards``."""

    policy: Mapping[str, Any]
    tokenizer: Any = None
    _limits: Limits | None = None
    _texts: dict[tuple[int, ...], str] = field(default_factory=dict)

    def use(self, tokenizer: Any) -> None:
        """Use this tokenizer from now on."""
        if tokenizer is not self.tokenizer:
            self.tokenizer, self._limits = tokenizer, limits_from(self.policy, tokenizer)
            self._texts = {}

    def wrap(self, original: Callable[..., Any]) -> Callable[..., Any]:
        """Return ``calculate_rewards`` with the endings put into the batch it gets."""

        def calculate_rewards(batch: Any, *args: Any, **options: Any) -> Any:
            if any(is_ours(info) for info in batch["extra_env_info"]):
                batch = batch.copy()
                batch["extra_env_info"] = [
                    with_ending(info, self._ending(log)) if is_ours(info) else info
                    for info, log in zip(batch["extra_env_info"], batch["message_log"], strict=True)
                ]
            return original(batch, *args, **options)

        return calculate_rewards

    def _ending(self, log: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
        assert self._limits is not None, "a tokenizer is known before any reply"
        *before, reply = log
        prompt_tokens = sum(len(message["token_ids"]) for message in before)
        tail = self._text(tuple(before[-1]["token_ids"][-TAIL:].tolist()))
        return ending_of(self._limits, prompt_tokens, tail, reply["token_ids"].tolist())

    def _text(self, ids: tuple[int, ...]) -> str:
        """Decode the end of a prompt; the prompts of a step end alike."""
        if (known := self._texts.get(ids)) is not None:
            return known
        if len(self._texts) >= _TEXTS_KEPT:
            self._texts = {}
        text = str(self.tokenizer.decode(list(ids), skip_special_tokens=False))
        self._texts[ids] = text
        return text


@dataclass(slots=True)
class Validation:
    """What a validation under way has seen: rewards and whether they count, in order."""

    rewards: list[float] = field(default_factory=list)
    graded: list[bool] = field(default_factory=list)
    tallies: Tallies = field(default_factory=Tallies)
    uids: list[str] = field(default_factory=list)


class Driver:
    """Wraps NeMo-RL's rollouts, validation and logging; ``hooks.install`` puts the wrappers in place.

    Args:
        policy: the trainer's ``policy`` section, resolved.
        failure: how much may be ungraded.
        steps: where the samples of each step are stored; None: nowhere.
        report: asks an actor.
    """

    def __init__(
        self, policy: Mapping[str, Any], failure: FailurePolicy, steps: Steps | None = None, report: Report = ask_actor
    ) -> None:  # fmt: skip
        self.endings = Endings(policy)
        self._samples = Samples()
        self._watches = {split: FailureWatch(failure) for split in ("train", "validation")}
        self._steps, self._report = steps, report
        self._validation: Validation | None = None
        self._metrics: dict[str, Any] = {}
        self._graded: Any = None
        self._weights: dict[str, float] = {}

    def wrap_rollout(self, original: Callable[..., Any]) -> Callable[..., Any]:
        """Return a rollout of a whole batch whose result knows what is graded."""
        signature = inspect.signature(original)

        def rollout(*args: Any, **options: Any) -> Any:
            bound = signature.bind(*args, **options)
            batch = bound.arguments["input_batch"]
            if not any(is_ours(info) for info in batch["extra_env_info"]):
                self._graded = None
                return original(*args, **options)
            self.endings.use(bound.arguments["tokenizer"])
            batch = batch.copy()
            infos = self._samples.stamped(batch["extra_env_info"], _rows(batch))
            batch["extra_env_info"] = list(infos)
            bound.arguments["input_batch"] = batch
            final, metrics = original(*bound.args, **bound.kwargs)
            metrics = {**metrics, **self._settle(final, infos, bound.arguments["task_to_env"])}
            self._metrics = metrics
            return final, metrics

        return rollout

    def wrap_validate(self, original: Callable[..., Any]) -> Callable[..., Any]:
        """Return ``validate`` whose accuracy and pass_k count graded samples only."""
        signature = inspect.signature(original)

        def validate(*args: Any, **options: Any) -> Any:
            self._validation = seen = Validation()
            try:
                metrics, timings = original(*args, **options)
            finally:
                self._validation = None
            if not seen.rewards:
                return metrics, timings
            arguments = signature.bind(*args, **options).arguments
            if not any(seen.graded):
                raise TrainingStopped("no sample of the validation was graded: its accuracy would be made of placeholders")
            metrics = {**metrics, "accuracy": graded_accuracy(seen.rewards, seen.graded), **seen.tallies.metrics()}
            if "pass_k" in metrics:
                metrics["pass_k"] = _pass_k(seen, arguments["master_config"].grpo.val_num_generations_per_prompt)
            if self._steps is not None:
                weights = {uid: float(counts) for uid, counts in zip(seen.uids, seen.graded, strict=True) if uid}
                self._steps.add(int(arguments["step"]), "validation", weights)
            return metrics, timings

        return validate

    def graded_of(self, rewards: Any) -> Any:
        """Return the graded column for the trainer's rewards of its newest rollout, and correct its logged mean."""
        graded = self._graded
        if graded is None or len(graded) != len(rewards):
            return None
        counted = graded.to(rewards.device) != 0
        if not bool(counted.all()):
            # What stands in a rollout's metrics overrides the trainer's own figure of that name, which is over every sample.
            self._metrics["reward"] = float(rewards[counted].float().mean()) if bool(counted.any()) else float("nan")
        return graded

    def note_batch(self, batch: Any) -> None:
        """Note the samples and weights that a step trains on."""
        self._weights = {
            info[UID]: float(weight)
            for info, weight in zip(batch["extra_env_info"], batch["loss_multiplier"], strict=True)
            if is_ours(info)
        }

    def wrap_logging(self, original: Callable[..., Any]) -> Callable[..., Any]:
        """Return the trainer's logging of a step's rewards; it alone is told the step's number."""
        signature = inspect.signature(original)

        def log(*args: Any, **options: Any) -> Any:
            total_steps = signature.bind(*args, **options).arguments["total_steps"]
            if self._steps is not None and self._weights:
                self._steps.add(int(total_steps) + 1, "train", self._weights)
            return original(*args, **options)

        return log

    def unmarked(self) -> str | None:
        """Say why a batch without the graded column must not be trained on."""
        if self._graded is None or bool((self._graded != 0).all()):
            return None
        return "this NeMo-RL does not hand the rollout's batch to its advantage estimator, so ungraded samples cannot be left out"

    def _settle(self, final: Any, infos: Sequence[Any], environments: Mapping[str, Any]) -> dict[str, float]:
        """Ask what became of the samples, take out the ungraded ones; return the metrics.

        Raises:
            TrainingStopped: too many are ungraded.
        """
        import torch

        tallies = self._validation.tallies if self._validation is not None else Tallies()
        verdicts = self._ask(final["task_name"], infos, environments, tallies)
        ours = [is_ours(info) for info in infos]
        graded = [not mine or (verdict is not None and verdict.graded) for mine, verdict in zip(ours, verdicts, strict=True)]
        _check_rewards(final["total_reward"].tolist(), verdicts)
        take_out(final, torch.tensor(graded, dtype=torch.float32))
        tallies.add(verdict for mine, verdict in zip(ours, verdicts, strict=True) if mine)
        if self._validation is not None:
            self._validation.rewards += final["total_reward"].tolist()
            self._validation.graded += graded
            self._validation.uids += [info[UID] if mine else "" for mine, info in zip(ours, infos, strict=True)]
        else:
            self._graded = final[GRADED]
        watch = self._watches["train" if self._validation is None else "validation"]
        watch_over(watch, [verdict for mine, verdict in zip(ours, verdicts, strict=True) if mine])
        return tallies.metrics()

    def _ask(
        self, names: Sequence[str], infos: Sequence[Any], environments: Mapping[str, Any], tallies: Tallies
    ) -> list[Verdict | None]:  # fmt: skip
        found: dict[str, Verdict] = {}
        handles = {id(environments[name]): environments[name] for name in dict.fromkeys(names)}
        for key, handle in handles.items():
            uids = [info[UID] for name, info in zip(names, infos, strict=True) if is_ours(info) and id(environments[name]) == key]
            report = self._report(handle, uids) if uids else None
            if report is None:
                continue
            told = [verdict_from(raw) for raw in report["verdicts"] if raw is not None]
            found |= {verdict.uid: verdict for verdict in told}
            if told and report["metrics"]:
                tallies.environments.append((told[0].env, sum(verdict.graded for verdict in told), report["metrics"]))
        return [found.get(info[UID]) if is_ours(info) else None for info in infos]


def watch_over(watch: FailureWatch, verdicts: Sequence[Verdict | None]) -> None:
    """Apply a failure policy to samples; a prompt that does not fit is a fault of the data, and does not count.

    Raises:
        TrainingStopped: it says stop; tells the newest failure.
    """
    for verdict in verdicts:
        failure = verdict.failure if verdict is not None else None
        if failure is not None and failure.kind is FailureKind.CONTEXT_OVERFLOW and failure.stage == "policy":
            continue
        stop = watch.observe(graded=verdict is not None and verdict.graded)
        if stop is not None:
            newest = "its episode was cut before it could be graded" if failure is None else f"{failure.kind}: {failure.reason}"
            raise TrainingStopped(f"{stop}; the newest: {newest}")


def _check_rewards(rewards: Sequence[float], verdicts: Sequence[Verdict | None]) -> None:
    """A reward that is not the verdict's would mean that something between changed it; that must not be trained on."""
    for reward, verdict in zip(rewards, verdicts, strict=True):
        if verdict is not None and verdict.reward is not None and abs(reward - verdict.reward) > _ROUNDING * max(1.0, abs(reward)):
            raise RuntimeError(f"sample {verdict.uid} has reward {reward}, and its verdict says {verdict.reward}")


def _rows(batch: Any) -> Sequence[Any]:
    """Return what tells rows apart; repeated rows have one number."""
    return [(name, row) for name, row in zip(batch["task_name"], batch["idx"], strict=True)]


def _pass_k(seen: Validation, k: int) -> float:
    known = graded_pass_k(seen.rewards, seen.graded, k)
    if known is None:
        raise TrainingStopped("pass_k is known of no prompt: each has an ungraded reply and none that passed")
    return known
