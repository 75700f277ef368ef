"""Request bodies and replies of the two APIs, ``chat_completions`` and ``responses``.

What calls of one kind share (model, sampling, response format) is encoded once into a ``RequestPlan``; a call adds its
messages.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import orjson

from gavel.models.calls.quirks import FILTERED, LENGTH, RESERVED_FIELDS, RESPONSES_LACKS, STOP, TOOLS, finish_word
from gavel.models.calls.request_form import BY_MODEL, RequestForm, make_form
from gavel.models.errors import ConfigError
from gavel.models.receipts import call_seed
from gavel.models.service import Service
from gavel.models.types import ResponseFormat, Sampling, Usage

CHOICE_FIELD = "answer"
"""The only field of the JSON object that carries a choice where a server takes JSON schemas only."""

CHOICE_TOKENS = 16
"""Tokens that this object takes beside the choice; added to the output limit."""


@dataclass(frozen=True, slots=True)
class RequestPlan:
    """The fixed part of a kind of call: ``head`` + messages + ``tail`` is the request's body; ``fields`` are what
    stands besides the messages. ``drawn_from`` is the seed of the first draw, which ``tail`` lacks; None: no seed is
    sent."""

    head: bytes
    tail: bytes
    seed: bytes
    notes: tuple[str, ...]
    unwrap_choice: bool
    fields: Mapping[str, Any]
    drawn_from: int | None = None

    def compute_seed(self, sample: int) -> int | None:
        """Return the seed of the ``sample``-th draw (from 0): the same one would give one reply over and over."""
        return None if self.drawn_from is None else self.drawn_from + sample

    def build_body(self, messages: bytes, sample: int = 0) -> bytes:
        """Return the body of a request with ``messages`` (JSON), for the ``sample``-th draw."""
        seed = self.compute_seed(sample)
        return self.head + messages + (b"" if seed is None else b',"seed":%d' % seed) + self.tail


@dataclass(frozen=True, slots=True)
class Decoded:
    """What a reply's body says; ``text`` and ``model`` are None where it does not say them; ``finish_reason`` may be
    empty.
    """

    text: str | None
    finish_reason: str
    model: str | None
    response_id: str | None
    usage: Usage | None
    reasoning: str | None
    refusal: str | None = None


CUT_REPLY = Decoded("", LENGTH, None, None, None, None)
"""A reply that was cut before its first word, of which the server tells in an error."""


class BadBody(Exception):
    """A body that is no reply: ``reason`` for a person; ``code`` is the HTTP status an error object names, ``error``
    its text.
    """

    def __init__(self, reason: str, *, error: str | None = None, code: int | None = None) -> None:
        super().__init__(reason)
        self.reason, self.error, self.code = reason, error, code


def make_plan(
    service: Service,
    model: str,
    sampling: Sampling,
    response_format: ResponseFormat | None,
    *,
    vllm: bool,
    form: RequestForm | None = None,
) -> RequestPlan:
    """Encode what calls of one kind share.

    Args:
        service: how the model is reached.
        model: the name sent.
        sampling: fields that are None are not sent.
        response_format: ``choice`` becomes vLLM's ``structured_outputs``, or a JSON schema with one field elsewhere.
        vllm: whether the server is a vLLM.
        form: how the request is written; None: as config and model say.

    Raises:
        ConfigError: ``sampling.extra`` sets a field of the client's own, or the response format is not one of the two
            forms.
    """
    seed = call_seed(service.identity, sampling, response_format)
    form = form or make_form(service, model)
    responses = service.api == "responses"
    asked, said = (
        _format_fields(response_format, form, responses=responses, vllm=vllm)
        if response_format is not None
        else ({}, ())
    )
    wrapped = (
        response_format is not None
        and bool(response_format.choice)
        and bool(asked)
        and "structured_outputs" not in asked
    )
    if sampling.max_response_tokens is not None:
        room = service.thinking_tokens + (CHOICE_TOKENS if wrapped else 0)
        sampling = replace(sampling, max_response_tokens=sampling.max_response_tokens + room)
    fields, notes = _build_sampling(sampling, form, responses)
    fields |= asked
    if service.chat_template_kwargs and "chat_template_kwargs" not in form.omit:
        fields["chat_template_kwargs"] = dict(service.chat_template_kwargs)
    if responses and "store" not in form.omit:
        fields["store"] = False
    fields |= {**form.learned, **_check_extra(form.extra_body, "extra_body")}
    key = "input" if responses else "messages"
    head = orjson.dumps({"model": model})[:-1] + b',"%s":' % key.encode()
    drawn_from = fields["seed"] if type(fields.get("seed")) is int else None
    fixed = {name: value for name, value in fields.items() if name != "seed" or drawn_from is None}
    tail = b"," + orjson.dumps(fixed, option=orjson.OPT_NON_STR_KEYS)[1:] if fixed else b"}"
    notes = (
        *notes,
        *said,
        *(f"sent, for the server asks for it: {name}={value}" for name, value in form.learned.items()),
    )
    return RequestPlan(head, tail, seed, notes, wrapped, fields, drawn_from)


def _build_sampling(sampling: Sampling, form: RequestForm, responses: bool) -> tuple[dict[str, Any], tuple[str, ...]]:
    limit = "max_output_tokens" if responses else form.max_tokens_field
    wanted: dict[str, Any] = {
        "temperature": sampling.temperature,
        "top_p": sampling.top_p,
        limit: sampling.max_response_tokens,
        "seed": sampling.seed,
        "stop": list(sampling.stop) or None,
    }
    effort = "reasoning" if responses else "reasoning_effort"
    if sampling.reasoning_effort is not None:
        wanted[effort] = {"effort": sampling.reasoning_effort} if responses else sampling.reasoning_effort
    wanted |= _check_extra(sampling.extra, "sampling.extra")
    lacked = dict.fromkeys(RESPONSES_LACKS if responses else (), BY_MODEL)
    own_names = {"max_response_tokens": limit, "reasoning_effort": effort}
    refused = lacked | {own_names.get(name, name): why for name, why in form.omit.items()}
    wanted = {name: value for name, value in wanted.items() if value is not None}
    notes = tuple(f"not sent, {refused[name]}: {name}" for name in wanted if name in refused)
    return {name: value for name, value in wanted.items() if name not in refused}, notes


def _check_extra(extra: Mapping[str, Any] | None, place: str) -> dict[str, Any]:
    for name, value in (extra or {}).items():
        if name in RESERVED_FIELDS and not (name == "stream" and value is False):
            raise ConfigError(
                "this field belongs to the client",
                field=f"{place}.{name}",
                remedy="remove it; rollouts_per_task draws several replies",
            )
    return dict(extra or {})


def _format_fields(
    wanted: ResponseFormat, form: RequestForm, *, responses: bool, vllm: bool
) -> tuple[dict[str, Any], tuple[str, ...]]:
    """Return the fields that ask for a closed form, and notes on what was not asked."""
    if bool(wanted.choice) == (wanted.json_schema is not None):
        raise ConfigError(
            "a response format is either a choice or a JSON schema", field="response_format", found=repr(wanted)[:120]
        )
    written = form.response_format
    # A choice is one word; an object of no stated shape would only hide it.
    if written == "none" or (written == "json_object" and wanted.choice):
        return {}, (f"not sent, {form.format_reason}: response_format",)
    if wanted.choice and vllm and not responses:
        return {"structured_outputs": {"choice": list(wanted.choice)}}, ()
    schema = dict(wanted.json_schema) if wanted.json_schema is not None else _make_choice_schema(wanted.choice)
    if not vllm:
        schema = _drop_lengths(schema)
    return (
        {"text": {"format": _format_schema(schema, written, flat=True)}}
        if responses
        else {"response_format": _format_schema(schema, written)}
    ), ()


def _format_schema(schema: Mapping[str, Any], form: str, *, flat: bool = False) -> dict[str, Any]:
    if form == "json_object":
        return {"type": "json_object"}
    if form == "tgi":
        return {"type": "json_object", "value": schema}
    named = {"name": schema.get("title", "reply"), "schema": schema, "strict": True}
    return {"type": "json_schema", **named} if flat else {"type": "json_schema", "json_schema": named}


def _drop_lengths(schema: Any) -> Any:
    """Leave out the bounds on lengths of texts, which vLLM enforces and providers' strict modes refuse."""
    if isinstance(schema, list | tuple):
        return [_drop_lengths(item) for item in schema]
    if not isinstance(schema, Mapping):
        return schema
    return {
        name: _drop_lengths(value)
        for name, value in schema.items()
        if name != "maxLength" or not isinstance(value, int)
    }


def _make_choice_schema(choice: tuple[str, ...]) -> dict[str, Any]:
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
    body = _unlist_error(body)
    if not isinstance(body, dict):
        raise BadBody(f"the body is a {type(body).__name__}, not an object")
    return decode_document(body, responses=responses)


def decode_document(body: dict[str, Any], *, responses: bool) -> Decoded:
    """Read a reply's body that was parsed already; as ``decode_body``.

    Raises:
        BadBody: an error object, or no choice in it.
    """
    if body.get("error") or body.get("object") == "error":
        raise read_error(body)
    if not body.get("output" if responses else "choices") and any(body.get(key) for key in _BARE_ERROR):
        raise read_error(body)  # an error without a wrapping of its own, as some providers' own APIs have it
    return (_decode_responses if responses else _decode_chat)(body)


_ERROR_WORDS = ("code", "type", "status", "message", "detail", "errors")
"""Members of an error object that say what is wrong."""
_BARE_ERROR = ("code", "message", "detail", "errors")
"""Those of a body that is an error object itself; a reply has none of them."""


def _unlist_error(body: Any) -> Any:
    """Take an error object out of the list that Google sends it in."""
    listed = isinstance(body, list) and bool(body) and isinstance(body[0], dict) and bool(body[0].get("error"))
    return body[0] if listed else body


def read_error(body: Mapping[str, Any]) -> BadBody:
    """Return what the error object of a body says; of a gateway's, also what the provider behind it said
    (``metadata.raw``), and what a content filter's inner error is named.
    """
    error = body.get("error", body)
    while isinstance(error, dict) and isinstance(error.get("error"), dict):
        error = error["error"]
    if not isinstance(error, dict):
        words = [str(body[key]) for key in ("error_type", "error") if body.get(key)]
        return BadBody(": ".join(words), error=": ".join(words))
    words = [str(error[key]) for key in _ERROR_WORDS if error.get(key)]
    if isinstance(inner := error.get("innererror"), dict) and inner.get("code"):
        words.append(str(inner["code"]))
    metadata = error.get("metadata")
    if isinstance(metadata, dict) and metadata.get("raw"):
        words.append(_read_raw_reason(metadata["raw"]))
    if isinstance(metadata, dict) and isinstance(metadata.get("reasons"), list) and "flagged_input" in metadata:
        words.append(
            f"flagged for {', '.join(map(str, metadata['reasons']))}"
        )  # never what was flagged: it is the prompt
    text = ": ".join(dict.fromkeys(words)) or "an error without a message"
    codes = [int(error[key]) for key in ("code", "status") if _is_number(error.get(key))]
    return BadBody(text, error=text, code=codes[0] if codes else None)


def _is_number(value: object) -> bool:
    return type(value) is int or (isinstance(value, str) and value.isascii() and value.isdigit() and len(value) == 3)


def _read_raw_reason(raw: object) -> str:
    """Return what a provider behind a gateway said: its own error's text, where its body is one."""
    if isinstance(raw, str):
        try:
            raw = orjson.loads(raw)
        except orjson.JSONDecodeError:
            return " ".join(str(raw).split())
    return read_error(raw).reason if isinstance(raw, dict) else str(raw)


def read_error_text(data: bytes) -> str:
    """Return the message of an error's body: of its error object if it is JSON, else its first 300 characters."""
    try:
        body = orjson.loads(data)
    except orjson.JSONDecodeError:
        return " ".join(data[:1200].decode("utf-8", "replace").split())[:300]
    body = _unlist_error(body)
    return read_error(body).reason[:300] if isinstance(body, dict) else str(body)[:300]


def _decode_chat(body: dict[str, Any]) -> Decoded:
    choices = body.get("choices")
    if not isinstance(choices, list) or not choices or not isinstance(choices[0], dict):
        raise BadBody("the reply has no choices")
    choice = choices[0]
    finish = _read_chat_finish(choice)
    message = choice.get("message")
    if message is None and finish == FILTERED:  # what a filter withholds, some leave out altogether
        message = {}
    if not isinstance(message, dict):
        raise BadBody("the reply's first choice has no message")
    # A gateway whose provider broke off: what text there is was never finished.
    if (broken := next((part for part in (choice, message) if part.get("error")), None)) is not None:
        raise read_error(broken)
    text, thought, refused = _read_content(message.get("content"))
    return Decoded(
        text,
        finish,
        _read_text(body.get("model")),
        _read_text(body.get("id")),
        _read_usage(body.get("usage"), "prompt", "completion"),
        _read_text(message.get("reasoning_content")) or _read_text(message.get("reasoning")) or thought,
        _read_text(message.get("refusal")) or refused,
    )


def _read_chat_finish(choice: Mapping[str, Any]) -> str:
    """Return how a choice ended; a filter that says so anywhere has withheld it, whatever ``finish_reason`` says."""
    words = [finish_word(_read_text(choice.get(key)) or "") for key in ("finish_reason", "native_finish_reason")]
    checks = choice.get("content_filter_results")
    filtered = isinstance(checks, dict) and any(
        isinstance(check, dict) and check.get("filtered") is True for check in checks.values()
    )
    return FILTERED if filtered or FILTERED in words else words[0]


def _decode_responses(body: dict[str, Any]) -> Decoded:
    output = body.get("output")
    if not isinstance(output, list) or not any(isinstance(item, dict) for item in output):
        raise BadBody("the reply has no output")
    items = [item for item in output if isinstance(item, dict)]
    messages = [item for item in items if item.get("type") == "message"]
    said = _list_parts(messages[-1].get("content")) if messages else []
    thought = [
        part
        for item in items
        if item.get("type") == "reasoning"
        for key in ("summary", "content")
        for part in _list_parts(item.get(key))
    ]
    texts = [part["text"] for part in said if part.get("type") in _TEXT_PARTS and isinstance(part.get("text"), str)]
    refusals = [str(part.get("refusal")) for part in said if part.get("type") == "refusal"]
    return Decoded(
        "\n".join(texts) if texts else None,
        _read_finish(body),
        _read_text(body.get("model")),
        _read_text(body.get("id")),
        _read_usage(body.get("usage"), "input", "output"),
        "\n".join(part["text"] for part in thought if isinstance(part.get("text"), str)) or None,
        "\n".join(refusals) or None,
    )


def _read_finish(body: dict[str, Any]) -> str:
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


def _read_text(value: object) -> str | None:
    return value if isinstance(value, str) and value else None


def _list_parts(value: object) -> list[dict[str, Any]]:
    return [part for part in value if isinstance(part, dict)] if isinstance(value, list) else []


_TEXT_PARTS = ("text", "output_text")
"""Types of the parts that are the answer; others (``reasoning``, ``thinking``, ``refusal``) are not."""


def _read_content(value: object) -> tuple[str | None, str | None, str | None]:
    """Return a message's text, what it holds of thinking, and a refusal; some gateways send a message in parts.

    Raises:
        BadBody: the content is neither a text nor a list of parts, or a part of text has none.
    """
    if value is None or isinstance(value, str):
        return value, None, None
    if not isinstance(value, list):
        raise BadBody(f"the reply's content is a {type(value).__name__} without text")
    parts = [{"text": part} if isinstance(part, str) else part for part in value]
    if not all(isinstance(part, dict) for part in parts):
        raise BadBody("the reply's content is a list of parts that are none")
    said = [part.get("text") for part in parts if part.get("type", "text") in _TEXT_PARTS]
    texts = [text for text in said if isinstance(text, str)]
    if len(texts) < len(said):
        raise BadBody("the reply's content has a part of text without text")
    thought = [text for part in parts if part.get("type") in ("reasoning", "thinking") for text in _read_thoughts(part)]
    refusals = [str(part.get("refusal")) for part in parts if part.get("type") == "refusal"]
    return "".join(texts) if texts else None, "\n".join(thought) or None, "\n".join(refusals) or None


def _read_thoughts(part: Mapping[str, Any]) -> list[str]:
    found = next((part[key] for key in ("text", "thinking", "reasoning") if part.get(key)), None)
    return (
        [found]
        if isinstance(found, str)
        else [str(inner.get("text")) for inner in _list_parts(found) if inner.get("text")]
    )


def _read_usage(value: object, prompt: str, completion: str) -> Usage | None:
    if not isinstance(value, dict):
        return None
    return Usage(
        _read_count(value.get(f"{prompt}_tokens")),
        _read_count(value.get(f"{completion}_tokens")),
        _read_detail(value.get(f"{prompt}_tokens_details"), "cached_tokens"),
        _read_detail(value.get(f"{completion}_tokens_details"), "reasoning_tokens"),
    )


def _read_count(value: object) -> int:
    return value if isinstance(value, int) and value >= 0 else 0


def _read_detail(value: object, key: str) -> int:
    return _read_count(value.get(key)) if isinstance(value, dict) else 0
