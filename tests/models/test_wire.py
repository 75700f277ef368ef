"""Bodies of requests and replies."""

from __future__ import annotations

import contextlib
import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gavel.models.calls.served_names import is_same_model
from gavel.models.calls.wire import BadBody, decode_body, make_plan, read_error_text, unwrap_choice
from gavel.models.errors import ConfigError
from gavel.models.receipts import encode_messages
from gavel.models.service import Service
from gavel.models.types import Message, ResponseFormat, Sampling

SERVICE = Service(mode="external", model="m", base_url="http://h/v1")
FULL = Sampling(
    temperature=0.0, top_p=0.9, max_response_tokens=7, seed=3, reasoning_effort="low", stop=("END",), extra={"top_k": 5}
)


def body(
    model: str = "m",
    sampling: Sampling = FULL,
    fmt: ResponseFormat | None = None,
    *,
    vllm: bool = False,
    **changes: Any,
) -> dict[str, Any]:
    plan = make_plan(replace(SERVICE, **changes), model, sampling, fmt, vllm=vllm)
    made: dict[str, Any] = json.loads(plan.build_body(encode_messages([Message("user", 'hé\n"x"')])))
    assert made.pop("input" if changes.get("api") == "responses" else "messages") == [
        {"role": "user", "content": 'hé\n"x"'}
    ]
    assert made.pop("model") == model
    return made


def test_every_sampling_field_has_its_place_in_chat_completions() -> None:
    assert body() == {
        "temperature": 0.0,
        "top_p": 0.9,
        "max_tokens": 7,
        "seed": 3,
        "stop": ["END"],
        "reasoning_effort": "low",
        "top_k": 5,
    }


def test_every_sampling_field_has_its_place_in_responses() -> None:
    assert body(api="responses") == {
        "temperature": 0.0,
        "top_p": 0.9,
        "max_output_tokens": 7,
        "reasoning": {"effort": "low"},
        "top_k": 5,
        "store": False,
    }


@pytest.mark.parametrize(
    ("model", "dropped", "limit"),
    [
        ("gpt-5.4", {"temperature", "top_p"}, "max_completion_tokens"),
        ("gpt-5.4-mini", {"temperature", "top_p"}, "max_completion_tokens"),
        ("openai/GPT-6", {"temperature", "top_p"}, "max_completion_tokens"),
        ("o3-mini", {"temperature", "top_p"}, "max_completion_tokens"),
        ("gpt-5-chat", set(), "max_tokens"),
        ("gpt-4o", set(), "max_tokens"),
        ("gpt-oss-120b", set(), "max_tokens"),
        ("claude-opus-4-7", {"temperature", "top_p", "top_k"}, "max_tokens"),
        ("claude-sonnet-5", {"temperature", "top_p", "top_k"}, "max_tokens"),
        ("claude-opus-4-5-20251101", set(), "max_tokens"),
        ("Qwen/Qwen3-32B", set(), "max_tokens"),
    ],
)
def test_fields_that_a_model_refuses_are_dropped_and_noted(model: str, dropped: set[str], limit: str) -> None:
    sent = body(model)
    plain = body()
    assert plain.keys() - {"max_tokens"} - sent.keys() == dropped
    assert sent[limit] == 7
    notes = make_plan(SERVICE, model, FULL, None, vllm=False).notes
    assert {note.rpartition(" ")[2] for note in notes} == dropped


def test_a_choice_is_structured_output_for_vllm_and_a_schema_elsewhere() -> None:
    choice = ResponseFormat(choice=("A", "B"))
    assert body(sampling=Sampling(), fmt=choice, vllm=True) == {"structured_outputs": {"choice": ["A", "B"]}}
    schema = body(sampling=Sampling(), fmt=choice)["response_format"]
    assert schema["type"] == "json_schema"
    assert schema["json_schema"]["schema"]["properties"] == {"answer": {"type": "string", "enum": ["A", "B"]}}
    assert body(sampling=Sampling(), fmt=choice, api="responses")["text"]["format"]["strict"] is True


def test_a_choice_in_an_object_has_room_for_the_object() -> None:
    choice, short = ResponseFormat(choice=("A", "B")), Sampling(max_response_tokens=1)
    assert body(sampling=short, fmt=choice, vllm=True)["max_tokens"] == 1
    assert body(sampling=short, fmt=choice)["max_tokens"] == 17


def test_a_json_schema_is_sent_as_it_is() -> None:
    schema = {"type": "object", "properties": {"x": {"type": "number"}}}
    sent = body(sampling=Sampling(), fmt=ResponseFormat(json_schema=schema), vllm=True)
    assert sent["response_format"]["json_schema"]["schema"] == schema


def test_bounds_on_lengths_go_to_vllm_only() -> None:
    schema = {"type": "object", "properties": {"why": {"type": "string", "maxLength": 9}, "maxLength": {"enum": ["a"]}}}
    fmt = ResponseFormat(json_schema=schema)
    assert body(sampling=Sampling(), fmt=fmt, vllm=True)["response_format"]["json_schema"]["schema"] == schema
    elsewhere = body(sampling=Sampling(), fmt=fmt, vllm=False)["response_format"]["json_schema"]["schema"]
    assert elsewhere == {"type": "object", "properties": {"why": {"type": "string"}, "maxLength": {"enum": ["a"]}}}


@pytest.mark.parametrize("fmt", [ResponseFormat(), ResponseFormat(choice=("A",), json_schema={})])
def test_a_response_format_of_no_or_both_forms_is_refused(fmt: ResponseFormat) -> None:
    with pytest.raises(ConfigError, match="either a choice or a JSON schema"):
        body(fmt=fmt)


@pytest.mark.parametrize("name", ["stream", "n", "messages", "model"])
def test_extra_cannot_take_over_the_clients_own_fields(name: str) -> None:
    with pytest.raises(ConfigError, match=name):
        body(sampling=Sampling(extra={name: True}))


def test_chat_template_arguments_go_along() -> None:
    assert body(sampling=Sampling(), chat_template_kwargs={"enable_thinking": False}) == {
        "chat_template_kwargs": {"enable_thinking": False}
    }


@pytest.mark.parametrize(
    ("text", "choice"),
    [
        ('{"answer": "A"}', "A"),
        ("A", "A"),
        ('{"answer": 1}', '{"answer": 1}'),
        ('{"answer":"A","x":1}', '{"answer":"A","x":1}'),
        ('"A"', '"A"'),
    ],
)
def test_a_choice_is_taken_out_of_its_object_and_nothing_else_is_touched(text: str, choice: str) -> None:
    assert unwrap_choice(text) == choice


NAMES = ["choices", "message", "content", "output", "status", "error", "usage", "finish_reason", "type", "text"]
DOCUMENTS = st.recursive(
    st.none() | st.text() | st.integers(),
    lambda inner: st.lists(inner) | st.dictionaries(st.sampled_from(NAMES), inner),
)


@given(st.binary(max_size=200) | DOCUMENTS.map(lambda value: json.dumps(value).encode()), st.booleans())
def test_any_body_is_read_or_refused_by_name(data: bytes, responses: bool) -> None:
    with contextlib.suppress(BadBody):  # anything else fails
        decode_body(data, responses=responses)
    assert isinstance(read_error_text(data), str)


def test_a_reply_in_parts_is_joined() -> None:
    parts = [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]
    made = decode_body(
        json.dumps({"choices": [{"message": {"content": parts}, "finish_reason": "end_turn"}]}).encode(),
        responses=False,
    )
    assert (made.text, made.finish_reason) == ("ab", "stop")


@pytest.mark.parametrize("field", ["reasoning", "reasoning_content"])
def test_reasoning_is_kept_under_either_name(field: str) -> None:
    made = decode_body(json.dumps({"choices": [{"message": {"content": "A", field: "why"}}]}).encode(), responses=False)
    assert (made.text, made.reasoning, made.finish_reason) == ("A", "why", "")


def test_an_error_object_is_told_with_its_code() -> None:
    with pytest.raises(BadBody) as caught:
        decode_body(b'{"error":{"message":"busy","type":"server_error","code":503}}', responses=False)
    assert (caught.value.error, caught.value.code) == ("503: server_error: busy", 503)


@given(st.text(max_size=20), st.text(max_size=20))
def test_names_of_models_compare_the_same_either_way_round_without_latest(one: str, other: str) -> None:
    if "latest" not in (one + other).lower():
        assert is_same_model(one, other) == is_same_model(other, one)


@pytest.mark.parametrize(
    ("word", "ours"),
    [
        ("stop", "stop"),
        ("STOP", "stop"),
        ("eos", "stop"),
        ("end_turn", "stop"),
        ("length", "length"),
        ("model_length", "length"),
        ("max_tokens", "length"),
        ("max_output_tokens", "length"),
        ("tool_calls", "tool_calls"),
        ("function_call", "tool_calls"),
        ("content_filter", "content_filter"),
        ("abort", "abort"),
        ("error", "error"),
        ("cancelled", "cancelled"),
        (None, ""),
        ("", ""),
    ],
)
def test_how_a_reply_ended_is_said_in_one_set_of_words(word: str | None, ours: str) -> None:
    body = {"model": "m", "choices": [{"message": {"content": "A"}, "finish_reason": word}]}
    assert decode_body(json.dumps(body).encode(), responses=False).finish_reason == ours


def test_a_tool_call_over_the_responses_api_is_one_too() -> None:
    said = {"type": "message", "content": [{"type": "output_text", "text": "A"}]}
    body = {
        "model": "m",
        "status": "completed",
        "output": [said, {"type": "function_call", "name": "search", "arguments": "{}"}],
    }
    assert decode_body(json.dumps(body).encode(), responses=True).finish_reason == "tool_calls"
