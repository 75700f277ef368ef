"""Whether the intervals of `gavel compare` hold what they promise, on runs whose true difference is known by
construction.

    python -m benchmarks.compare_coverage [repetitions]

Two runs of tasks that differ in difficulty are drawn again and again. A task's chance of success is uniform on [0.15,
0.65] under the base and higher by a shift of its own, uniform on [0, 0.2], under the other run: the true difference is
0.1. Under the null the shift is uniform on [-0.1, 0.1], so that tasks do differ, and their mean difference is 0. The
interval should cover the truth in 93 to 97 % of the repetitions, and a null difference should be called one in 3 to 7
%. Where the interval is over seeds, every task has the same shift and each seed moves its run up or down (standard
deviation 0.05); few seeds that agree are taken to vary as their tasks do, so that it may cover more and call less. Ends
with 1 where a figure lies outside.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from gavel.envs.types import Metric
from gavel.launch.comparing.ledgers import LedgerSample
from gavel.launch.comparing.paired import Arm, compare_arms
from gavel.launch.comparing.training import TrainedRun, compare_training

DRAWS, SHIFT = 2_000, 0.1
ROUNDING = 1e-9  # means of so many 0 and 1 often are the true difference itself, but for the last digit
COVERAGE, CALLED = (0.93, 0.97), (0.03, 0.07)
BOUNDS = (0.0, 1.0)
Chances = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Case:
    name: str
    make: Callable[[np.random.Generator, float], Metric]
    wide: bool = False


def chances(draw: np.random.Generator, tasks: int, shift: float, spread: float = 0.1) -> tuple[Chances, Chances]:
    base = draw.uniform(0.15, 0.65, tasks)
    return base, base + shift + draw.uniform(-spread, spread, tasks)


def arm(name: str, draw: np.random.Generator, chance: Chances, rollouts: int) -> Arm:
    hits = draw.random((len(chance), rollouts)) < chance[:, None]
    rewards = {
        (str(task), "d", rollout): float(hits[task, rollout])
        for task in range(len(chance))
        for rollout in range(rollouts)
    }
    return Arm(name, rewards, {key: "good" if value else "bad" for key, value in rewards.items()}, {}, 0, BOUNDS)


def rollouts_case(tasks: int, rollouts: int) -> Case:
    def make(draw: np.random.Generator, shift: float) -> Metric:
        base, other = chances(draw, tasks, shift)
        arms = [arm(name, draw, chance, rollouts) for name, chance in (("base", base), ("other", other))]
        return compare_arms(arms, draws=DRAWS, seed=0).differences[0].metric

    return Case(f"rollouts: {tasks} tasks, {rollouts} a task", make)


def samples(draw: np.random.Generator, chance: Chances, steps: int) -> Iterator[LedgerSample]:
    """Yield the last steps of a training: every task once in so many steps, four replies each."""
    for task, p in enumerate(chance):
        for rollout in range(4):
            yield LedgerSample(1 + task % steps, (str(task), "d"), rollout, float(draw.random() < p))


def trainings_case(tasks: int, seeds: int, *, over_seeds: bool) -> Case:
    def make(draw: np.random.Generator, shift: float) -> Metric:
        sides = chances(draw, tasks, shift, 0.0 if over_seeds else 0.1)
        spread = 0.05 if over_seeds else 0.0
        runs = [
            TrainedRun(
                f"{group}{seed}",
                group,
                seed,
                "",
                [*before(tasks), *samples(draw, clipped(chance + draw.normal(0, spread)), 5)],
                BOUNDS,
            )
            for group, chance in zip(("base", "other"), sides, strict=True)
            for seed in range(seeds)
        ]
        found = compare_training(runs, window=5, draws=DRAWS).differences[0]
        assert found.over_seeds is not None
        return found.over_seeds if over_seeds else found.over_tasks

    return Case(
        f"trainings: {tasks} tasks, {seeds} seeds, interval over {'seeds' if over_seeds else 'tasks'}", make, over_seeds
    )


def clipped(chance: Chances) -> Chances:
    return np.clip(chance, 0.0, 1.0)


def before(tasks: int) -> Iterator[LedgerSample]:
    """Yield five first steps, so that the run has two ends."""
    for task in range(tasks):
        yield LedgerSample(-5 + task % 5, (str(task), "d"), 0, 0.0)


CASES = (
    rollouts_case(10, 1), rollouts_case(20, 1), rollouts_case(20, 4), rollouts_case(50, 1), rollouts_case(50, 4), rollouts_case(200, 1),  # noqa: E501
    trainings_case(20, 1, over_seeds=False), trainings_case(20, 3, over_seeds=False), trainings_case(20, 2, over_seeds=True),  # noqa: E501
    trainings_case(20, 4, over_seeds=True),
)  # fmt: skip


def shares(case: Case, repetitions: int) -> tuple[float, float]:
    """Return how often the interval covers the true difference, and how often a null difference is called one."""
    covered = called = 0
    for repetition in range(repetitions):
        found = case.make(np.random.default_rng([1, repetition]), SHIFT)
        assert found.low is not None
        assert found.high is not None
        covered += found.low - ROUNDING <= SHIFT <= found.high + ROUNDING
        null = case.make(np.random.default_rng([2, repetition]), 0.0)
        assert null.low is not None
        assert null.high is not None
        called += null.low > ROUNDING or null.high < -ROUNDING
    return covered / repetitions, called / repetitions


def main() -> int:
    repetitions, outside = int(sys.argv[1]) if len(sys.argv) > 1 else 1_000, 0
    print(
        f"{repetitions} repetitions; wanted: covered {COVERAGE[0]:.0%} to {COVERAGE[1]:.0%}, called {CALLED[0]:.0%} "
        f"to {CALLED[1]:.0%}"
    )
    for case in CASES:
        begun = time.perf_counter()
        covered, called = shares(case, repetitions)
        good = (
            COVERAGE[0] <= covered <= (1 if case.wide else COVERAGE[1])
            and (0 if case.wide else CALLED[0]) <= called <= CALLED[1]
        )
        outside += not good
        took = f"{time.perf_counter() - begun:.0f} s"
        print(f"{case.name:<62} covered {covered:.1%}  called {called:.1%}  {'' if good else 'OUTSIDE'}  {took}")
        sys.stdout.flush()
    return 1 if outside else 0


if __name__ == "__main__":
    sys.exit(main())
