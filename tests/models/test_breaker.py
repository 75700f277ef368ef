"""When the breaker lets calls pass, by a clock of the test's own."""

from __future__ import annotations

from gavel.models.calls.breaker import FIRST_PAUSE, LONGEST_PAUSE, SPAN, THRESHOLD, Breaker
from gavel.models.failures import FailureKind

UNREACHABLE, QUOTA, UNAVAILABLE = (
    FailureKind.TRANSPORT_UNREACHABLE,
    FailureKind.PROVIDER_QUOTA_EXHAUSTED,
    FailureKind.PROVIDER_UNAVAILABLE,
)


def opened() -> tuple[Breaker, float]:
    breaker = Breaker()
    for n in range(THRESHOLD):
        breaker.record_failure(n * SPAN / (THRESHOLD - 1), "no route", UNREACHABLE)
    return breaker, SPAN


def test_it_opens_after_failures_in_a_row_over_a_span() -> None:
    breaker, now = opened()
    assert breaker.state == "open"
    assert breaker.kind is UNREACHABLE
    assert "10 tries in a row failed, the last with: no route" in (breaker.refuse_reason(now) or "")


def test_a_burst_that_breaks_every_call_in_flight_does_not_open_it() -> None:
    breaker = Breaker()
    for _ in range(512):
        breaker.record_failure(0.0, "reset", UNREACHABLE)
    assert breaker.refuse_reason(SPAN - 0.1) is None


def test_failures_with_answers_between_never_open_it() -> None:
    breaker = Breaker()
    for n in range(1000):
        breaker.record_failure(float(n), "reset", UNREACHABLE)
        if n % (THRESHOLD - 1) == 0:
            breaker.record_answer()
    assert breaker.state == "closed"


def test_one_probe_passes_after_the_pause_and_its_success_closes() -> None:
    breaker, now = opened()
    assert breaker.refuse_reason(now + FIRST_PAUSE - 0.01) is not None
    assert breaker.refuse_reason(now + FIRST_PAUSE) is None
    assert breaker.state == "half_open"
    assert breaker.refuse_reason(now + FIRST_PAUSE) is not None  # only one
    breaker.record_answer()
    assert breaker.state == "closed"
    assert breaker.refuse_reason(now + FIRST_PAUSE) is None


def test_failed_probes_double_the_pause_up_to_its_bound() -> None:
    breaker, now = opened()
    pause, pauses = FIRST_PAUSE, []
    for _ in range(6):
        now += pause
        assert breaker.refuse_reason(now) is None
        breaker.record_failure(now, "no route", UNREACHABLE)
        pause = min(2 * pause, LONGEST_PAUSE)
        pauses.append(pause)
        assert breaker.refuse_reason(now + pause - 0.01) is not None
    assert pauses == [10.0, 20.0, 40.0, 60.0, 60.0, 60.0]


def test_a_cancelled_probe_leaves_its_role_to_the_next_call() -> None:
    breaker, now = opened()
    assert breaker.refuse_reason(now + FIRST_PAUSE) is None
    breaker.record_cancelled()
    assert breaker.refuse_reason(now + FIRST_PAUSE) is None


def test_a_permanent_refusal_trips_it_for_good_with_the_providers_first_words() -> None:
    breaker = Breaker()
    breaker.trip("HTTP 401: wrong key", QUOTA)
    breaker.trip("HTTP 404: no such model", UNAVAILABLE)
    breaker.record_answer()
    assert breaker.state == "tripped"
    breaker.record_failure(0.0, "reset", UNREACHABLE)
    assert breaker.kind is QUOTA
    assert "HTTP 401: wrong key" in (breaker.refuse_reason(1e9) or "")
