"""Verdicts as numbers for the trainer's logger: graded samples alone, and how many were not."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from gavel.envs.interfaces.nemo_rl.config import PREFIX
from gavel.envs.interfaces.nemo_rl.ledger import SampleVerdict
from gavel.models.failures import FailureKind


@dataclass(slots=True)
class Tallies:
    """What became of the samples of some rollouts; a sample without a verdict is ungraded, its episode was cut."""

    verdicts: list[SampleVerdict] = field(default_factory=list)
    cut: int = 0
    sources: dict[str, list[SampleVerdict | None]] = field(default_factory=dict)
    environments: list[tuple[str, int, Mapping[str, float]]] = field(default_factory=list)

    def add_verdicts(self, verdicts: Sequence[SampleVerdict | None], sources: Sequence[str] = ()) -> None:
        """Count samples; None is one without a verdict. ``sources`` tell of each which data set it is of (NeMo-RL's
        ``task_name``), so that those without a verdict can be counted to their environment.
        """
        for source, verdict in zip(sources, verdicts, strict=bool(sources)):
            self.sources.setdefault(source, []).append(verdict)
        for verdict in verdicts:
            if verdict is None:
                self.cut += 1
            else:
                self.verdicts.append(verdict)

    @property
    def graded(self) -> list[SampleVerdict]:
        """Those with a grade."""
        return [verdict for verdict in self.verdicts if verdict.graded]

    @property
    def total(self) -> int:
        """All samples."""
        return len(self.verdicts) + self.cut

    def compute_metrics(self) -> dict[str, float]:
        """Return ``judge/…``, ``reward/…`` and ``env/<name>/…``; a figure over no sample is left out."""
        if not self.total:
            return {}
        graded = self.graded
        kinds = Counter(verdict.failure.kind for verdict in self.verdicts if verdict.failure is not None)
        kinds[FailureKind.EPISODE_CUT] += self.cut
        found = {
            "judge/samples": float(self.total),
            "judge/graded": float(len(graded)),
            "judge/ungraded": float(self.total - len(graded)),
            "judge/ungraded_rate": 1.0 - len(graded) / self.total,
            **{f"judge/ungraded/{kind.removeprefix('gavel:')}": float(count) for kind, count in kinds.items() if count},
        }
        if self.verdicts:
            found["judge/calls"] = float(sum(verdict.calls for verdict in self.verdicts))
            found["judge/seconds/mean"] = _compute_mean([verdict.seconds for verdict in self.verdicts])
            found["judge/seconds/max"] = max(verdict.seconds for verdict in self.verdicts)
        return {**found, **_compute_rewards(graded), **self._compute_environment_metrics(graded)}

    def _compute_environment_metrics(self, graded: Sequence[SampleVerdict]) -> dict[str, float]:
        found: dict[str, float] = self._compute_shares()
        for env in dict.fromkeys(verdict.env for verdict in graded):
            labels = Counter(verdict.label for verdict in graded if verdict.env == env)
            found |= {f"env/{env}/label/{label}": count / labels.total() for label, count in labels.items()}
        # The environment's own figures are of one batch each; several batches (validation) are weighed by their graded
        # samples.
        weighed: dict[str, list[tuple[float, int]]] = defaultdict(list)
        for env, count, own in self.environments:
            for name, value in own.items():
                weighed[f"env/{env}/{name}"].append((value, count))
        for name, parts in weighed.items():
            weight = sum(count for _, count in parts)
            if weight:
                found[name] = sum(value * count for value, count in parts) / weight
        return found

    def _compute_shares(self) -> dict[str, float]:
        """Return of each environment, where there are several, its samples, how many are not graded, and their mean
        reward.
        """
        by_env: dict[str, list[SampleVerdict | None]] = {}
        for source, verdicts in self.sources.items():
            named = next((one.env for one in verdicts if one is not None), source.partition("/")[0])
            by_env.setdefault(named.removeprefix(PREFIX), []).extend(verdicts)
        found: dict[str, float] = {}
        for env, verdicts in by_env.items() if len(by_env) > 1 else ():
            rewards = [one.reward for one in verdicts if one is not None and one.reward is not None]
            found[f"env/{env}/samples"] = float(len(verdicts))
            found[f"env/{env}/ungraded_rate"] = 1 - len(rewards) / len(verdicts)
            if rewards:
                found[f"env/{env}/reward"] = _compute_mean(rewards)
        return found


def _compute_rewards(graded: Sequence[SampleVerdict]) -> dict[str, float]:
    if not graded:
        return {}
    rewards = [verdict.reward for verdict in graded if verdict.reward is not None]
    components: dict[str, list[float]] = defaultdict(list)
    for verdict in graded:
        for name, value in verdict.components.items():
            components[name].append(value)
    return {
        "reward/graded_mean": _compute_mean(rewards),
        **{f"reward/{name}": _compute_mean(values) for name, values in components.items()},
    }


def compute_reward_range(rewards: Sequence[float]) -> dict[str, float]:
    """Return the figures of rewards that NeMo-RL's asynchronous rollouts log, under its names; none of no reward."""
    if not rewards:
        return {}
    return {
        "mean_total_reward": _compute_mean(rewards),
        "max_total_reward": max(rewards),
        "min_total_reward": min(rewards),
    }


def _compute_mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)
