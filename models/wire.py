"""Request bodies and replies of the two APIs, ``chat_completions`` and ``responses``.

What calls of one kind share (model, sampling, response format) is encoded once into a ``Plan``; a call adds its messages.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import orjson

from gavel.models.errors import ConfigError
from gavel.models.quirks import RESERVED_FIELDS, RESPONSES_LACKS, STOP, TOOLS, Quirk, finish_word, quirk_of
from gavel.models.receipts import call_seed
from gavel.models.service import Service
from gavel.models.types import ResponseFormat, Sampling, Usage

CHOICE_FIELD = "answer"
"""The only field of the JSON object that carries a choice where a server takes JSON schemas only."""

CHOICE_TOKENS = 16
"""Tokens that this object takes beside the choice; added to the output limit."""


@dataclass(frozen=True, slots=True)
class Plan:
    """The fixed part of a kind of call: ``head`` + messages + ``tail`` is the request's body."""

    head: bytes
    tail: bytes
    seed: bytes
    notes: tuple[str, ...]
    unwrap_choice: bool

    def body(self, messages: bytes) -> bytes:
        """Return the body of a request with ``messages`` (JSON)."""
        return self.head + messages + self.tail


@dataclass(frozen=True, slots=True)
class Decoded:
    """What a reply's body says; ``text`` and ``model`` are None where it does not say them; ``finish_reason`` may be empty."""

    text: str | None
    finish_reason: str
    model: str | None
    response_id: str | None
    usage: Usage | None
    reasoning: str | None
    refusal: str | None = None


class BadBody(Exception):
    """A body that is no reply: ``reason`` for a person; ``code`` is the HTTP status an error object names, ``error`` its text."""

    def __init__(self, reason: str, *, error: str | None = None, code: int | None = None) -> None:
        super().__init__(reason)
        self.reason, self.error, self.code = reason, error, code


def make_plan(service: Service, model: str, sampling: Sampling, response_format: ResponseFormat | None, *, vllm: bool) -> Plan:
    """Encode what calls of one kind share.

    Args:
        service: how the model is reached.
        model: the name sent.
        sampling: fields that are None are not sent.
        response_format: ``choice`` becomes vLLM's ``structured_outputs``, or a JSON schema with one field elsewhere.
        vllm: whether the server is a vLLM.

    Raises:
        ConfigError: ``sampling.extra`` sets a field of the client's own, or the response format is not one of the two forms.
    """
    seed = call_seed(service.identity, sampling, response_format)
    quirk = quirk_of(model)
    responses = service.api == "responses"
    wrapped = response_format is not None and bool(response_format.choice) and (responses or not vllm)
    if wrapped and sampling.max_response_tokens is not None:
        sampling = replace(sampling, max_response_tokens=sampling.max_response_tokens + CHOICE_TOKENS)
    fields, notes = _sampling_fields(sampling, quirk, responses)
    if response_format is not None:
        fields |= _format_fields(response_format, responses=responses, vllm=vllm)
    if service.chat_template_kwargs:
        fields["chat_template_kwargs"] = dict(service.chat_template_kwargs)
    if responses:
        fields["store"] = False
    key = "input" if responses else "messages"
    head = orjson.dumps({"model": model})[:-1] + b',"%s":' % key.encode()
    tail = b"," + orjson.dumps(fields, option=orjson.OPT_NON_STR_KEYS)[1:] if fields else b"}"
    return Plan(head, tail, seed, notes, wrapped)


def _sampling_fields(sampling: Sampling, quirk: Quirk, responses: bool) -> tuple[dict[str, Any], tuple[str, ...]]:
    limit = "max_output_tokens" if responses else quirk.max_tokens
    wanted: dict[str, Any] = {
        "temperature": sampling.temperature,
        "top_p": sampling.top_p,
        limit: sampling.max_response_tokens,
        "seed": sampling.seed,
        "stop": list(sampling.stop) or None,
    }
    if sampling.reasoning_effort is not None:
        wanted |= {"reasoning": {"effort": sampling.reasoning_effort}} if responses else {"reasoning_effort": sampling.reasoning_effort}
    wanted |= _checked_extra(sampling.extra)
    wanted = {name: value for name, value in wanted.items() if value is not None}
    refused = quirk.drops | (RESPONSES_LACKS if responses else frozenset())
    notes = tuple(f"not sent, the model or the API refuses it: {name}" for name in wanted if name in refused)
    return {name: value for name, value in wanted.items() if name not in refused}, notes


def _checked_extra(extra: Mapping[str, Any] | None) -> dict[str, Any]:
    for name, value in (extra or {}).items():
        if name in RESERVED_FIELDS and not (name == "stream" and value is False):
            raise ConfigError(
                "this field belongs to the client",
                field=f"sampling.extra.{name}",
                remedy="remove it; rollouts_per_task draws several replies",
            )
    return dict(extra or {})


def _format_fields(wanted: ResponseFormat, *, responses: bool, vllm: bool) -> dict[str, Any]:
    if bool(wanted.choice) == (wanted.json_schema is not None):
        raise ConfigError("a response format is either a choice or a JSON schema", field="response_format", found=repr(wanted)[:120])
    if wanted.choice and vllm and not responses:
        return {"structured_outputs": {"choice": list(wanted.choice)}}
    schema = dict(wanted.json_schema) if wanted.json_schema is not None else _choice_schema(wanted.choice)
    if not vllm:
        schema = _without_lengths(schema)
    named = {"name": schema.get("title", "reply"), "schema": schema, "strict": True}
    if responses:
        return {"text": {"format": {"type": "json_schema", **named}}}
    return {"response_format": {"type": "json_schema", "json_schema": named}}


def _without_lengths(schema: Any) -> Any:
    """Leave out the bounds on lengths of texts, which vLLM enforces and providers' strict modes refuse."""
    if isinstance(schema, list | tuple):
        return [_without_lengths(item) for item in schema]
    if not isinstance(schema, Mapping):
        return schema
    return {name: _without_lengths(value) for name, value in schema.items() if name != "maxLength" or not isinstance(value, int)}


def _choice_schema(choice: tuple[str, ...]) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": {CHOICE_FIELD: {"type": "string", "enum": list(choice)}},
        "required": [CHOICE_FIELD],
        "additionalProperties": False,
    }


def unwrap_choice(text: str) -> str:
    """Take the choice out of its JSON object; any other text is returned as it is, for the rubric to judge."""
    try:
        found = orjson.loads(text)
    except orjson.JSONDecodeError:
        return text
    if isinstance(found, dict) and found.keys() == {CHOICE_FIELD} and isinstance(found[CHOICE_FIELD], str):
        return str(found[CHOICE_FIELD])
    return text


def decode_body(data: bytes, *, responses: bool) -> Decoded:
    """Read the body of a reply under status 200.

    Raises:
        BadBody: no JSON object (also invalid UTF-8, NaN, two documents), an error object, or no choice in it.
    """
    if not data:
        raise BadBody("the body is empty")
    try:
        body = orjson.loads(data)
    except orjson.JSONDecodeError as error:
        raise BadBody(f"the body is not JSON: {error}") from None
    if not isinstance(body, dict):
        raise BadBody(f"the body is a {type(body).__name__}, not an object")
    return decode_document(body, responses=responses)


def decode_document(body: dict[str, Any], *, responses: bool) -> Decoded:
    """Read a reply's body that was parsed already; as ``decode_body``.

    Raises:
        BadBody: an error object, or no choice in it.
    """
    if body.get("error"):
        raise error_of(body)
    return (_decode_responses if responses else _decode_chat)(body)


def error_of(body: Mapping[str, Any]) -> BadBody:
    """Return what the error object of a body says."""
    error = body.get("error", body)
    if not isinstance(error, dict):
        return BadBody(str(error), error=str(error))
    words = [str(error[key]) for key in ("code", "type", "message", "detail") if error.get(key)]
    text = ": ".join(dict.fromkeys(words)) or "an error without a message"
    codes = [error[key] for key in ("code", "status") if type(error.get(key)) is int]
    return BadBody(text, error=text, code=codes[0] if codes else None)


def error_text(data: bytes) -> str:
    """Return the message of an error's body: of its error object if it is JSON, else its first 300 characters."""
    try:
        body = orjson.loads(data)
    except orjson.JSONDecodeError:
        return " ".join(data[:1200].decode("utf-8", "replace").split())[:300]
    return error_of(body).reason[:300] if isinstance(body, dict) else str(body)[:300]


def _decode_chat(body: dict[str, Any]) -> Decoded:
    choices = body.get("choices")
    if not isinstance(choices, list) or not choices or not isinstance(choices[0], dict):
        raise BadBody("the reply has no choices")
    message = choices[0].get("message")
    if not isinstance(message, dict):
        raise BadBody("the reply's first choice has no message")
    finish = _text(choices[0].get("finish_reason")) or ""
    return Decoded(
        _content(message.get("content")), finish_word(finish), _text(body.get("model")), _text(body.get("id")),
        _usage(body.get("usage"), "prompt", "completion"),
        _text(message.get("reasoning_content")) or _text(message.get("reasoning")), _text(message.get("refusal")),
    )  # fmt: skip


def _decode_responses(body: dict[str, Any]) -> Decoded:
    output = body.get("output")
    if not isinstance(output, list) or not any(isinstance(item, dict) for item in output):
        raise BadBody("the reply has no output")
    items = [item for item in output if isinstance(item, dict)]
    said = [part for item in items if item.get("type") == "message" for part in _parts(item.get("content"))]
    thought = [
        part for item in items if item.get("type") == "reasoning" for key in ("summary", "content") for part in _parts(item.get(key))
    ]
    texts = [part["text"] for part in said if part.get("type") == "output_text" and isinstance(part.get("text"), str)]
    refusals = [str(part.get("refusal")) for part in said if part.get("type") == "refusal"]
    return Decoded(
        "".join(texts) if texts else None, _responses_finish(body), _text(body.get("model")), _text(body.get("id")),
        _usage(body.get("usage"), "input", "output"),
        "\n".join(part["text"] for part in thought if isinstance(part.get("text"), str)) or None, "\n".join(refusals) or None,
    )  # fmt: skip


def _responses_finish(body: dict[str, Any]) -> str:
    status = body.get("status")
    if status == "completed":
        return TOOLS if any(_is_call(item) for item in body["output"]) else STOP
    if status == "incomplete":
        details = body.get("incomplete_details")
        reason = str(details.get("reason")) if isinstance(details, dict) else "incomplete"
        return finish_word(reason)
    raise BadBody(f"the reply's status is {status!r}")


def _is_call(item: object) -> bool:
    return isinstance(item, dict) and item.get("type") in ("function_call", "custom_tool_call")


def _text(value: object) -> str | None:
    return value if isinstance(value, str) and value else None


def _parts(value: object) -> list[dict[str, Any]]:
    return [part for part in value if isinstance(part, dict)] if isinstance(value, list) else []


def _content(value: object) -> str | None:
    """Return a message's text; some gateways send it in parts."""
    if value is None or isinstance(value, str):
        return value
    texts = [part["text"] for part in _parts(value) if isinstance(part.get("text"), str)]
    if not texts:
        raise BadBody(f"the reply's content is a {type(value).__name__} without text")
    return "".join(texts)


def _usage(value: object, prompt: str, completion: str) -> Usage | None:
    if not isinstance(value, dict):
        return None
    return Usage(
        _count(value.get(f"{prompt}_tokens")),
        _count(value.get(f"{completion}_tokens")),
        _detail(value.get(f"{prompt}_tokens_details"), "cached_tokens"),
        _detail(value.get(f"{completion}_tokens_details"), "reasoning_tokens"),
    )


def _count(value: object) -> int:
    return value if isinstance(value, int) and value >= 0 else 0


def _detail(value: object, key: str) -> int:
    return _count(value.get(key)) if isinstance(value, dict) else 0
