"""Ledgers of trainings read back: which samples count, curves, the first steps against the last; figures worked out by
hand.
"""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import orjson
import pytest
from tests.support.ledgers import write_ledger

from gavel.launch.comparing.curves import (
    compute_change,
    compute_checks,
    compute_mean_of,
    make_curve,
    match_label,
    split_ends,
    summarize_reward,
)
from gavel.launch.comparing.ledgers import LedgerSample, read_samples
from gavel.launch.comparing.pictures import draw_runs
from gavel.launch.comparing.training import TrainedRun, compare_training
from gavel.models.errors import InputError

TASKS = "abcde"


def sample(step: int, task: str, reward: float | None, rollout: int = 0) -> LedgerSample:
    return LedgerSample(step, (task, "d"), rollout, reward, label="good" if reward else "bad", checks=reward)


def test_a_step_done_again_by_a_later_start_takes_the_place_of_what_was_recorded(tmp_path: Path) -> None:
    write_ledger(tmp_path, {1: {"a": [0.0]}, 2: {"a": [0.0]}, 3: {"a": [0.0]}}, start="first")
    write_ledger(
        tmp_path, {2: {"a": [1.0]}}, start="second"
    )  # it was killed after step 3 and had a checkpoint of step 1
    assert [(one.step, one.reward) for one in read_samples(tmp_path)] == [(1, 0.0), (2, 1.0)]


def test_a_start_that_trains_on_samples_of_an_earlier_one_keeps_both(tmp_path: Path) -> None:
    # An asynchronous training goes on with groups out of its replay buffer, beside new ones, in any order.
    write_ledger(tmp_path, {1: {"a": [0.0]}}, start="first")
    path = tmp_path / "ledger" / "steps.jsonl"
    row = orjson.loads(path.read_bytes())
    later = [{**row, "step": 2, "uid": uid, "start": "second"} for uid in ("first-2", "second-1", "first-3")]
    path.write_bytes(b"".join(orjson.dumps(one) + b"\n" for one in (row, *later)))
    assert [one.step for one in read_samples(tmp_path)] == [1, 2, 2, 2]


def test_a_sample_without_a_row_is_ungraded_and_half_a_line_is_not_there_yet(tmp_path: Path) -> None:
    write_ledger(tmp_path, {1: {"a": [1.0, None]}})
    path = tmp_path / "ledger" / "steps.jsonl"
    row = {**orjson.loads(path.read_bytes().splitlines()[0]), "uid": "s1-cut", "weight": 0.0}
    with path.open("ab") as file:
        file.write(orjson.dumps(row) + b'\n{"schema":"gav')
    samples = read_samples(tmp_path)
    assert [(one.reward, one.failure) for one in samples] == [
        (1.0, None),
        (None, "transport_unreachable"),
        (None, "gavel:episode_cut"),
    ]


def test_a_damaged_line_is_named(tmp_path: Path) -> None:
    write_ledger(tmp_path, {1: {"a": [1.0]}})
    with (tmp_path / "ledger" / "echo.rows.jsonl").open("a") as file:
        file.write("{no json}\n")
    with pytest.raises(InputError, match=r"echo\.rows\.jsonl:2"):
        read_samples(tmp_path)


def test_a_run_that_did_nothing_has_no_samples(tmp_path: Path) -> None:
    assert read_samples(tmp_path) == ()
    assert make_curve(()) == ()
    assert "two steps" in summarize_reward(())[0]


def test_a_point_is_the_mean_of_its_graded_samples_and_smooth_that_of_the_last_steps() -> None:
    samples = [
        sample(1, "a", 0.0),
        sample(1, "b", 0.5),
        sample(2, "a", 1.0),
        sample(2, "b", None),
        sample(3, "a", None),
    ]
    first, second, third = make_curve(samples, window=2)
    assert first.mean is not None
    assert (first.step, first.mean.value, first.mean.n, first.ungraded) == (1, 0.25, 2, 0)
    # two tasks of one sample each: t(1) = 12.7062, sd = 0.5 / sqrt(2), over sqrt(2): 12.7062 * 0.25
    assert first.mean.high == pytest.approx(0.25 + 12.7062 * 0.25)
    assert second.mean is not None
    assert (second.mean.value, second.mean.n, second.ungraded) == (1.0, 1, 1)
    assert second.smooth is not None
    assert second.smooth.value == pytest.approx(0.5)  # (0 + 0.5 + 1) / 3
    assert third.mean is None
    assert third.smooth is not None
    assert third.smooth.value == 1.0


def test_both_ends_are_compared_within_the_tasks_they_share() -> None:
    # five tasks at both ends: 0 0 .5 .5 1 before, each 0.2 more after, but the last 0.1 less
    before, after = [0.0, 0.0, 0.5, 0.5, 1.0], [0.2, 0.2, 0.7, 0.7, 0.9]
    samples = [
        sample(step, task, value)
        for step, side in ((1, before), (2, after))
        for task, value in zip(TASKS, side, strict=True)
    ]
    found = compute_change(*split_ends(samples, 5))
    assert found is not None
    assert (found.first.value, found.last.value, found.paired) == (pytest.approx(0.4), pytest.approx(0.54), 5)
    # differences .2 .2 .2 .2 -.1: mean 0.14, sd = sqrt((4 * 0.06^2 + 0.24^2) / 4) = 0.1342, t(4) = 2.7764, half =
    # 2.7764 * sd / sqrt 5
    assert found.difference.value == pytest.approx(0.14)
    half = 2.7764 * math.sqrt((4 * 0.06**2 + 0.24**2) / 4) / math.sqrt(5)
    assert found.difference.low == pytest.approx(0.14 - half)
    assert found.difference.high == pytest.approx(0.14 + half)


def test_ends_that_share_no_tasks_are_compared_by_welch() -> None:
    before = [sample(1, f"a{number}", float(number < 5)) for number in range(10)]
    found = compute_change(*split_ends([*before, *(sample(2, f"b{number}", 1.0) for number in range(10))]))
    assert found is not None
    assert (found.difference.value, found.paired) == (0.5, 0)
    # variances 10 * 0.25 / 9 / 10 and 0: 9 degrees of freedom, t(9) = 2.2622
    assert found.difference.high == pytest.approx(0.5 + 2.2622 * math.sqrt(0.25 / 9))


@pytest.mark.parametrize(("before", "after"), [(4, 4), (2, 2), (9, 30), (1, 1)])
def test_a_few_prompts_against_others_give_no_verdict(before: int, after: int) -> None:
    """How hard the prompts of a step happen to be is no change: here all of one step fail and all of another
    succeed.
    """
    samples = [sample(1, f"a{n}", n % 2 * 0.1) for n in range(before)] + [
        sample(2, f"b{n}", 1 - n % 2 * 0.1) for n in range(after)
    ]
    found = compute_change(*split_ends(samples), bounds=((0.0, 1.0), (0.0, 1.0)))
    assert found is not None
    assert (found.difference.low, found.difference.high) == (None, None)
    said = " ".join(summarize_reward(samples, bounds=(0.0, 1.0)))
    assert "beyond noise" not in said
    assert "too few tasks for an interval" in said


@pytest.mark.parametrize(
    ("values", "bounds"), [([0.3] * 5, None), ([0.0] * 40, None), ([1.0, 1.0], (0.0, 1.0)), ([0.1 + 0.2, 0.3], None)]
)
def test_equal_values_give_no_point_for_an_interval(values: list[float], bounds: tuple[float, float] | None) -> None:
    found = compute_mean_of(values, bounds)
    assert (found.low, found.high) == (None, None)


def test_equal_values_of_a_bounded_figure_may_still_differ_in_others_of_the_kind() -> None:
    # of 5 equal ones at most 1 - 0.025^(1/5) = 0.5218 differ, each by half the range at most
    found = compute_mean_of([1.0] * 5, (0.0, 1.0))
    assert (found.low, found.high) == (pytest.approx(1 - 0.5218 / 2, abs=1e-4), 1.0)
    many = compute_mean_of([0.5] * 100, (0.0, 1.0))
    assert many.low is not None
    assert many.high is not None
    assert 0 < many.high - many.low < 0.04


def test_the_points_of_a_curve_keep_to_the_bounds_of_the_reward() -> None:
    samples = [sample(step, task, float(place < 4)) for step in (1, 2) for place, task in enumerate(TASKS)]
    for point in make_curve(samples, bounds=(0.0, 1.0)):
        for metric in (point.mean, point.smooth):
            assert metric is not None
            assert metric.low is not None
            assert metric.high is not None
            assert 0.0 <= metric.low < metric.value < metric.high <= 1.0


def test_the_window_is_never_more_than_half_the_run() -> None:
    samples = [sample(step, "a", 0.0) for step in range(1, 8)]
    first, last = split_ends(samples, 5)
    assert [one.step for one in first] == [1, 2, 3]
    assert [one.step for one in last] == [5, 6, 7]


def test_a_rise_is_beyond_noise_only_if_its_interval_leaves_out_zero() -> None:
    rising = [
        sample(step, task, 0.3 * step + 0.01 * step * place) for step in (1, 2) for place, task in enumerate(TASKS)
    ]
    # differences .30 .31 .32 .33 .34: sd 0.015811, t(4) = 2.7764: half = 0.0196
    assert "change +0.320 [+0.300, +0.340] (paired by 5 tasks, 95 %): beyond noise" in summarize_reward(rising)[1]
    alike = [sample(step, task, 0.3 * step) for step in (1, 2) for task in TASKS]
    assert (
        summarize_reward(alike)[1] == "change +0.300 (paired by 5 tasks); equal in all 5 tasks, which gives no interval"
    )
    mixed = [sample(2, task, 0.5 + (-1) ** place * 0.4) for place, task in enumerate(TASKS)] + [
        sample(1, task, 0.5) for task in TASKS
    ]
    assert "within noise" in summarize_reward(mixed)[1]


def test_an_interval_of_rewards_keeps_to_their_range_where_it_is_known() -> None:
    # last step: 1 1 1 1 0: mean 0.8, sd sqrt(0.2), t(4) = 2.7764: half = 2.7764 * 0.2 = 0.555
    rising = [sample(1, task, 0.0) for task in TASKS] + [
        sample(2, task, float(place < 4)) for place, task in enumerate(TASKS)
    ]
    assert summarize_reward(rising)[0] == "mean reward: first step 0.000, last step 0.800 [0.245, 1.355]"
    bounded = summarize_reward(rising, bounds=(0.0, 1.0))
    assert bounded[0].endswith("last step 0.800 [0.245, 1.000]")
    assert "change +0.800 [+0.245, +1.000]" in bounded[1]


def test_labels_and_checks_are_measured_like_rewards() -> None:
    samples = [sample(1, "a", 1.0), sample(1, "b", 0.0), sample(1, "c", None)]
    assert make_curve(samples, match_label("good"))[0].mean == make_curve(samples, compute_checks)[0].mean


def test_curves_are_drawn_and_two_drawings_are_the_same(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib", reason="pictures need matplotlib (extra report)")
    samples = [sample(step, task, 0.1 * step) for step in range(1, 7) for task in TASKS]
    assert draw_runs(tmp_path / "a.svg", {"run": samples})
    assert draw_runs(tmp_path / "b.svg", {"run": samples})
    text = (tmp_path / "a.svg").read_text()
    assert text == (tmp_path / "b.svg").read_text()
    assert "mean reward" in text
    assert not draw_runs(tmp_path / "none.svg", {"run": []})


def test_tasks_that_are_alike_are_one_cluster_in_every_interval_of_a_training(tmp_path: Path) -> None:
    rewards = {"p": (0.1, 0.3), "q": (0.4, 0.9), "r": (0.2, 0.2), "s": (0.0, 0.5), "t": (0.6, 0.8), "u": (0.3, 0.7)}
    found = []
    for folder, simulators in ((tmp_path / "one", "a"), (tmp_path / "four", "abcd")):
        steps = {
            step: {f"{persona}/{name}": [pair[step - 1]] for persona, pair in rewards.items() for name in simulators}
            for step in (1, 2)
        }
        write_ledger(folder, steps)
        samples = read_samples(folder, clusters="persona")
        assert {one.cluster for one in samples} == set(rewards)
        assert {one.cluster for one in read_samples(folder)} == {""}
        moved = compute_change(*split_ends(samples, 1), bounds=((0.0, 1.0), (0.0, 1.0)))
        assert moved is not None
        group = [TrainedRun(name, name, 1, "r", samples, (0.0, 1.0)) for name in ("x", "y")]
        group[1] = replace(group[1], samples=[replace(one, step=3 - one.step) for one in samples])
        compared = compare_training(group, window=1).differences[0].over_tasks
        means = [point.mean for point in make_curve(samples)]
        found.append(
            [metric for metric in (*means, moved.first, moved.last, moved.difference, compared) if metric is not None]
        )
    for one, four in zip(*found, strict=True):
        assert (one.value, one.low, one.high) == pytest.approx((four.value, four.low, four.high)), (one, four)
