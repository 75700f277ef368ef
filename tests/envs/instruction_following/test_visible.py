"""What of a reply is graded: its answer, by the one definition that all environments share."""

from __future__ import annotations

import pytest

from gavel.envs.instruction_following.visible import extract_visible_answer
from gavel.models.types import Reply

ANSWER = "Here is my list"

THOUGHTS = [
    f"a, b, c</think>\n\n{ANSWER}",
    f"Okay, first.\nThen, second.\n</think>{ANSWER}",
    f"<think >a, b</think >{ANSWER}",
    f"< THINK >a, b</ think>\n{ANSWER}",
    f"[THINK]a, b[/THINK]{ANSWER}",
    f"◁think▷a, b◁/think▷\n{ANSWER}",
    f"<seed:think>a, b</seed:think>{ANSWER}",
    f"<thought>a, b</thought>\n<think>c, d</think>\n{ANSWER}",
    f"<|channel|>analysis<|message|>a, b<|end|><|start|>assistant<|channel|>final<|message|>{ANSWER}<|return|>",
    f"analysisWe need a, b.assistantfinal{ANSWER}",
    f"{ANSWER}<think>no, wait</think>",
]


@pytest.mark.parametrize("text", THOUGHTS)
def test_the_answer_is_what_no_family_of_thinking_holds(text: str) -> None:
    assert extract_visible_answer(Reply(text, "stop", "p")) == ANSWER


@pytest.mark.parametrize(
    "text",
    [
        "Write `<think>` before notes",
        'Write "</think>" behind, always',
        "Write <think> before notes and </think> behind them.",
        "```\n<think>a</think>\n```",
        "The tag [THINK] is Mistral's.",
    ],
)
def test_a_tag_that_is_mentioned_is_text(text: str) -> None:
    assert extract_visible_answer(Reply(text, "stop", "p")) == text


@pytest.mark.parametrize(
    "text", ["[THINK]a, b", "◁think▷so", "<seed:think>x", "<think >\nnever ends", "<|channel|>analysis<|message|>hm"]
)
def test_thinking_that_never_ends_leaves_no_answer(text: str) -> None:
    assert extract_visible_answer(Reply(text, "length", "p")) == ""


def test_the_first_line_keeps_its_indentation_without_blanks_behind_a_tag() -> None:
    assert extract_visible_answer(Reply("\n \n  a\n    b\n", "stop", "p")) == "  a\n    b"
    assert extract_visible_answer(Reply("<think>x</think>  a", "stop", "p")) == "a"
    assert extract_visible_answer(Reply("<think>x</think>\n\n  a", "stop", "p")) == "  a"


@pytest.mark.parametrize(
    "text",
    [
        "<!-- a, b -->",
        "\n<p hidden>a, b</p>",
        "&#8203;&nbsp;",
        "[//]: # (a, b)",
        "<think>x</think><!-- a -->",
        "\u200b",
        "\u2800",
    ],
)
def test_a_reply_that_shows_nothing_is_empty(text: str) -> None:
    assert extract_visible_answer(Reply(text, "stop", "p")) == ""
