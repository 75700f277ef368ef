"""A Responses object as Gym stores it, read as messages of a transcript, and written from them.

Source: the ``response`` of NeMo Gym 0.7.0's ``/verify``, an OpenAI Responses object whose ``output`` may also hold the
messages of the other side: so a conversation of several turns is one object, and what was stored can be graded again.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from gavel.envs.types import TaskError
from gavel.models.calls.quirks import FILTERED, LENGTH, STOP, TOOLS, finish_word
from gavel.models.calls.wire import BadBody, decode_document
from gavel.models.errors import shorten_value
from gavel.models.types import Message, Reply, Usage

_PREFILLED = "gavel_think_prefilled"
_INCOMPLETE = {LENGTH: "max_output_tokens", FILTERED: "content_filter"}
_TOOL_RESULTS = ("function_call_output", "custom_tool_call_output", "computer_call_output", "local_shell_call_output")
_GIVEN_UP = ("failed", "cancelled", "in_progress", "queued")


class ResponseError(TaskError):
    """The row's ``response`` is no Responses object that can be read."""


def read_messages(response: Any) -> tuple[Message, ...]:
    """Return what was said after the request, oldest first; the policy's messages carry their replies.

    Usually one reply: the last message of the policy's, after the results of its tools if it had any. With messages of
    the other side in ``output``, every message in order. A response whose status says that it was never finished gives
    a reply whose ``finish_reason`` is that status.

    Raises:
        ResponseError: names the field.
    """
    if not isinstance(response, Mapping):
        raise ResponseError(
            "this is no Responses object", field="response", found=shorten_value(response), allowed="an object"
        )
    output = response.get("output")
    if not isinstance(output, list) or not all(isinstance(item, Mapping) for item in output):
        raise ResponseError(
            "this is no list of items",
            field="response.output",
            found=shorten_value(output),
            allowed="a list of objects",
        )
    if not any(_is_said_by_others(item) for item in output):
        return (_read_message(response, output, last=True),)
    return tuple(_read_conversation(response, output))


def _read_conversation(response: Mapping[str, Any], output: Sequence[Mapping[str, Any]]) -> Iterator[Message]:
    last = max((place for place, item in enumerate(output) if not _is_said_by_others(item)), default=-1)
    position = 0
    while position < len(output):
        if _is_said_by_others(output[position]):
            yield Message("user", _read_text(output[position].get("content"), f"response.output.{position}.content"))
            position += 1
            continue
        own = list(itertools.takewhile(lambda item: not _is_said_by_others(item), output[position:]))
        position += len(own)
        yield _read_message(response, own, last=position > last)


def _read_message(response: Mapping[str, Any], items: Sequence[Mapping[str, Any]], *, last: bool) -> Message:
    reply = _read_reply(response, items, last=last)
    return Message("assistant", reply.text, reply)


def _read_reply(response: Mapping[str, Any], items: Sequence[Mapping[str, Any]], *, last: bool) -> Reply:
    model = response.get("model")
    model = model if isinstance(model, str) else ""
    status = response.get("status")
    if last and status in _GIVEN_UP:
        return Reply("", str(status), model)
    final = list(_find_final(items)) or [{"type": "message"}]  # nothing at all was said, which can be graded
    incomplete = response.get("incomplete_details") if last else None
    if not last and any(item.get("status") == "incomplete" for item in final):
        incomplete = {"reason": "max_output_tokens"}
    body = {
        "output": final,
        "model": model or None,
        "usage": response.get("usage") if last else None,
        "status": "incomplete" if incomplete or (last and status == "incomplete") else "completed",
        "incomplete_details": incomplete,
    }
    try:
        read = decode_document(body, responses=True)
    except BadBody as bad:
        raise ResponseError("this reply cannot be read", field="response", found=bad.reason) from None
    metadata = response.get("metadata")
    prefilled = isinstance(metadata, Mapping) and metadata.get(_PREFILLED) == "true"
    return Reply(
        read.text or read.refusal or "", read.finish_reason or STOP, model, read.usage, read.reasoning, prefilled
    )


def _find_final(items: Sequence[Mapping[str, Any]]) -> Iterator[Mapping[str, Any]]:
    """Yield what makes the final answer: after the last result of a tool, and of several messages the last one with
    text.
    """
    results = [place for place, item in enumerate(items) if item.get("type") in _TOOL_RESULTS]
    tail = items[results[-1] + 1 if results else 0 :]
    texts = [place for place, item in enumerate(tail) if item.get("type") == "message" and item.get("content")]
    for place, item in enumerate(tail):
        if item.get("type") != "message":
            yield item
        elif texts and place == texts[-1]:
            content = item["content"]
            yield {**item, "content": [{"type": "output_text", "text": content}]} if isinstance(content, str) else item


def _is_said_by_others(item: Mapping[str, Any]) -> bool:
    return item.get("type", "message") == "message" and item.get("role") in ("user", "system", "developer")


def _read_text(content: Any, field: str) -> str:
    if isinstance(content, str):
        return content
    if isinstance(content, list) and all(
        isinstance(part, Mapping) and isinstance(part.get("text"), str) for part in content
    ):
        return "".join(part["text"] for part in content)
    raise ResponseError(
        "this is no text", field=field, found=shorten_value(content), allowed="a text, or a list of text parts"
    )


def make_response_object(
    messages: Sequence[Message], *, response_id: str, created: float, model: str = ""
) -> dict[str, Any]:
    """Return the Responses object of what was said after a request.

    Args:
        messages: the policy's, with replies, and the other side's; none gives an object of status ``failed``.
        response_id: its id.
        created: Unix seconds.
        model: where no reply says it.
    """
    replies = [message.reply for message in messages if message.reply is not None]
    last = replies[-1] if replies else None
    reason = _INCOMPLETE.get(finish_word(last.finish_reason)) if last else None
    done = last is not None and finish_word(last.finish_reason) in (STOP, TOOLS)
    made: dict[str, Any] = {
        "id": response_id,
        "created_at": created,
        "model": last.model if last else model,
        "object": "response",
        "status": "incomplete" if reason else "completed" if done else "failed",
        "incomplete_details": {"reason": reason} if reason else None,
        "output": list(_make_items(messages, response_id)),
        "parallel_tool_calls": False,
        "tool_choice": "auto",
        "tools": [],
        "usage": _sum_usage([reply.usage for reply in replies if reply.usage is not None]),
    }
    if last is not None and last.think_prefilled:
        made["metadata"] = {_PREFILLED: "true"}
    return made


def _make_items(messages: Sequence[Message], response_id: str) -> Iterator[dict[str, Any]]:
    for place, message in enumerate(messages):
        reply = message.reply
        if reply is None:
            yield {"type": "message", "role": message.role, "content": message.content}
            continue
        name = f"{response_id}_{place}"
        if reply.reasoning is not None:
            yield {
                "type": "reasoning",
                "id": f"rs_{name}",
                "summary": [{"type": "summary_text", "text": reply.reasoning}],
            }
        word = finish_word(reply.finish_reason)
        yield {
            "type": "message",
            "role": "assistant",
            "id": f"msg_{name}",
            "status": "incomplete" if word in _INCOMPLETE else "completed",
            "content": [{"type": "output_text", "text": reply.text, "annotations": [], "logprobs": []}],
        }
        if word == TOOLS:  # the client keeps no more of it than that there was one
            yield {"type": "function_call", "call_id": f"call_{name}", "name": "unknown", "arguments": "{}"}


def _sum_usage(counted: Iterable[Usage]) -> dict[str, Any] | None:
    counted = list(counted)
    if not counted:
        return None
    prompt, completion = (
        sum(usage.prompt_tokens for usage in counted),
        sum(usage.completion_tokens for usage in counted),
    )
    return {
        "input_tokens": prompt,
        "output_tokens": completion,
        "total_tokens": prompt + completion,
        "input_tokens_details": {"cached_tokens": sum(usage.cached_tokens for usage in counted)},
        "output_tokens_details": {"reasoning_tokens": sum(usage.reasoning_tokens for usage in counted)},
    }
