"""What of a reply is thinking and what is its answer."""

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.growth import growth

from gavel.models.texts.thinking import is_thinking_open, split_reply, split_thinking
from gavel.models.types import Reply

PAIRS = [
    ("<think>", "</think>"),
    ("<think >", "</think >"),
    ("<THINK>", "</Think>"),
    ("< think>", "< /think>"),
    ("<thinking>", "</thinking>"),
    ("<thought>", "</thought>"),
    ("<reasoning>", "</reasoning>"),
    ("<seed:think>", "</seed:think>"),
    ("<longcat_think>", "</longcat_think>"),
    ("[THINK]", "[/THINK]"),
    ("◁think▷", "◁/think▷"),
    ("<|begin_of_thought|>", "<|end_of_thought|>"),
    ("<|START_THINKING|>", "<|END_THINKING|>"),
    ("<|channel>thought", "<channel|>"),
]
MENTIONS = [
    "Write <think> before notes",
    "Write `<think>` before notes",
    "Write <think> before and </think> after notes.",
    "First, write the tag </think> into it.",
    "The tags are `<think>` and `</think>`.",
    'He wrote "<think>" there.',
    "Er schrieb „<think>“ und »</think>«.",
    r"\boxed{<think>}",
    r"\boxed{</think>}",
    "The tag (</think>) closes it.",
    "Use **</think>** for that.",
    "The tags <think>/</think> and [THINK] are used, as is [/THINK], for notes.",
    "```\n<think>\nnotes\n</think>\n```",
    "~~~xml\n<think>\n~~~\nThat is how.",
    "> <think>\n> he wrote\n\nThat is odd.",
    "Kimi writes ◁think▷ first and ◁/think▷ last.",
    "The header <|channel|>final<|message|> starts the answer.",
    "`<|channel|>final<|message|>` starts the answer.",
    "Plain text.",
    "a < b and [c]",
]


@pytest.mark.parametrize(("opening", "closing"), PAIRS)
def test_each_familys_block_is_thinking_whether_or_not_its_opening_tag_is_there(opening: str, closing: str) -> None:
    assert split_thinking(f"{opening}maybe Rome{closing}Paris") == ("maybe Rome", "Paris", True)
    assert split_thinking(f"\n {opening}\nmaybe Rome\n{closing}\n\nParis").answer == "\n \n\nParis"
    assert split_thinking(f"maybe Rome\n{closing}\n\nParis") == ("maybe Rome\n", "\n\nParis", True)
    assert split_thinking(f"maybe Rome{closing}Paris", opened=True) == ("maybe Rome", "Paris", True)
    assert split_thinking(f"{opening}maybe Rome, or") == ("maybe Rome, or", "", False)
    assert split_thinking(f"{opening}a{closing}{opening}b{closing}Paris").answer == "Paris"


@pytest.mark.parametrize("text", MENTIONS)
def test_a_tag_that_is_only_spoken_about_stays_text(text: str) -> None:
    assert split_thinking(text) == ("", text, True)
    assert split_thinking(f"<think>hm</think>\n{text}").answer == f"\n{text}"


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("[THINK]maybe \\boxed{Mombasa}[/THINK] I do not know.", " I do not know."),
        ("<think>a</think>x<think>b</think>y", "xy"),
        ("One.\n<think>\nhm\n</think>\nTwo.", "One.\n\nTwo."),
        ("<think>a <think> b</think> c</think> Paris", " Paris"),
        ("<thinking>the tag </think> is mine</thinking>Paris", "Paris"),
        ("<think>a</thinking>Paris", "Paris"),
        ("<think>I must not write `</think>` yet.</think>Paris", "Paris"),
        ("<think>```python\nx = 1\n</think>\n```python\ny\n```", "\n```python\ny\n```"),
        ("a</think>b</think>Paris", "Paris"),
        ("so it is Paris. </think> Paris", " Paris"),
        ("it is Paris </think> Paris", " Paris"),
        ('he said "yes"</think>"Yes" it is', '"Yes" it is'),
        ("巴黎。</think>巴黎", "巴黎"),
    ],
)
def test_the_answer_is_what_is_not_thinking(text: str, answer: str) -> None:
    split = split_thinking(text)
    assert (split.answer, split.finished) == (answer, True)


@pytest.mark.parametrize(
    "text", ["Paris <think>or London?", "a</think>Paris<thinking>or", "Done.\n<think>\nOr not", "<think>`</think>`"]
)
def test_a_block_that_never_closes_leaves_no_answer(text: str) -> None:
    assert (split_thinking(text).answer, split_thinking(text).finished) == ("", False)


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        (
            "<|channel|>analysis<|message|>hm<|end|><|start|>assistant<|channel|>final<|message|>Paris<|return|>",
            "Paris",
        ),
        ("<|channel|>analysis<|message|>hm<|end|>\n<|channel|>final<|message|>Paris", "Paris"),
        ("hm<|end|><|start|>assistant<|channel|>final<|message|>Paris", "Paris"),
        ("<|channel|>final <|constrain|>json<|message|>{}", "{}"),
        ("<|channel|>analysis<|message|>hm<|end|>", None),
        (
            "<|channel|>commentary<|message|>I look it up.<|end|><|start|>assistant<|channel|>analysis<|message|>hm",
            None,
        ),
        ("analysisThe user asks.assistantfinalParis", "Paris"),
        ("analysis of the text", "analysis of the text"),
    ],
)
def test_of_harmony_channels_the_last_final_one_is_the_answer(text: str, answer: str | None) -> None:
    split = split_thinking(text)
    assert (split.answer if split.finished else None) == answer


def test_a_prompt_that_opened_the_block_needs_a_closing_tag() -> None:
    assert split_thinking("still thinking", opened=True) == ("still thinking", "", False)
    assert split_thinking("I close it with `</think>` soon", opened=True).finished is False
    assert split_thinking("<think>a</think>Paris", opened=True).answer == "Paris"
    assert split_thinking("```\ncode\n</think>\nParis\n```", opened=True).answer == "\nParis\n```"


@pytest.mark.parametrize(("opening", "closing"), PAIRS)
def test_a_prompt_tells_whether_it_opens_the_block(opening: str, closing: str) -> None:
    assert is_thinking_open(f"<|im_start|>assistant\n{opening}\n")
    assert not is_thinking_open(f"<|im_start|>assistant\n{opening}\n\n{closing}\n\n")
    assert not is_thinking_open(f"Write {opening} first.<|im_end|>\n<|im_start|>assistant\n")


def test_a_harmony_prompt_tells_whether_it_opens_the_analysis() -> None:
    assert is_thinking_open("<|start|>assistant<|channel|>analysis<|message|>")
    assert not is_thinking_open("<|start|>assistant<|channel|>final<|message|>")
    assert split_thinking("The user asks.assistantfinalParis", opened=True).answer == "Paris"


def test_what_a_server_kept_apart_has_closed_the_block() -> None:
    def answer(text: str) -> str:
        return split_reply(Reply(text, "stop", "m", reasoning="hm", think_prefilled=True)).answer

    assert answer("Paris") == "Paris"
    assert answer(r"\boxed{<think>}") == r"\boxed{<think>}"
    assert answer("<think>") == "<think>"
    assert answer("</think>") == "</think>"
    assert answer("<think>more</think>Paris") == "Paris"
    assert split_reply(Reply("a</think>Paris", "stop", "m", think_prefilled=True)).answer == "Paris"


@given(
    st.text()
    | st.lists(st.sampled_from([*"`~>\n \"'(.a", *sum(PAIRS, ()), "<|channel|>final<|message|>"]), max_size=30).map(
        "".join
    )
)
def test_any_text_is_split_and_loses_only_tags(text: str) -> None:
    for opened in (False, True):
        split = split_thinking(text, opened=opened)
        assert split.finished or split.answer == ""
        assert len(split.thinking) + len(split.answer) <= len(text) + text.count("<|message|>")


SHAPES: list[Callable[[int], str]] = [
    lambda n: "<think>" * n,
    lambda n: "</think>" * n,
    lambda n: "<think>a</thinking>" * n,
    lambda n: "x <" + " " * n,
    lambda n: "a" + " " * n + "</think>b",
    lambda n: "<think>`" * n,
    lambda n: "`" * n + "<think>",
    lambda n: "<think>\n" + "a" * n + "\n`",
    lambda n: "``` `" * n + "</think>",
    lambda n: "```\n</think>\n" * n,
    lambda n: "<|channel|>" * n,
    lambda n: "<|channel|>a" + " " * n,
    lambda n: "<|channel|>final<|message|>" * n,
    lambda n: "<|channel|>" + "final<" * n,
    lambda n: "analysis" + "assistantfina" * n,
    lambda n: " ".join("`" * (i % 100 + 1) for i in range(n // 50)) + "<think>",
]


@pytest.mark.parametrize("shape", SHAPES)
def test_splitting_is_linear(shape: Callable[[int], str]) -> None:
    assert growth(split_thinking, shape) < 3
