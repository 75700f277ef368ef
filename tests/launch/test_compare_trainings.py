"""``gavel compare`` of training runs: a sweep's points are its runs, seeds are taken together; figures worked out by
hand.
"""

from __future__ import annotations

import csv
import math
from collections.abc import Mapping
from pathlib import Path

import pytest
from tests.support.ledgers import Rewards, training_run
from tests.support.runs import gavel

from gavel.launch.comparing.ledgers import read_samples
from gavel.launch.comparing.training import TrainedRun, compare_training
from gavel.launch.runs.sweep_index import SweepIndex, SweepPoint, write_index

TASKS = "abcdef"


def flat(first: float, last: Mapping[str, float] | float) -> Rewards:
    """Two steps over six tasks with two rollouts each."""
    after = last if isinstance(last, Mapping) else dict.fromkeys(TASKS, last)
    return {1: {task: [first, first] for task in TASKS}, 2: {task: [after[task], after[task]] for task in TASKS}}


def sweep(folder: Path) -> Path:
    """Two rewards times two seeds.

    Last step: base .2 and .4; other .5 and .9, so that the seeds' differences are .3 and .5.
    """
    points = []
    for number, (reward, seed, last) in enumerate(
        (("mean", 1, 0.2), ("mean", 2, 0.4), ("all", 1, 0.5), ("all", 2, 0.9))
    ):
        name = f"{number:03}-reward={reward}_seed={seed}"
        training_run(folder / name, flat(0.1, last), seed=seed, reward=reward)
        points.append(SweepPoint(number, name, (f"reward={reward}", f"seed={seed}"), "finished", 0))
    points.append(SweepPoint(4, "004-reward=bogus", ("reward=bogus",), "failed", 2, "there is no such choice"))
    write_index(folder, SweepIndex("train", ("trainer=cpu_smoke",), tuple(points)))
    return folder


def read(path: Path) -> list[dict[str, str]]:
    return list(csv.DictReader(path.open()))


async def test_a_sweep_is_compared_by_what_its_points_differ_in_and_seeds_are_taken_together(tmp_path: Path) -> None:
    done = await gavel("compare", str(sweep(tmp_path / "sweep")), f"out={tmp_path / 'out'}", "window=1")
    assert done.code == 0, done.err
    (reward,) = [row for row in read(tmp_path / "out" / "compare.csv") if row["what"] == "reward"]
    assert (reward["base"], reward["group"], reward["tasks"], reward["seeds"]) == (
        "reward=mean",
        "reward=all",
        "6",
        "2",
    )
    assert (reward["base mean"], reward["mean"], reward["difference"]) == (
        "0.300",
        "0.700",
        "0.400",
    )  # (.2 + .4) / 2, (.5 + .9) / 2
    assert (reward["difference low"], reward["difference high"]) == ("-0.059", "0.859")
    # every task differs by as much: of 6 equal ones at most 1 - 0.025^(1/6) = 0.459 differ, each by 1 at most
    # seeds differ by .3 and .5: mean .4, sd .1414, t(1) = 12.7062: .4 -+ 12.7062 * .1, within the [-1, 1] of two
    # rewards in [0, 1]
    assert (reward["over seeds"], reward["over seeds low"], reward["over seeds high"]) == ("0.400", "-0.871", "1.000")
    assert "004-reward=bogus is left out: there is no such choice" in done.out
    assert "rewarded differently (reward=mean: mean; reward=all: all)" in done.out


async def test_each_run_has_its_first_and_last_steps_and_its_curve(tmp_path: Path) -> None:
    done = await gavel("compare", str(sweep(tmp_path / "sweep")), f"out={tmp_path / 'out'}", "window=1")
    assert done.code == 0, done.err
    runs = read(tmp_path / "out" / "runs.csv")
    assert [tuple(row[key] for key in ("run", "steps", "graded", "first", "last", "change")) for row in runs[:2]] == [
        ("000-reward=mean_seed=1", "2", "24", "0.100", "0.200", "0.100"),
        ("001-reward=mean_seed=2", "2", "24", "0.100", "0.400", "0.300"),
    ]
    points = [row for row in read(tmp_path / "out" / "curves.csv") if row["run"] == "003-reward=all_seed=2"]
    assert [(row["step"], row["mean"], row["graded"]) for row in points] == [("1", "0.100", "12"), ("2", "0.900", "12")]
    assert (tmp_path / "out" / "compare.md").read_text().startswith("| run |")


async def test_two_named_runs_are_paired_by_task_and_the_first_is_the_base(tmp_path: Path) -> None:
    better = dict(zip(TASKS, (0.5, 0.5, 0.5, 0.5, 0.5, 1.0), strict=True))
    training_run(tmp_path / "a", flat(0.0, 0.5))
    training_run(tmp_path / "b", flat(0.0, better))
    done = await gavel("compare", str(tmp_path / "a"), str(tmp_path / "b"), f"out={tmp_path / 'out'}", "window=1")
    assert done.code == 0, done.err
    rows = {row["what"]: row for row in read(tmp_path / "out" / "compare.csv")}
    assert (rows["reward"]["base"], rows["reward"]["group"], rows["reward"]["difference"]) == (
        "a",
        "b",
        "0.083",
    )  # 0.5 of 6 tasks
    assert rows["checks passed"]["difference"] == "0.000"
    assert "fewer than 2 seeds" in done.out


def test_ungraded_samples_are_counted_and_in_no_mean(tmp_path: Path) -> None:
    plain = training_run(tmp_path / "a", flat(0.0, 1.0))
    lossy = training_run(
        tmp_path / "b", {1: {task: [0.0, None] for task in TASKS}, 2: {task: [1.0, None] for task in TASKS}}
    )
    runs = [TrainedRun(path.name, path.name, 1, "mean", read_samples(path)) for path in (plain, lossy)]
    found = compare_training(runs, window=1)
    assert found.runs[1].ungraded == {"transport_unreachable": 12}
    assert found.differences[0].other_mean == 1.0
    assert found.differences[0].over_tasks.value == 0.0


def test_runs_that_share_no_task_are_compared_as_they_are(tmp_path: Path) -> None:
    first = training_run(
        tmp_path / "a", {1: {"a": [0.0]}, 2: {f"a{number}": [float(number < 5)] for number in range(10)}}
    )
    second = training_run(tmp_path / "b", {1: {"x": [0.0]}, 2: {f"b{number}": [1.0] for number in range(10)}})
    found = compare_training(
        [TrainedRun(path.name, path.name, 1, "mean", read_samples(path)) for path in (first, second)], window=1
    )
    assert found.differences[0].paired == 0
    assert found.differences[0].over_tasks.value == 0.5
    assert found.differences[0].over_tasks.high == pytest.approx(0.5 + 2.2622 * math.sqrt(0.25 / 9))  # t(9)


async def test_a_training_run_beside_a_rollout_and_one_without_a_step_are_refused(tmp_path: Path) -> None:
    training_run(tmp_path / "a", flat(0.0, 1.0))
    training_run(tmp_path / "empty", {})
    (tmp_path / "rollout").mkdir()
    mixed = await gavel("compare", str(tmp_path / "a"), str(tmp_path / "rollout"))
    assert mixed.code == 2
    assert "cannot be compared with a rollout" in mixed.err
    empty = await gavel("compare", str(tmp_path / "a"), str(tmp_path / "empty"))
    assert empty.code == 2
    assert "no step in its ledger" in empty.err


@pytest.mark.parametrize("form", ["html", "md", "csv"])
async def test_the_report_of_a_training_run_is_its_curve(tmp_path: Path, form: str) -> None:
    run = training_run(tmp_path / "<run>", flat(0.1, 0.7))
    done = await gavel("report", f"run.dir='{run}'", f"format={form}")
    assert done.code == 0, done.err
    text = (run / f"report.{form}").read_text()
    assert "0.700" in text
    assert "<run>" not in text.replace("# <run>", "")
    if form != "csv":
        assert "change +0.600 [+0.141, +1.000] (paired by 6 tasks, 95 %): beyond noise" in text


def trained(folder: Path, group: str, seed: int, last: Mapping[str, float] | float) -> TrainedRun:
    run = training_run(folder / f"{group}{seed}", flat(0.0, last), seed=seed)
    return TrainedRun(run.name, group, seed, "r", read_samples(run))


@pytest.mark.parametrize("seeds", [2, 3])
def test_seeds_that_happen_to_agree_claim_no_certainty(tmp_path: Path, seeds: int) -> None:
    """The report's case: the differences of the seeds are equal, while the tasks of each differ."""
    better = dict(zip(TASKS, (0.0, 0.0, 0.5, 0.5, 1.0, 1.0), strict=True))
    runs = [
        trained(tmp_path, group, seed, last) for group, last in (("a", 0.25), ("b", better)) for seed in range(seeds)
    ]
    (reward,) = (item for item in compare_training(runs, window=1).differences if item.what == "reward")
    found = reward.over_seeds
    assert found is not None
    assert found.n == seeds
    assert found.low is not None
    assert found.high is not None
    # the tasks' differences are -.25 -.25 .25 .25 .75 .75: sd 0.4472 over 6 tasks: 0.1826 for one seed
    quantile = {2: 12.7062, 3: 4.3027}[seeds]
    assert found.high - found.value == pytest.approx(quantile * 0.1826 / math.sqrt(seeds), rel=1e-3)


def test_seeds_and_tasks_that_all_agree_have_no_interval(tmp_path: Path) -> None:
    runs = [trained(tmp_path, group, seed, last) for group, last in (("a", 0.25), ("b", 0.5)) for seed in (1, 2)]
    found = compare_training(runs, window=1).differences
    assert all(item.over_seeds is not None and item.over_seeds.low is None for item in found if item.what == "reward")
    for item in found:
        for metric in (item.over_tasks, item.over_seeds):
            assert metric is None or metric.low is None or metric.high is None or metric.low < metric.high
