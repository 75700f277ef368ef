"""Figures and their intervals, against values worked by hand."""

import math
import time
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gavel.envs.statistics import (
    compute_consistency,
    compute_mean,
    compute_pass_at,
    compute_ratio,
    compute_share,
    compute_t975,
    compute_wilson,
    encode_names,
)


def test_the_interval_of_a_share_is_clustered_by_task() -> None:
    # Tasks a: 1 1, b: 0 1, c: 0 0. R = 1/2; e = 1, 0, -1; v = 3/2 * 2/36 = 1/12; effective n = (1/4) / (1/12) = 3.
    # t(2) = 4.3027, t^2/n = 6.1711: half = 4.3027 * sqrt(1/12 + 6.1711/12) / 7.1711 = 0.4638.
    found = compute_share([True, True, False, True, False, False], encode_names("aabbcc"))
    assert found is not None
    assert (found.value, found.n) == (0.5, 6)
    assert (found.low, found.high) == pytest.approx((0.0362, 0.9638), abs=1e-4)


def test_the_interval_of_an_unbounded_mean_is_clustered_by_task() -> None:
    # Tasks a: 1 3, b: 5, c: 7. Mean 4; e = -4, 1, 3; v = 3/2 * 26/16 = 2.4375; 4 +- 4.3027 * 1.5612.
    found = compute_mean([1.0, 3.0, 5.0, 7.0], encode_names("aabc"))
    assert found is not None
    assert (found.value, found.low, found.high) == pytest.approx((4.0, -2.7176, 10.7176), abs=1e-3)


def test_a_ratio_counts_only_the_rows_of_its_denominator() -> None:
    # Attempted rows: a: 1, b: 0 1, d: 1. The same as the share over these four rows.
    numerators, denominators = [1.0, 0.0, 0.0, 1.0, 0.0, 1.0], [1.0, 0.0, 1.0, 1.0, 0.0, 1.0]
    assert compute_ratio(numerators, denominators, encode_names("aabbcd"), bounds=(0, 1)) == compute_share(
        [True, False, True, True], encode_names("abbd")
    )


@pytest.mark.parametrize("hits", [[True] * 6, [False] * 6])
def test_all_or_none_still_has_an_interval_by_the_number_of_tasks(hits: list[bool]) -> None:
    found = compute_share(hits, encode_names("aabbcc"))
    assert found is not None
    assert found.low is not None
    assert found.high is not None
    # Wilson at 3 tasks with t(2): width t^2/n / (1 + t^2/n) = 6.1711 / 7.1711.
    assert found.high - found.low == pytest.approx(0.8606, abs=1e-4)
    assert 0.0 <= found.low <= found.value <= found.high <= 1.0


def test_tasks_that_all_come_out_alike_are_worth_no_more_than_independent_rows() -> None:
    found = compute_share([True, False] * 3, encode_names("aabbcc"))  # the clustered variance is 0
    assert found is not None
    assert (found.low, found.high) == compute_wilson(0.5, 6, compute_t975(2))


def test_no_rows_give_no_figure_and_one_task_gives_no_interval() -> None:
    assert compute_share([], encode_names("")) is None
    assert compute_ratio([1.0], [0.0], encode_names("a")) is None
    one = compute_share([True, False], encode_names("aa"))
    assert one is not None
    assert (one.value, one.low, one.high, one.n) == (0.5, None, None, 2)


@given(st.lists(st.tuples(st.booleans(), st.integers(0, 5)), min_size=1, max_size=40))
def test_the_interval_of_a_share_holds_it_and_stays_within_its_bounds(rows: list[tuple[bool, int]]) -> None:
    found = compute_share([hit for hit, _ in rows], encode_names(task for _, task in rows))
    assert found is not None
    if found.low is not None and found.high is not None:
        assert 0.0 <= found.low <= found.value <= found.high <= 1.0


@given(st.lists(st.tuples(st.sampled_from([-1.0, 0.0, 1.0]), st.integers(0, 5)), min_size=1, max_size=40))
def test_the_interval_of_an_index_stays_within_its_bounds(rows: list[tuple[float, int]]) -> None:
    found = compute_mean([point for point, _ in rows], encode_names(task for _, task in rows), bounds=(-1.0, 1.0))
    assert found is not None
    assert -1.0 <= found.value <= 1.0
    if found.low is not None and found.high is not None:
        assert -1.0 <= found.low <= found.value + 1e-12
        assert found.value - 1e-12 <= found.high <= 1.0


def test_intervals_cover_the_truth_about_as_often_as_they_say() -> None:
    # 40 tasks of 8 rollouts, each task with its own chance from Beta(2, 3): the mean is 0.4. Intervals that take rows
    # as
    # independent would cover about 80 % here.
    draw = np.random.default_rng(7)
    clusters = np.repeat(np.arange(40), 8)
    covered = 0
    for _ in range(500):
        found = compute_share(draw.random(320) < np.repeat(draw.beta(2, 3, 40), 8), clusters)
        assert found is not None
        assert found.low is not None
        assert found.high is not None
        covered += found.low <= 0.4 <= found.high
    assert 0.92 <= covered / 500 <= 0.98


@pytest.mark.parametrize(
    ("df", "value"),
    [(1, 12.7062), (2, 4.3027), (9, 2.2622), (10, 2.2281), (15, 2.1314), (30, 2.0423), (100, 1.9840), (10**6, 1.95997)],
)
def test_students_t_is_the_tables(df: int, value: float) -> None:
    assert compute_t975(df) == pytest.approx(value, abs=2e-4)


@pytest.mark.parametrize("k", [1, 2, 3])
def test_pass_at_k_is_the_chance_over_all_choices_of_k_rows(k: int) -> None:
    rows = {"a": [True, False, False, False], "b": [True, True, True, False], "c": [False] * 3, "d": [True]}
    chances = [
        sum(any(choice) for choice in combinations(passed, k)) / math.comb(len(passed), k)
        for passed in rows.values()
        if len(passed) >= k
    ]
    passed = np.array([hit for hits in rows.values() for hit in hits])
    found = compute_pass_at(k, passed, encode_names(task for task, hits in rows.items() for _ in hits))
    assert found is not None
    assert found.value == pytest.approx(sum(chances) / len(chances))
    assert found.n == len(chances)


def test_pass_at_more_rows_than_any_task_has_is_no_figure() -> None:
    assert compute_pass_at(3, np.array([True, False]), encode_names("aa")) is None


def test_consistency_is_over_tasks_with_several_rows() -> None:
    found = compute_consistency(encode_names(["x", "x", "x", "y", "y"]), encode_names("aabbc"))
    assert found is not None
    assert (found.value, found.n) == (0.5, 2)
    assert compute_consistency(encode_names("xy"), encode_names("ab")) is None


def test_a_hundred_thousand_rows_take_well_under_a_second() -> None:
    clusters = np.repeat(np.arange(12_500), 8)
    hits = np.random.default_rng(0).random(100_000) < 0.5
    start = time.perf_counter()
    compute_share(hits, clusters)
    for k in (1, 2, 4, 8):
        compute_pass_at(k, hits, clusters)
    compute_consistency(hits.astype(np.int64), clusters)
    assert time.perf_counter() - start < 1.0
