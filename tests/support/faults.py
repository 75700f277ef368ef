"""The faults a fault server can play, as tables: one name, one entry."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import orjson


@dataclass(frozen=True)
class Fault:
    """One fault by name; ``seconds`` for those that wait, ``text`` for those that answer a text, ``retry_after`` for a
    header.
    """

    name: str
    seconds: float = 30.0
    text: str | None = None
    retry_after: str | None = None


@dataclass(frozen=True)
class Answer:
    """What the server answers: ``text`` None is a null content; ``usage`` replaces the counted one."""

    text: str | None
    finish_reason: str = "stop"
    reasoning: str | None = None
    model: str | None = None
    usage: Mapping[str, Any] | None = None
    refusal: str | None = None


def _error(message: str, code: str, kind: str = "invalid_request_error") -> bytes:
    return orjson.dumps({"error": {"message": message, "type": kind, "code": code, "param": None}})


STATUS: dict[str, tuple[int, bytes]] = {
    "400": (400, _error("Unrecognized request argument supplied: nonsense", "bad_request")),
    "401": (401, _error("Incorrect API key provided.", "invalid_api_key")),
    "403": (403, _error("Your account is not active, please check your billing details.", "account_deactivated")),
    "404": (404, _error("The model `nobody` does not exist.", "model_not_found", "NotFoundError")),
    "408": (408, b""),
    "409": (409, _error("Conflict", "conflict")),
    "425": (425, b""),
    "429": (429, _error("Rate limit reached for requests", "rate_limit_exceeded", "requests")),
    "quota": (
        429,
        _error(
            "You exceeded your current quota, please check your plan and billing details. For more information on "
            "this error, read the "
            "docs: https://platform.openai.com/docs/guides/error-codes/api-errors.",
            "insufficient_quota",
            "insufficient_quota",
        ),
    ),
    "billing": (400, _error("Billing hard limit has been reached", "billing_hard_limit_reached")),
    "budget": (400, _error("Budget has been exceeded! Current cost: 12.1, Max budget: 12.0", "400", "budget_exceeded")),
    "flagged": (
        400,
        _error(
            "The response was filtered due to the prompt triggering our content management policy.", "content_filter"
        ),
    ),
    "context_length": (
        400,
        _error(
            "This model's maximum context length is 8192 tokens. However, you requested 9000 tokens.",
            "context_length_exceeded",
        ),
    ),
    "no_room": (
        400,
        _error(
            "Could not finish the message because max_tokens or model output limit was reached. Please try again.",
            "invalid",
        ),
    ),
    "500": (500, _error("The server had an error while processing your request.", "server_error", "server_error")),
    "502": (502, b"<html><body>Bad Gateway</body></html>"),
    "503": (503, _error("The engine is currently overloaded.", "overloaded", "server_error")),
    "504": (504, b"<html><body>Gateway Timeout</body></html>"),
    "error_body_200": (200, _error("The engine is currently overloaded.", "overloaded", "server_error")),
}
"""Faults that are a status with a body; ``429`` and ``503`` take ``Fault.retry_after``."""

UNFINISHED = ("abort", "error", "cancelled", "insufficient_system_resource", "something_new", "")
"""Words for how a reply ended that say the engine gave up on it; the last is none at all."""


def _finish(word: str) -> Callable[[Answer], Answer]:
    return lambda answer: replace(answer, finish_reason=word)


ANSWERS: dict[str, Callable[[Answer], Answer]] = {
    "null_content": lambda answer: replace(answer, text=None),
    "empty_content": lambda answer: replace(answer, text=""),
    "content_filter": lambda answer: replace(answer, text="", finish_reason="content_filter"),
    **{f"finish_{word or 'missing'}": _finish(word) for word in UNFINISHED},
    "model_length": lambda answer: replace(answer, text=(answer.text or "")[:5], finish_reason="model_length"),
    "tool_calls": lambda answer: replace(answer, finish_reason="tool_calls"),
    "length": lambda answer: replace(answer, text=(answer.text or "")[:5], finish_reason="length"),
    "wrong_model": lambda answer: replace(answer, model="another-model"),
    "huge": lambda answer: replace(answer, text="x" * 10_000_000),
    "nan_score": lambda answer: replace(answer, text='{"score": NaN}'),
    "inf_score": lambda answer: replace(answer, text='{"score": 1e400}'),
    "two_objects": lambda answer: replace(answer, text=f"{answer.text}\n{answer.text}"),
    "unclosed_think": lambda answer: replace(answer, text=f"<think>\nLet me see. {answer.text}"),
    "length_in_reasoning": lambda answer: replace(answer, text=None, reasoning=answer.text, finish_reason="length"),
    "length_in_think": lambda answer: replace(
        answer, text=f"<think>\nLet me see. {answer.text}", finish_reason="length"
    ),
    "length_counted": lambda answer: replace(
        answer,
        text="",
        finish_reason="length",
        usage={"prompt_tokens": 9, "completion_tokens": 16, "completion_tokens_details": {"reasoning_tokens": 15}},
    ),
    "reasoning_only": lambda answer: replace(answer, text=None, reasoning=answer.text),
}
"""Faults of a well-formed reply: a change of the right answer."""


def _without_choices(body: dict[str, Any]) -> dict[str, Any]:
    return {**body, **({"choices": []} if "choices" in body else {"output": []})}


BODIES: dict[str, Callable[[dict[str, Any]], bytes]] = {
    "empty_choices": lambda body: orjson.dumps(_without_choices(body)),
    "duplicate_id": lambda body: orjson.dumps({**body, "id": "same-id"}),
    "no_model": lambda body: orjson.dumps({key: value for key, value in body.items() if key != "model"}),
    "invalid_utf8": lambda body: orjson.dumps(body).replace(b'"assistant"', b'"assist\xff\xfeant"'),
    "nan_body": lambda body: orjson.dumps({**body, "x": "NAN"}).replace(b'"NAN"', b"NaN"),
    "not_json": lambda body: b"this is not JSON",
    "cut_json": lambda body: orjson.dumps(body)[:-20],
    "two_documents": lambda body: orjson.dumps(body) * 2,
    "wrong_shape": lambda body: b"[1, 2, 3]",
    "empty_body": lambda body: b"",
}
"""Faults of the body under status 200."""

WIRE = (
    "reset_before",
    "reset_mid_body",
    "close_before",
    "cut_body",
    "slow_headers",
    "stalled_body",
    "wrong_content_type",
)
"""Faults below HTTP, or of its headers; the server plays them itself."""

NAMES: tuple[str, ...] = ("ok", "text", *STATUS, *ANSWERS, *BODIES, *WIRE)
