"""What providers' refusals mean: each wording by its provider and status, and what must not be taken for another
thing.
"""

from __future__ import annotations

from typing import Any

import orjson
import pytest

from gavel.models.calls.error_words import read_meaning
from gavel.models.calls.retry import Refusal, classify_error_body, classify_status
from gavel.models.calls.wire import BadBody, decode_body, read_error_text
from gavel.models.failures import FailureKind

_K = FailureKind


def openai(message: str, code: Any = None, kind: str = "invalid_request_error") -> bytes:
    return orjson.dumps({"error": {"message": message, "type": kind, "param": None, "code": code}})


def refusal_of(status: int, body: bytes, host: str = "") -> Refusal:
    """As the client reads an answer."""
    if status != 200:
        return classify_status(status, read_error_text(body), "judge", host)
    with pytest.raises(BadBody) as caught:
        decode_body(body, responses=False)
    assert caught.value.error is not None
    return classify_error_body(caught.value.code, caught.value.error[:300], "judge", host)


def wrapped(raw: Any, code: int = 502) -> bytes:
    text = raw if isinstance(raw, str) else orjson.dumps(raw).decode()
    return orjson.dumps(
        {"error": {"code": code, "message": "Provider returned error", "metadata": {"raw": text, "provider_name": "X"}}}
    )


OVERFLOWS = {
    "openai": (
        400,
        openai("This model's maximum context length is 8192 tokens. However, 9000.", "context_length_exceeded"),
    ),
    "openai, reasoning": (400, openai("Input tokens exceed the configured limit of 272000 tokens. Your messages")),
    "anthropic": (400, openai("prompt is too long: 208310 tokens > 200000 maximum")),
    "anthropic, with the limit": (
        400,
        openai("input length and `max_tokens` exceed context limit: 190000 + 20000 > 200000"),
    ),
    "sglang": (
        400,
        openai(
            "The input (5120 tokens) is longer than the model's context length (4096 tokens).", 400, "BadRequestError"
        ),
    ),
    "sglang, with the limit": (
        400,
        openai("Requested token count exceeds the model's maximum context length of 4096 tokens. You requested"),
    ),
    "llama.cpp": (
        400,
        openai(
            "request (9 tokens) exceeds the available context size (8 tokens), try increasing it",
            400,
            "exceed_context_size_error",
        ),
    ),
    "llama.cpp, older": (
        400,
        openai(
            "the request exceeds the available context size. try increasing the context size or enable context shift"
        ),
    ),
    "tgi": (
        422,
        b'{"error":"Input validation error: `inputs` tokens + `max_new_tokens` '
        b'must be <= 4096. Given: 4000","error_type":"validation"}',
    ),
    "tgi, inputs": (
        422,
        b'{"error":"Input validation error: `inputs` must have less than 1024 tokens. Given: '
        b'1500","error_type":"validation"}',
    ),
    "gemini": (
        400,
        b'[{"error":{"code":400,"message":"The input token count (1100000) exceeds the '
        b'maximum number of tokens allowed (1048576).","status":"INVALID_ARGUMENT"}}]',
    ),
    "vllm": (
        400,
        openai(
            "The decoder prompt (length 9000) is longer than the maximum model length of 8192.", 400, "BadRequestError"
        ),
    ),
    "vllm, passed": (
        400,
        openai(
            "You passed 8000 input tokens and requested 500 output tokens. However, the model's context length is "
            "only 8192 tokens"
        ),
    ),
    "dashscope": (
        400,
        openai(
            "<400> InternalError.Algo.InvalidParameter: Range of input length should be [1, 129024]",
            "invalid_parameter_error",
        ),
    ),
    "deepseek": (
        400,
        openai(
            "This model's maximum context length is 65536 tokens. However, you requested 70000 tokens",
            "invalid_request_error",
        ),
    ),
    "openrouter": (
        400,
        openai(
            "This endpoint's maximum context length is 32768 tokens. However, you requested about 40000 tokens", 400
        ),
    ),
    "ollama": (400, openai("the input length exceeds the context length", None, "api_error")),
    "xai": (
        400,
        b'{"code":"bad","error":"This model\'s maximum prompt length is 131072 but the request contains 200000 '
        b'tokens."}',
    ),
    "moonshot": (400, openai("Invalid request: Your request exceeded model token limit: 8192")),
    "behind a gateway": (502, wrapped({"error": {"message": "This model's maximum context length is 8192 tokens."}})),
    "behind a gateway, under 200": (
        200,
        wrapped({"type": "error", "error": {"message": "prompt is too long: 9 tokens > 8 maximum"}}),
    ),
}


@pytest.mark.parametrize("name", OVERFLOWS)
def test_a_prompt_that_is_too_long_is_an_overflow_in_every_providers_words(name: str) -> None:
    refusal = refusal_of(*OVERFLOWS[name])
    assert (refusal.kind, refusal.retryable, refusal.trips) == (_K.CONTEXT_OVERFLOW, False, False)


FILTERS = {
    "azure": (
        400,
        openai(
            "The response was filtered due to the prompt triggering Azure OpenAI's content management policy.",
            "content_filter",
        ),
    ),
    "dashscope": (400, openai("Input data may contain inappropriate content.", "data_inspection_failed")),
    "openai": (
        400,
        openai("Invalid prompt: your prompt was flagged as potentially violating our usage policy.", "invalid_prompt"),
    ),
    "openai, images": (
        400,
        openai("Your request was rejected as a result of our safety system.", "content_policy_violation"),
    ),
    "deepseek": (400, openai("Content Exists Risk", "invalid_request_error")),
    "openrouter": (
        403,
        b'{"error":{"code":403,"message":"m requires moderation and your input was '
        b'flagged","metadata":{"reasons":["violence"],"flagged_input":"x"}}}',
    ),
    "openrouter, bare": (
        403,
        b'{"error":{"code":403,"message":"Forbidden","metadata":{"reasons":["violence"],"flagged_input":"x"}}}',
    ),
    "anthropic": (400, openai("Output blocked by content filtering policy")),
    "behind a gateway": (502, wrapped({"error": {"message": "Content Exists Risk"}})),
    "under 200": (200, wrapped({"error": {"code": "data_inspection_failed", "message": "no"}}, 400)),
}


@pytest.mark.parametrize("name", FILTERS)
def test_a_flagged_prompt_costs_its_own_row_only(name: str) -> None:
    refusal = refusal_of(*FILTERS[name])
    assert (refusal.kind, refusal.retryable, refusal.trips) == (_K.CONTENT_FILTERED, False, False)
    assert not refusal.broken or refusal.status == 502


ACCOUNTS = {
    "litellm": (
        400,
        openai("Budget has been exceeded! Current cost: 12.1, Max budget: 12.0", "400", "budget_exceeded"),
    ),
    "litellm, 429": (
        429,
        openai("Budget has been exceeded! Current cost: 3.0, Max budget: 2.0", "429", "budget_exceeded"),
    ),
    "openrouter": (402, openai("This request requires more credits, or fewer max_tokens.", 402)),
    "deepseek": (402, openai("Insufficient Balance", "invalid_request_error")),
    "openai": (
        429,
        openai(
            "You exceeded your current quota, please check your plan. docs: https://platform.openai.com/docs/x",
            "insufficient_quota",
        ),
    ),
    "dashscope": (400, openai("Access denied, please make sure your account is in good standing.", "Arrearage")),
    "another 403": (403, openai("Country, region, or territory not supported", "unsupported_country_region_territory")),
}


@pytest.mark.parametrize("name", ACCOUNTS)
def test_an_account_that_a_person_must_mend_trips(name: str) -> None:
    refusal = refusal_of(*ACCOUNTS[name])
    assert (refusal.kind, refusal.retryable, refusal.trips) == (_K.PROVIDER_QUOTA_EXHAUSTED, False, True)


QUOTA = openai(
    "You exceeded your current quota, please check your plan and billing details.",
    "insufficient_quota",
    "insufficient_quota",
)
ALIYUN = openai(
    "You exceeded your current quota. Read the docs: https://help.aliyun.com/zh/model-studio/error-code",
    "insufficient_quota",
)


@pytest.mark.parametrize(
    ("body", "host", "trips"),
    [
        (QUOTA, "dashscope-intl.aliyuncs.com", False),
        (QUOTA, "generativelanguage.googleapis.com", False),
        (QUOTA, "api.openai.com", True),
        (QUOTA, "gateway.example.org", False),
        (ALIYUN, "gateway.example.org", False),
    ],
)
def test_a_spent_quota_is_a_minutes_limit_or_a_dead_account_by_who_says_it(body: bytes, host: str, trips: bool) -> None:
    refusal = refusal_of(429, body, host)
    assert (refusal.trips, refusal.paced) == (trips, not trips)


@pytest.mark.parametrize(
    ("status", "body"),
    [
        (404, openai("The model `gpt-9` does not exist or you do not have access to it.", "model_not_found")),
        (404, openai("The API deployment for this resource does not exist.", "DeploymentNotFound")),
        (400, openai("x/y is not a valid model ID", 400)),
        (400, openai("Model Not Exist", "invalid_request_error")),
        (400, openai("litellm: Invalid model name passed in model=x. Call `/v1/models` to view available models")),
        (404, openai('model "qwen9" not found, try pulling it first', None, "api_error")),
        (404, b'[{"error":{"code":404,"message":"models/gemini-9 is not found for API version v1main"}}]'),
        (400, openai("Model 'x' not found")),
    ],
)
def test_an_unknown_model_trips(status: int, body: bytes) -> None:
    refusal = refusal_of(status, body)
    assert (refusal.kind, refusal.retryable, refusal.trips) == (_K.PROVIDER_UNAVAILABLE, False, True)


def test_what_a_provider_behind_a_gateway_will_never_take_is_not_asked_again() -> None:
    refused = wrapped(
        {"type": "error", "error": {"type": "invalid_request_error", "message": "messages.0: text is blank"}}
    )
    for status in (200, 502):
        assert not refusal_of(status, refused).retryable


def test_one_request_larger_than_a_minutes_tokens_waits_for_nothing() -> None:
    said = (
        "Request too large for gpt-4o on tokens per min (TPM): Limit 30000, Requested 50000. The input or output "
        "tokens must be reduced"
    )
    refusal = refusal_of(429, openai(said, "rate_limit_exceeded", "tokens"))
    assert (refusal.retryable, refusal.paced, refusal.trips) == (False, False, False)


@pytest.mark.parametrize(
    ("status", "message"),
    [
        (429, "Too many tokens, please wait before trying again"),
        (429, "rate_limit_exceeded: limit of the context cache"),
        (529, "Overloaded"),
        (503, "Loading model"),
        (500, "The server had an error while processing your request"),
        (400, "Unknown field: moderation_level"),
        (400, "The image was not found; the model supports PNG"),
        (400, "max_tokens is too large: 9000. This model supports at most 4096 completion tokens"),
    ],
)
def test_other_words_mean_nothing_beyond_their_status(status: int, message: str) -> None:
    assert read_meaning(status, message) is None


@pytest.mark.parametrize(
    ("status", "message"),
    [
        (200, "Too many tokens, please wait before trying again."),
        (503, "Too many tokens, please wait before trying again."),
        (400, "Too many tokens, please slow down"),
        (502, "Too many requests in the last minute"),
        (503, "input queue is too long: the request exceeds the maximum input size of the queue"),
        (503, "The waiting queue is full, the context budget is exceeded"),
    ],
)
def test_more_than_a_server_takes_at_once_is_waited_for(status: int, message: str) -> None:
    refusal = refusal_of(status, openai(message))
    assert (refusal.kind, refusal.retryable, refusal.paced) == (_K.PROVIDER_UNAVAILABLE, True, True)


@pytest.mark.parametrize(
    ("status", "message"),
    [
        (403, "Your account was flagged and has been suspended"),
        (403, "Your account has been flagged for potentially violating our usage policies"),
        (400, "This organization has been disabled."),
        (401, "Project proj_9 is currently blocked"),
    ],
)
def test_a_flagged_account_is_no_flagged_prompt(status: int, message: str) -> None:
    refusal = refusal_of(status, openai(message))
    assert (refusal.kind, refusal.trips) == (_K.PROVIDER_QUOTA_EXHAUSTED, True)


@pytest.mark.parametrize(
    "message",
    [
        "The response_format type json_schema was flagged as unsupported",
        "temperature is flagged as deprecated for this model",
        "this field has been flagged invalid",
    ],
)
def test_a_flagged_field_is_no_flagged_prompt(message: str) -> None:
    assert read_meaning(400, message) is None


@pytest.mark.parametrize(
    "message", ["Input was flagged as unsafe", "Your prompt was flagged; your account may be suspended"]
)
def test_a_prompt_flagged_in_other_words_stays_filtered(message: str) -> None:
    assert read_meaning(400, message) == "filtered"


@pytest.mark.parametrize(
    ("status", "message"),
    [
        (500, "daily rate limit reached for this key"),
        (502, "upstream: Rate limit exceeded"),
        (500, "You have hit your per-minute limit, slow down"),
    ],
)
def test_a_limit_of_calls_that_comes_as_a_broken_server_is_waited_for(status: int, message: str) -> None:
    refusal = classify_status(status, message, "judge")
    assert (refusal.kind, refusal.retryable, refusal.paced) == (_K.PROVIDER_UNAVAILABLE, True, True)


@pytest.mark.parametrize("words", ["can handle", "support"])
def test_a_router_without_a_provider_for_these_parameters_closes_nothing(words: str) -> None:
    refusal = classify_status(404, f"No endpoints found that {words} the requested parameters.", "judge")
    assert (refusal.kind, refusal.retryable, refusal.trips) == (_K.JUDGE_FAILED, False, False)
    assert classify_status(404, "No endpoints found matching your data policy", "judge").trips
