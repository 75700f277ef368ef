"""Failure policies: strict stops at once, zero when too many of the last rows failed, never before it has seen
enough.
"""

from __future__ import annotations

import pytest

from gavel.envs.failure_policy import FailurePolicy, FailureWatch


def _feed(watch: FailureWatch, rows: str) -> str | None:
    """Feed rows (``g`` graded, ``u`` ungraded); return the first reason to stop."""
    return next((reason for row in rows if (reason := watch.observe_result(graded=row == "g"))), None)


def test_strict_stops_at_the_first_ungraded_row() -> None:
    watch = FailureWatch(FailurePolicy("strict"))
    assert _feed(watch, "gggg") is None
    assert "first ungraded" in str(watch.observe_result(graded=False))


def test_zero_goes_on_at_the_bound_and_stops_beyond_it() -> None:
    assert _feed(FailureWatch(FailurePolicy("zero")), "u" * 2 + "g" * 48) is None  # 2 of 50 = 4 %
    assert _feed(FailureWatch(FailurePolicy("zero", max_ungraded_fraction=0.04)), "u" * 2 + "g" * 48) is None
    assert "3 of the last 50 rows" in str(_feed(FailureWatch(FailurePolicy("zero")), "u" * 3 + "g" * 47))


def test_zero_does_not_judge_before_the_minimum() -> None:
    assert _feed(FailureWatch(FailurePolicy("zero")), "u" * 49) is None
    assert _feed(FailureWatch(FailurePolicy("zero")), "u" * 50) is not None


def test_old_failures_leave_the_window() -> None:
    assert (
        _feed(FailureWatch(FailurePolicy("zero", max_ungraded_fraction=0.05)), "g" * 45 + "u" * 2 + "g" * 200 + "u" * 9)
        is None
    )
    watch = FailureWatch(FailurePolicy("zero", window=10, minimum=10, max_ungraded_fraction=0.1))
    assert _feed(watch, "u" + "g" * 10 + "u") is None


@pytest.mark.parametrize("options", [{"max_ungraded_fraction": 1.5}, {"minimum": 0}, {"minimum": 300}])
def test_bounds_that_make_no_sense_are_refused(options: dict[str, float]) -> None:
    with pytest.raises(ValueError, match="allowed"):
        FailurePolicy("zero", **options)  # type: ignore[arg-type]
