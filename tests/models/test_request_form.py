"""How a request is written: by the config, by the model's name, and as a server's refusals teach it."""

from __future__ import annotations

import json
from typing import Any

import pytest

from gavel.models.calls.quirks import find_quirk
from gavel.models.calls.request_form import RequestForm, learn_form, make_form
from gavel.models.calls.wire import BadBody, decode_body, make_plan
from gavel.models.receipts import encode_messages
from gavel.models.service import Service
from gavel.models.types import Message, ResponseFormat, Sampling

SERVICE = Service(mode="external", model="m", base_url="http://h/v1")
SENT = {
    "temperature": 0.0,
    "top_p": 0.9,
    "max_tokens": 64,
    "seed": 3,
    "chat_template_kwargs": {},
    "reasoning_effort": "low",
    "stop": ["x"],
}
PLAIN = Sampling()
CHOICE, SCHEMA = ResponseFormat(choice=("A", "B")), ResponseFormat(json_schema={"type": "object", "title": "T"})


def body(
    service: Service, sampling: Sampling = PLAIN, fmt: ResponseFormat | None = None, **more: Any
) -> dict[str, Any]:
    made: dict[str, Any] = json.loads(
        make_plan(service, service.model or "", sampling, fmt, vllm=False, **more).build_body(
            encode_messages([Message("user", "q")])
        )
    )
    del made["model"], made["messages"]
    return made


def service(**changes: Any) -> Service:
    return Service(**{"mode": "external", "model": "m", "base_url": "http://h/v1", **changes})


@pytest.mark.parametrize(
    ("message", "dropped"),
    [
        (
            "Unsupported value: 'temperature' does not support 0 with this model. Only the default (1) value is "
            "supported.",
            {"temperature"},
        ),
        (
            "Unsupported value: 'temperature' does not support 0.7 with this model. Only the default (1) value is "
            "supported.",
            {"temperature"},
        ),
        ("Unsupported parameter: 'temperature' is not supported with this model.", {"temperature"}),
        ("Unrecognized request argument supplied: chat_template_kwargs", {"chat_template_kwargs"}),
        ("invalid_request_error: `temperature` is deprecated for this model.", {"temperature"}),
        ("`temperature` and `top_p` cannot both be specified for this model. Please use only one.", {"top_p"}),
        ("temperature and top_p are mutually exclusive", {"top_p"}),
        ("property 'seed' is unsupported, did you mean 'need'?", {"seed"}),
        ("seed: Extra inputs are not permitted", {"seed"}),
        ("[{'type': 'extra_forbidden', 'loc': ['body', 'seed'], 'msg': 'Extra inputs are not permitted'}]", {"seed"}),
        ('Invalid JSON payload received. Unknown name "seed": Cannot find field.', {"seed"}),
        ("unknown field `stop`, expected one of `model`, `temperature`", {"stop"}),
        (
            "UnsupportedParamsError: openai does not support parameters: ['temperature', 'top_p'], for model=o3-mini.",
            {"temperature", "top_p"},
        ),
        ("This model does not support the parameter 'stop'.", {"stop"}),
        ("Unknown parameter: 'reasoning_effort'.", {"reasoning_effort"}),
        ("temperature is flagged as deprecated", {"temperature"}),
        ("Parameter `temperature` has been deprecated for this model", {"temperature"}),
        ("seed is flagged as not supported", {"seed"}),
        ("Argument not supported: seed", {"seed"}),
        ("The parameter `seed` specified in the request is not valid for this model", {"seed"}),
        ("temperature cannot be set for this model", {"temperature"}),
        ("Stop is no longer supported", {"stop"}),
        ("temperature 3 is not valid", set()),
        ("Your account is not supported", set()),
        ("Temperature should be in [0.0, 2.0)", set()),
        (
            "Unsupported value: 'reasoning_effort' does not support 'minimal' with this model. Supported values "
            "are: 'low'.",
            set(),
        ),
        ("max_tokens is too large: 99999. This model supports at most 16384 completion tokens", set()),
        ("Could not finish the message because max_tokens or model output limit was reached.", set()),
        ("Your input was flagged by the usage policy: temperature, top_p, seed", set()),
        ("no message", set()),
    ],
)
def test_a_field_is_left_out_only_where_the_refusal_names_it_plainly(message: str, dropped: set[str]) -> None:
    lesson = learn_form(RequestForm(), message, SENT)
    assert set(lesson.form.omit if lesson else ()) == dropped


def test_a_field_that_the_user_wrote_for_this_server_is_never_left_out() -> None:
    form = RequestForm(extra_body={"seed": 5})
    assert learn_form(form, "Unrecognized request argument supplied: seed", {**SENT, "seed": 5}) is None


def test_top_p_of_one_is_left_out_wherever_it_is_named_and_another_one_only_where_it_is_refused() -> None:
    message = "validation: `top_p` must be > 0.0 and < 1.0"
    lesson = learn_form(RequestForm(), message, {"top_p": 1.0})
    assert lesson is not None
    assert set(lesson.form.omit) == {"top_p"}
    assert learn_form(RequestForm(), message, {"top_p": 0.99}) is None


@pytest.mark.parametrize(
    ("message", "sent", "name"),
    [
        (
            "Unsupported parameter: 'max_tokens' is not supported with this model. Use 'max_completion_tokens' "
            "instead.",
            "max_tokens",
            "max_completion_tokens",
        ),
        ("Unrecognized request argument supplied: max_completion_tokens", "max_completion_tokens", "max_tokens"),
        ("max_completion_tokens: Extra inputs are not permitted", "max_completion_tokens", "max_tokens"),
    ],
)
def test_the_output_limit_takes_its_other_name(message: str, sent: str, name: str) -> None:
    lesson = learn_form(RequestForm(max_tokens_field=sent), message, {sent: 5})
    assert lesson is not None
    assert (lesson.form.max_tokens_field, dict(lesson.form.omit)) == (name, {})
    assert learn_form(lesson.form, f"Unknown parameter: '{name}'.", {name: 5}) is None, (
        "a server that takes neither is not asked for ever"
    )


@pytest.mark.parametrize(
    ("message", "steps"),
    [
        ("This response_format type is unavailable now", ["json_object", "none"]),
        (
            "Invalid parameter: 'response_format' of type 'json_schema' is not supported with this model.",
            ["json_object", "none"],
        ),
        ("Failed to deserialize: response_format: missing field `value`", ["tgi"]),
        ("Unrecognized request argument supplied: response_format", ["none"]),
        ("Prompt must contain the word 'json' in some form to use 'response_format' of type 'json_object'.", ["none"]),
        ("No endpoints found that support the requested parameters.", ["json_object", "none"]),
        (
            "No endpoints found that can handle the requested parameters. To learn more, visit …",
            ["json_object", "none"],
        ),
        ("Invalid schema for response_format 'reply': 'maxLength' is not permitted.", []),
    ],
)
def test_a_response_format_that_is_refused_gives_way_step_by_step(message: str, steps: list[str]) -> None:
    form, seen = RequestForm(), []
    while (
        lesson := learn_form(form, message, {"response_format": {}} if form.response_format != "none" else {})
    ) is not None:
        form = lesson.form
        seen.append(form.response_format)
    assert seen == steps


def test_a_server_that_asks_for_no_thinking_is_told_so_once() -> None:
    message = "parameter.enable_thinking must be set to false for non-streaming calls"
    lesson = learn_form(RequestForm(), message, SENT)
    assert lesson is not None
    assert body(SERVICE, form=lesson.form) == {"enable_thinking": False}
    assert learn_form(lesson.form, message, SENT) is None
    assert learn_form(RequestForm(extra_body={"enable_thinking": True}), message, SENT) is None


@pytest.mark.parametrize(
    ("model", "dropped"),
    [
        ("claude-opus-4-7", True),
        ("claude-opus-5", True),
        ("anthropic/claude-opus-5.5", True),
        ("claude-sonnet-5-20260301", True),
        ("anthropic/claude-4.7-opus-20260401", True),
        ("claude-opus-4-10", True),
        ("claude-opus-4-20250514", False),
        ("claude-3-opus-20240229", False),
        ("claude-sonnet-4-5-20250929", False),
        ("claude-opus-4-1", False),
        ("anthropic/claude-4.5-haiku-20251001", False),
        ("my-opus", False),
    ],
)
def test_claude_models_that_take_no_sampling_are_known_by_version(model: str, dropped: bool) -> None:
    assert ("temperature" in find_quirk(model).drops) is dropped


def test_the_keys_of_a_service_decide_what_is_sent() -> None:
    sampling = Sampling(temperature=0.0, top_p=0.9, max_response_tokens=64, seed=1)
    full = service(
        max_tokens_field="max_completion_tokens",
        omit=("temperature", "seed"),
        thinking_tokens=1000,
        extra_body={"thinking": {"type": "disabled"}},
    )
    assert body(full, sampling) == {"top_p": 0.9, "max_completion_tokens": 1064, "thinking": {"type": "disabled"}}
    assert body(service(omit=("max_response_tokens",)), sampling).keys() == {"temperature", "top_p", "seed"}
    plan = make_plan(full, "m", sampling, None, vllm=False)
    assert plan.notes == ("not sent, the config leaves it out: temperature", "not sent, the config leaves it out: seed")


@pytest.mark.parametrize(
    ("form", "fmt", "sent"),
    [
        ("none", CHOICE, None),
        ("none", SCHEMA, None),
        ("json_object", CHOICE, None),
        ("json_object", SCHEMA, {"type": "json_object"}),
        ("tgi", SCHEMA, {"type": "json_object", "value": {"type": "object", "title": "T"}}),
    ],
)
def test_a_response_format_is_written_as_the_service_takes_it(form: Any, fmt: ResponseFormat, sent: Any) -> None:
    assert body(service(response_format=form), fmt=fmt).get("response_format") == sent
    assert (make_plan(service(response_format=form), "m", Sampling(), fmt, vllm=True).notes != ()) is (sent is None)


def test_what_decides_the_replies_is_part_of_a_services_identity_and_nothing_else() -> None:
    same = [
        service(served_as=("x",)),
        service(query={"api-version": "1"}),
        service(key_header="api-key"),
        service(max_tokens_field="max_tokens"),
    ]
    assert {one.identity for one in same} == {service().identity}
    changed = [
        service(omit=("temperature",)),
        service(response_format="none"),
        service(extra_body={"seed": 1}),
        service(thinking_tokens=1),
    ]
    assert len({one.identity for one in (*changed, service())}) == len(changed) + 1


def test_a_reply_of_several_messages_is_the_last_ones_parts_a_line_each() -> None:
    def message(*texts: str) -> dict[str, Any]:
        return {"type": "message", "content": [{"type": "output_text", "text": text} for text in texts]}

    thought = {"type": "reasoning", "summary": [{"type": "summary_text", "text": "A"}]}
    for output, said in (
        ([message("A first thought"), message("B")], "B"),
        ([thought, message("C", "B")], "C\nB"),
        ([message("A"), thought, message("B")], "B"),
    ):
        made = decode_body(json.dumps({"model": "m", "status": "completed", "output": output}).encode(), responses=True)
        assert made.text == said


@pytest.mark.parametrize(
    ("content", "text", "thought"),
    [
        ([{"type": "reasoning", "text": "It is A or B. "}, {"type": "text", "text": "B"}], "B", "It is A or B. "),
        (
            [{"type": "thinking", "thinking": [{"type": "text", "text": "A?"}]}, {"type": "text", "text": "B"}],
            "B",
            "A?",
        ),
        ([{"type": "output_text", "text": "B"}, {"type": "refusal", "refusal": "A"}], "B", None),
        ([{"type": "reasoning", "text": "A"}], None, "A"),
        ([], None, None),
    ],
)
def test_only_parts_of_text_are_the_answer(content: Any, text: str | None, thought: str | None) -> None:
    made = decode_body(
        json.dumps({"choices": [{"message": {"content": content}, "finish_reason": "stop"}]}).encode(), responses=False
    )
    assert (made.text, made.reasoning) == (text, thought)


@pytest.mark.parametrize(
    ("document", "words", "code"),
    [
        (
            {
                "error": {
                    "code": 400,
                    "message": "Provider returned error",
                    "metadata": {"raw": '{"error":{"message":"too hot"}}'},
                }
            },
            "Provider returned error: too hot",
            400,
        ),
        (
            {"error": {"code": 502, "message": "Provider returned error", "metadata": {"raw": "upstream\n gone"}}},
            "upstream gone",
            502,
        ),
        ({"error": {"code": 400, "message": "x", "metadata": {"raw": {"message": "inner"}}}}, "inner", 400),
        (
            {
                "choices": [
                    {"error": {"code": 502, "message": "cut"}, "finish_reason": "error", "message": {"content": "A"}}
                ]
            },
            "cut",
            502,
        ),
        ({"object": "error", "message": "too long", "type": "BadRequestError", "code": 400}, "too long", 400),
        (
            {"error": "Input validation error: `top_p`", "error_type": "validation"},
            "validation: Input validation error",
            None,
        ),
        ({"error": {"code": "429", "message": "slow down"}}, "slow down", 429),
    ],
)
def test_an_error_object_under_status_200_says_what_the_provider_said(
    document: Any, words: str, code: int | None
) -> None:
    with pytest.raises(BadBody) as caught:
        decode_body(json.dumps(document).encode(), responses=False)
    assert words in (caught.value.error or "")
    assert caught.value.code == code


def test_a_form_takes_the_configs_word_before_the_names() -> None:
    assert make_form(service(model="gpt-5", max_tokens_field="max_tokens"), "gpt-5").max_tokens_field == "max_tokens"
    assert make_form(service(model="gpt-5"), "gpt-5").max_tokens_field == "max_completion_tokens"
