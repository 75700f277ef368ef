"""What is tried again and after which wait."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gavel.models.calls.pace import parse_retry_after, read_pace
from gavel.models.calls.retry import Backoff, classify_error_body, classify_status
from gavel.models.failures import FailureKind

NOW = 1_700_000_000.0  # Tue, 14 Nov 2023 22:13:20 GMT


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        ("2", 2.0),
        ("0.5", 0.5),
        (" 3 ", 3.0),
        ("Tue, 14 Nov 2023 22:13:50 GMT", 30.0),
        ("Tue, 14 Nov 2023 22:13:00 GMT", 0.0),
        ("soon", None),
        ("-1", None),
        ("nan", None),
        ("", None),
    ],
)
def test_retry_after_is_read_in_seconds_and_as_a_date(value: str, seconds: float | None) -> None:
    assert parse_retry_after({"retry-after": value}, NOW) == seconds


@given(st.text(max_size=40))
def test_retry_after_never_raises_and_never_is_negative(value: str) -> None:
    found = parse_retry_after({"retry-after": value}, NOW)
    assert found is None or 0.0 <= found < float("inf")


@given(st.integers(1, 2000), st.integers(0, 2**32), st.none() | st.floats(0, 100))
def test_the_wait_stays_between_its_bounds(failures: int, seed: int, retry_after: float | None) -> None:
    backoff = Backoff(base=0.5, cap=8.0)
    delay = backoff.compute_delay(failures, random.Random(seed), retry_after)
    ceiling = min(8.0, 0.5 * 2.0 ** (failures - 1)) if failures < 20 else 8.0
    if retry_after is None:
        assert 0.0 <= delay <= ceiling
    else:
        assert retry_after <= delay <= retry_after + 0.5


def test_the_jitter_is_full() -> None:
    draws = [Backoff(base=1.0, cap=8.0).compute_delay(3, random.Random(seed)) for seed in range(400)]
    assert min(draws) < 0.1
    assert max(draws) > 3.9
    assert 1.8 < sum(draws) / len(draws) < 2.2


@pytest.mark.parametrize(
    "message",
    [
        "This model's maximum context length is 8192 tokens. However, you requested 9000 tokens.",
        "The decoder prompt (length 9000) is longer than the maximum model length of 8192.",
        "prompt is too long: 208310 tokens > 200000 maximum",
        "code: context_length_exceeded",
    ],
)
def test_a_context_length_message_is_an_overflow(message: str) -> None:
    refusal = classify_status(400, message, "judge")
    assert (refusal.kind, refusal.retryable, refusal.trips) == (FailureKind.CONTEXT_OVERFLOW, False, False)


@pytest.mark.parametrize(
    "message",
    [
        "insufficient_quota: You exceeded your current quota. Read the docs: "
        "https://platform.openai.com/docs/guides/error-codes",
        "billing_hard_limit_reached",
        "Your account is not active, please check your billing details",
        "Your credit balance is too low to access the API",
        "authentication_error: invalid x-api-key",
    ],
)
@pytest.mark.parametrize("status", [400, 403, 429])
def test_a_spent_account_is_permanent_under_any_status(status: int, message: str) -> None:
    refusal = classify_status(status, message, "policy")
    assert (refusal.kind, refusal.retryable, refusal.trips) == (FailureKind.PROVIDER_QUOTA_EXHAUSTED, False, True)


def test_a_rate_limit_is_not_taken_for_a_spent_account() -> None:
    refusal = classify_status(429, "rate_limit_exceeded: Rate limit reached for requests", "judge")
    assert (refusal.retryable, refusal.trips, refusal.overloaded) == (True, False, True)


@pytest.mark.parametrize(
    ("role", "kind"),
    [("judge", "judge_failed"), ("policy", "provider_unavailable"), ("simulator", "provider_unavailable")],
)
def test_a_refused_request_has_the_kind_of_its_role(role: str, kind: str) -> None:
    assert classify_status(400, "Unrecognized argument", role).kind == kind  # type: ignore[arg-type]


@pytest.mark.parametrize("status", [301, 400, 405, 413, 418, 422])
def test_other_client_errors_are_permanent(status: int) -> None:
    assert not classify_status(status, "no", "judge").retryable


@pytest.mark.parametrize("status", [500, 501, 502, 503, 504, 520, 529, 599])
def test_server_errors_are_tried_again(status: int) -> None:
    assert classify_status(status, "no", "judge").retryable


def test_an_error_under_status_200_is_classified_by_the_status_it_names() -> None:
    assert classify_error_body(401, "no", "judge").kind is FailureKind.PROVIDER_QUOTA_EXHAUSTED
    assert classify_error_body(503, "no", "judge").retryable
    assert classify_error_body(None, "overloaded", "judge").retryable
    assert classify_error_body(None, "billing_hard_limit_reached", "judge").trips


@pytest.mark.parametrize(
    ("headers", "text", "seconds"),
    [
        ({"Retry-After": "20"}, "", 20.0),
        ({"retry-after-ms": "1500", "Retry-After": "2"}, "", 1.5),
        ({"Retry-After": "Tue, 14 Nov 2023 22:13:50 GMT"}, "", 30.0),
        ({}, "Rate limit reached for gpt-4o on tokens per min (TPM). Please try again in 644ms. Visit ...", 0.644),
        ({}, "Limit 30000, Used 29000. Please try again in 1m12.5s.", 72.5),
        ({}, "exceeded token rate limit of your current tier. Please retry after 22 seconds.", 22.0),
        ({}, "Quota exceeded for metric.\nPlease retry in 22.5s.", 22.5),
        ({}, '{"retryDelay": "17s"}', 17.0),
        ({}, "Please wait 2 minutes before retrying", 120.0),
        ({"x-ratelimit-reset-requests": "6ms", "x-ratelimit-remaining-requests": "0"}, "", 0.006),
        ({"X-RateLimit-Reset-Tokens": "1m30s", "x-ratelimit-remaining-tokens": "120"}, "", 90.0),
        (
            {
                "x-ratelimit-reset-requests": "23h",
                "x-ratelimit-remaining-requests": "9",
                "x-ratelimit-reset-tokens": "7.66s",
            },
            "",
            7.66,
        ),
        ({"X-RateLimit-Reset": "1700000020000"}, "", 20.0),
        ({"X-RateLimit-Reset": "1700000020"}, "", 20.0),
        (
            {
                "anthropic-ratelimit-requests-reset": "2023-11-14T22:13:50Z",
                "anthropic-ratelimit-requests-remaining": "0",
            },
            "",
            30.0,
        ),
        ({"Retry-After": "soon"}, "Too many requests", None),
        ({}, "Model gpt-4o-mini is overloaded. Try again later, after 5 of them are done", None),
    ],
)
def test_what_a_refusal_asks_to_wait_is_read_wherever_it_stands(
    headers: dict[str, str], text: str, seconds: float | None
) -> None:
    assert read_pace(headers, text, NOW) == (None if seconds is None else pytest.approx(seconds))


@given(st.text(max_size=80), st.text(max_size=30))
def test_a_hint_never_raises_and_never_is_negative(text: str, value: str) -> None:
    for found in (
        read_pace({}, text, NOW),
        read_pace({"x-ratelimit-reset": value}, f"please try again in {value}", NOW),
    ):
        assert found is None or 0.0 <= found < float("inf")
