"""Cutting a reply before markdown-it sees it changes nothing of what is found; neither does the pattern for words of
ASCII.
"""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from gavel.envs.instruction_following import structure, text
from gavel.envs.instruction_following.block import Block
from gavel.envs.instruction_following.languages import LANGUAGES
from gavel.envs.instruction_following.structure import read_structure

LINES = (
    "", "", "", "word", "Some text here", "- item", "  - sub", "    - deep", "1. one", "2) two", "   cont", "    code x = 1",  # noqa: E501
    "     five", "# head", "## h ##", "#", "#nospace", "  # ind", "- # h", "---", "***", "* * *", "--", "-", "===", "- ---", "> quote",  # noqa: E501
    "> # q", "> ```", ">", "```", "```py", "~~~", "````", "  ```", "    ```", "- ```", "   ~~~", "| a | b |", "|---|---|", "| 1 | 2 |",  # noqa: E501
    "a | b", "--|--", ":-:", "\ttab", "-\ttab", "-     five", "1.      y", "10. ", "*", "+", "**bold** x", "```a`b",
    "1234", "1.", "- 1. a", "> > a",
    ">     c", "      - far", "\u00a0x", "é", "```\tx", "# a #b", "#\ttab", "##  a  ## ",
)  # fmt: skip
"""Lines whose meaning depends on those before them."""


def whole(lines: list[str]) -> list[Block]:
    """Return what markdown-it finds in all of a reply."""
    return list(structure._parse_tokens(structure._PARSER.parse("\n".join(lines)), lines))


def values(blocks: list[Block]) -> list[tuple[object, ...]]:
    """Return what of the blocks is read."""
    return [(one.kind, one.text.rstrip("\n"), one.line, one.end, one.level, one.rows, one.columns) for one in blocks]


@settings(max_examples=600, deadline=None)
@given(st.lists(st.sampled_from(LINES), min_size=1, max_size=10))
def test_the_structure_is_that_of_markdown_it_over_the_whole_reply(drawn: list[str]) -> None:
    lines = "\n".join(line.rstrip() for line in drawn).strip("\n").split("\n")
    lines[:0] = ["start", ""] * (lines[0][:3] in ("```", "~~~"))  # a fence around all is read otherwise, on purpose
    assert values(list(read_structure(lines))) == values(whole(lines))


@settings(max_examples=500, deadline=None)
@given(st.text(st.sampled_from("ab1 2.,:'-@&_()*/<\"\n") | st.characters(max_codepoint=127), max_size=60))
def test_words_of_ascii_are_found_by_either_pattern(drawn: str) -> None:
    assert text.split_words(drawn, LANGUAGES["en"]) == text._WORD.findall(drawn)
