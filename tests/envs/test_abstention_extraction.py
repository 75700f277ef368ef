"""What a reply answers: thinking, boxes, gates, normalisation."""

import time
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.growth import growth

from gavel.envs.abstention.extraction import extract_answer, find_last_box, normalise_answer
from gavel.envs.abstention.rules import fold_answer
from gavel.models.types import Reply


def reply(text: str, finish_reason: str = "stop", **fields: object) -> Reply:
    return Reply(text, finish_reason, "m", **fields)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("Paris", "Paris"),
        ("  Paris\n", "Paris"),
        ("<think>London?</think> Paris", "Paris"),
        ("<thinking>London?</thinking> Paris", "Paris"),
        ("<think>a</think>x<think>b</think>y", "xy"),
        ("<think>a <think> b</think> c</think> Paris", "Paris"),
        ("London?</think>Paris", "Paris"),
        ("a</think>b</think>Paris", "Paris"),
        ("<THINK>London?</THINK> Paris", "Paris"),
        (r"[THINK]maybe \boxed{Mombasa}[/THINK] I do not know.", "I do not know."),
        (r"◁think▷\boxed{Mombasa}?◁/think▷\boxed{Nairobi}", "Nairobi"),
        (r"<seed:think>\boxed{Mombasa}?</seed:think>\boxed{[IDK]}", "[IDK]"),
        (
            r"<|channel|>analysis<|message|>\boxed{Mombasa}<|end|><|start|>assistant<|channel|>final<|message|>Nairobi",
            "Nairobi",
        ),
        (r"\boxed{<think>}", "<think>"),
        ("A model writes `</think>` there.", "A model writes `</think>` there."),
        ("<think></think>", None),
        ("<think>Paris", None),
        ("Paris <think>or London?", None),
        (r"[THINK]\boxed{Paris}", None),
    ],
)
def test_thinking_is_removed_and_an_unclosed_block_has_no_answer(text: str, answer: str | None) -> None:
    assert extract_answer(reply(text)).answer == answer


@pytest.mark.parametrize(
    ("text", "answer"),
    [("London?</think>Paris", "Paris"), ("still thinking", None), ("<think>a</think>Paris", "Paris"), ("", None)],
)
def test_a_prompt_that_opened_the_block_needs_a_closing_tag(text: str, answer: str | None) -> None:
    assert extract_answer(reply(text, think_prefilled=True)).answer == answer


@pytest.mark.parametrize(
    ("text", "box"),
    [
        (r"\boxed{Paris}", "Paris"),
        (r"\boxed{London} no, \boxed{Paris}", "Paris"),
        (r"\boxed{\frac{1}{2}}", r"\frac{1}{2}"),
        (r"\boxed{{{23 -}} < {{- 45}}}", "{{23 -}} < {{- 45}}"),
        (r"\boxed{Paris} … \boxed{", "Paris"),
        (r"\boxed{Paris} and \boxed{never {closed}", "Paris"),
        (r"\boxed{a \boxed{b} c}", "b"),
        (r"\boxed{a \boxed{b} c", "b"),
        (r"\boxed{ Paris }", " Paris "),
        (r"}} \boxed{Paris}", "Paris"),
        (r"\boxed{}", ""),
        (r"\boxed{Paris", None),
        (r"\boxed Paris", None),
        ("Paris", None),
    ],
)
def test_the_last_box_that_closes_is_the_answer(text: str, box: str | None) -> None:
    assert find_last_box(text) == box


def last_box_by_definition(text: str) -> str | None:
    """Try each opening from the last to the first, counting braces: quadratic, but plainly the definition."""
    start = text.rfind("\\boxed{")
    while start >= 0:
        depth = 1
        for end in range(start + 7, len(text)):
            depth += {"{": 1, "}": -1}.get(text[end], 0)
            if depth == 0:
                return text[start + 7 : end]
        start = text.rfind("\\boxed{", 0, start)
    return None


@given(st.lists(st.sampled_from(["\\boxed{", "{", "}", "x", "\\", "boxed", "\n"]), max_size=30).map("".join))
def test_the_one_pass_matching_equals_the_definition(text: str) -> None:
    assert find_last_box(text) == last_box_by_definition(text)


@given(
    st.lists(
        st.sampled_from(["<think>", "</think>", "<thinking>", "</thinking>", "a", "<", "/think>"]), max_size=20
    ).map("".join)
)
def test_no_thinking_tag_survives_in_an_answer(text: str) -> None:
    answer = extract_answer(reply(text)).answer
    assert answer is None or not any(tag in answer for tag in ("<think>", "</think>", "<thinking>", "</thinking>"))


@given(st.text())
def test_any_text_is_extracted_without_an_error(text: str) -> None:
    found = extract_answer(reply(text))
    assert (found.answer is None) == (found.gate is not None)


@pytest.mark.parametrize(
    ("text", "finish_reason", "gate"),
    [
        (r"\boxed{Paris}", "length", "truncated"),
        (r"<think>\boxed{Paris}", "length", "truncated"),
        (r"\boxed{[IDK]}", "length", "truncated"),
        (r"<think>\boxed{Paris}", "stop", "no_answer"),
        ("<think>hm</think>  ", "stop", "no_answer"),
        ("", "stop", "no_answer"),
    ],
)
def test_gates_come_before_any_answer(text: str, finish_reason: str, gate: str) -> None:
    found = extract_answer(reply(text, finish_reason))
    assert (found.gate, found.answer) == (gate, None)


def test_reasoning_kept_apart_by_the_server_means_that_the_text_is_the_answer() -> None:
    assert extract_answer(reply("Paris", think_prefilled=True, reasoning="London?")).answer == "Paris"
    assert extract_answer(reply(r"\boxed{<think>}", reasoning="which tag?")).answer == "<think>"
    assert extract_answer(reply("Paris", think_prefilled=True)).gate == "no_answer"


@pytest.mark.parametrize(
    ("answer", "normal"),
    [
        ("[IDK]", "idk"),
        ("I.D.K.", "idk"),
        (" The  [IDK]! ", "idk"),
        ("a cat and an owl", "cat and owl"),
        ("Theatre", "theatre"),
        ("!?", ""),
        ("A.B.", "b"),
        ("a-b", "b"),
        ("I D K", "i d k"),
    ],
)
def test_normalisation_is_upstreams(answer: str, normal: str) -> None:
    assert normalise_answer(answer) == normal


@pytest.mark.parametrize(
    "unit",
    [
        "\\boxed{",
        "{",
        "}",
        "<think>",
        "</think>",
        "<thinking></think>",
        "<",
        "\\boxed{}",
        "\\boxed{<think>",
        "a ",
        "the ",
    ],
)
def test_a_megabyte_of_anything_takes_linear_time(unit: str) -> None:
    def seconds(size: int) -> float:
        text = unit * (size // len(unit))
        start = time.process_time()
        found = extract_answer(reply(text))
        normalise_answer(found.answer or "")
        return time.process_time() - start

    assert seconds(1_000_000) < 2.0, "quadratic work on 1 MB would take minutes"


@pytest.mark.parametrize("work", [normalise_answer, fold_answer, find_last_box], ids=["normalise", "fold", "last_box"])
@pytest.mark.parametrize(
    "unit", [" ", "a ", "the ", ". ", '"', "'", "`", "\u0301", "e\u0301", "!", "\\boxed{", "{", "}", "\n\u00a0"]
)
def test_the_work_on_an_answer_grows_with_its_length_and_no_faster(work: Callable[[str], object], unit: str) -> None:
    for end in ("", "x", "."):
        assert growth(work, lambda n: unit * (n // len(unit)) + end) < 3, (unit, end)  # noqa: B023
