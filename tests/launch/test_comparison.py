"""Comparisons: paired by task, intervals over tasks, McNemar's test; figures worked out by hand."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from tests.support.fault_server import FaultServer
from tests.support.runs import arguments, gavel, reply, write_tasks

from gavel.launch.comparing.identities import shorten_names
from gavel.launch.comparing.paired import Arm, compare_arms, compute_bootstrap, compute_mcnemar


def _arm(name: str, rewards: dict[tuple[str, int], float], ungraded: int = 0) -> Arm:
    rows = {(task, "d", rollout): value for (task, rollout), value in rewards.items()}
    labels = {key: "correct" if value == 1 else "incorrect" for key, value in rows.items()}
    return Arm(name, rows, labels, {key: {"correct": value} for key, value in rows.items()}, ungraded)


def test_the_difference_is_taken_within_tasks_and_tasks_of_one_run_alone_are_left_out() -> None:
    base = _arm("a", {("x", 0): 1.0, ("x", 1): 0.0, ("y", 0): 0.0, ("only-a", 0): 1.0})
    other = _arm("b", {("x", 0): 1.0, ("x", 1): 1.0, ("y", 0): 0.5, ("only-b", 0): 0.0}, ungraded=3)
    found = compare_arms([base, other])
    reward = found.differences[0]
    assert (reward.what, reward.metric.n) == ("reward", 2)
    assert reward.base_mean == pytest.approx(0.25)  # (0.5 + 0) / 2
    assert reward.other_mean == pytest.approx(0.75)  # (1 + 0.5) / 2
    assert reward.metric.value == pytest.approx(0.5)
    assert found.unpaired == {"b": 2}
    assert found.ungraded == {"a": 0, "b": 3}


def test_mcnemar_agrees_with_the_binomial_by_hand() -> None:
    # 1 pair lost, 5 gained: 2 * (C(6,0) + C(6,1)) / 2^6 = 14/64
    before = np.array([True] + [False] * 5 + [True] * 4)
    after = np.array([False] + [True] * 5 + [True] * 4)
    assert compute_mcnemar(before, after) == pytest.approx(14 / 64)
    assert compute_mcnemar(before, before) == 1.0


def test_holm_multiplies_the_least_p_by_all_tests_and_never_falls() -> None:
    base = _arm("a", {(f"t{n}", 0): 0.0 for n in range(8)})
    other = _arm("b", {(f"t{n}", 0): float(n < 6) for n in range(8)})
    tests = [item for item in compare_arms([base, other]).differences if item.p is not None]
    # both labels change in the same 6 pairs: p = 2 / 2^6 each, Holm: 2p, then max(2p, p)
    assert [item.p for item in tests] == [pytest.approx(1 / 32)] * 2
    assert [item.p_holm for item in tests] == [pytest.approx(1 / 16)] * 2


def test_the_bootstrap_is_repeatable_and_covers_a_known_spread() -> None:
    values = np.array([0.0, 1.0] * 200)
    first = compute_bootstrap(values, 4000, np.random.default_rng(1))
    assert first == compute_bootstrap(values, 4000, np.random.default_rng(1))
    # standard error of the mean: 0.5 / sqrt(400) = 0.025
    assert first.low == pytest.approx(0.5 - 1.96 * 0.025, abs=0.006)
    assert first.high == pytest.approx(0.5 + 1.96 * 0.025, abs=0.006)
    assert compute_bootstrap(values[:1], 100, np.random.default_rng(1)).low is None


def test_few_tasks_get_students_t_since_they_do_not_show_the_bootstrap_enough() -> None:
    found = compute_bootstrap(np.array([0.0, 0.0, 0.0, 1.0, 1.0, 1.0]), 100, np.random.default_rng(1))
    # mean 0.5, sd sqrt(0.3), t(5) = 2.5706: half = 2.5706 * sqrt(0.3 / 6)
    assert found.low == pytest.approx(0.5 - 2.5706 * 0.05**0.5)
    assert found.high == pytest.approx(0.5 + 2.5706 * 0.05**0.5)


def test_under_five_tasks_there_is_no_interval_and_labels_never_leave_their_range() -> None:
    # two tasks that happen to differ by the same -0.25: t would give [-0.25, -0.25]
    assert compute_bootstrap(np.array([-0.25, -0.25]), 100, np.random.default_rng(1)).low is None
    assert compute_bootstrap(np.array([-0.25] * 4), 100, np.random.default_rng(1)).low is None
    gained = {f"t{n}" for n in range(4)}
    base = _arm("a", {(f"t{n}", 0): 0.0 for n in range(5)})
    other = _arm("b", {(f"t{n}", 0): float(f"t{n}" in gained) for n in range(5)})
    found = {item.what: item.metric for item in compare_arms([base, other]).differences}
    # mean 0.8, sd sqrt(0.2), t(4) = 2.7764: half = 2.7764 * 0.2 = 0.555; 1.355 is no difference of shares
    assert found["label/correct"].low == pytest.approx(0.8 - 2.7764 * 0.2)
    assert found["label/correct"].high == 1.0
    assert found["label/incorrect"].low == -1.0
    assert found["reward"].high == pytest.approx(0.8 + 2.7764 * 0.2)  # what a reward can be is not known here


def test_what_tells_runs_apart_is_left_of_their_names() -> None:
    assert shorten_names(["000-reward.abstain=0.3", "001-reward.abstain=0.5"]) == ["abstain=0.3", "abstain=0.5"]
    assert shorten_names(["000-reward.abstain=0.3_seed=1", "001-reward.abstain=0.5_seed=1"]) == [
        "abstain=0.3",
        "abstain=0.5",
    ]
    steps = ["000-seed=1_trainer.max_steps=3", "001-seed=2_trainer.max_steps=3", "002-seed=1_trainer.max_steps=9"]
    assert shorten_names(steps) == ["seed=1 max_steps=3", "seed=2 max_steps=3", "seed=1 max_steps=9"]
    assert shorten_names(["demo", "demo-rescore-abstain-0.3"]) == ["demo", "rescore-abstain-0.3"]
    assert shorten_names(["bench-a", "bench-b"]) == ["a", "b"]
    assert shorten_names(["one", "two"]) == ["one", "two"]


def test_the_bootstrap_is_widened_by_what_few_tasks_hide() -> None:
    values = np.array([0.0, 1.0] * 10)
    found = compute_bootstrap(values, 20_000, np.random.default_rng(1))
    assert found.high is not None
    # Student's t: 2.0930 * 0.5130 / sqrt(20) = 0.240; plain percentiles would give 1.96 * 0.5 / sqrt(20) = 0.219, on a
    # lattice of 1/20
    assert found.high == pytest.approx(0.5 + 0.240, abs=0.02)
    assert found.high - 0.5 > 0.22


def test_several_rollouts_of_a_task_have_no_mcnemar() -> None:
    arms = [_arm(name, {("x", 0): 1.0, ("x", 1): 0.0, ("y", 0): 1.0}) for name in "ab"]
    assert all(item.p is None for item in compare_arms(arms).differences)


async def test_two_rewards_of_one_run_are_compared_by_the_command(tmp_path: Path) -> None:
    async with FaultServer(reply=reply) as server:
        assert (
            await gavel(*arguments(write_tasks(tmp_path / "t.jsonl", 16), tmp_path / "run", server.base_url))
        ).code == 0
    assert (await gavel("rescore", str(tmp_path / "run"), "reward.abstain=0.25", f"into={tmp_path / 'less'}")).code == 0
    done = await gavel("compare", str(tmp_path / "run"), str(tmp_path / "less"), f"out={tmp_path / 'out'}")
    assert done.code == 0, done.err
    lines = (tmp_path / "out" / "compare.csv").read_text().splitlines()
    assert lines[1].startswith("reward,run,less,0.500,0.375,-0.125,")  # half abstain: 8 of 16 lose 0.25
    assert lines[1].split(",")[8] == "16"
    assert (tmp_path / "out" / "compare.md").read_text().startswith("| what |")
    assert "95 % intervals over tasks (bootstrap)" in done.out
    assert "judge of abstention: never probed" in done.out
    assert "judge of abstention: never probed" in (tmp_path / "out" / "compare.html").read_text()


async def test_few_tasks_get_no_interval_and_the_command_says_why_and_who_graded(tmp_path: Path) -> None:
    async with FaultServer(reply=reply) as server:
        tasks = write_tasks(tmp_path / "t.jsonl", 2)
        for name, more in (("a", ()), ("b", ("rubrics.abstention.profile=nvidia/qa-abstention-v1",))):
            words = arguments(tasks, tmp_path / name, server.base_url, "rollouts_per_task=2", *more)
            assert (await gavel(*words)).code == 0
    done = await gavel("compare", str(tmp_path / "a"), str(tmp_path / "b"))
    assert done.code == 0, done.err
    assert "too few tasks for intervals" in done.out
    assert "under 5 tasks there is no interval" in done.out
    assert "no p: McNemar's test" in done.out
    assert "b: graded with another rubric or judge: judge-model with gavel/qa-abstention-v1" in done.out
    assert "-> judge-model with nvidia/qa-abstention-v1" in done.out


@pytest.mark.parametrize("words", [("runs/none",), ("a", "b")])
async def test_fewer_than_two_runs_or_missing_ones_are_refused(tmp_path: Path, words: tuple[str, ...]) -> None:
    done = await gavel("compare", *words, cwd=tmp_path)
    assert done.code == 2
    assert "runs" in done.err or "no run in this folder" in done.err


async def test_a_sweep_of_rewards_stands_for_its_points(tmp_path: Path) -> None:
    async with FaultServer(reply=reply) as server:
        assert (
            await gavel(*arguments(write_tasks(tmp_path / "t.jsonl", 16), tmp_path / "run", server.base_url))
        ).code == 0
    swept = await gavel("rescore", str(tmp_path / "run"), "-m", "reward.abstain=0.5,0.25", f"into={tmp_path / 'sweep'}")
    assert swept.code == 0, swept.err
    done = await gavel("compare", str(tmp_path / "sweep"), f"out={tmp_path / 'out'}")
    assert done.code == 0, done.err
    row = (tmp_path / "out" / "compare.csv").read_text().splitlines()[1]
    assert row.startswith("reward,000-reward.abstain=0.5,001-reward.abstain=0.25,0.500,0.375,-0.125,")
