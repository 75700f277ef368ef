"""A hack must not pay: what no reader sees changes no verdict, and wrapping a reply does not make it follow an
instruction.

Replies of the vectors, all languages and all checks, with fillers around and within them. Those that fail must go on
failing, those that pass must go on passing. Where a wrapping does change what a reader sees, the table says so, for
each check, with the reason.
"""

from __future__ import annotations

import sys
import unicodedata
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pytest
import regex
from tests.envs.instruction_following.test_checks_vectors import FAST, OWN, SHARED, rows, verdict

HIDDEN = [
    chr(point)
    for point in range(sys.maxunicode + 1)
    if unicodedata.category(chr(point)) in ("Cf", "Mn", "Lo", "Cn", "Cc", "So") and not 0xD800 <= point < 0xE000
    if regex.match(
        r"[[\p{Default_Ignorable_Code_Point}\p{Cf}]--\p{Prepended_Concatenation_Mark}]", chr(point), regex.VERSION1
    )
]
"""All characters that never show, and those that show only within some words and pictures."""
PER_ROW = 4
"""How many of them each row gets; all rows together get all of them."""

Filler = Callable[[str, str], str]
_TEXT = "Hidden words, so many! Are there 3 of them? Yes; [name] “quoted”"
_HTML = f"<p hidden>{_TEXT}</p>"

INVISIBLE: Mapping[str, Filler] = {
    "behind": lambda reply, mark: reply + mark * 40,
    "before": lambda reply, mark: mark * 3 + reply,
    "a paragraph": lambda reply, mark: f"{reply}\n\n{mark * 9}\n\n{mark}",
    "at the ends of lines": lambda reply, mark: reply.replace("\n", f"{mark}\n") + mark,
    "behind blanks": lambda reply, mark: reply.replace(" ", f" {mark}"),
}
"""What is done with a character that does not show."""

UNSEEN: Mapping[str, Filler] = {
    "a comment behind": lambda reply, _: f"{reply}\n\n<!-- {_TEXT} -->",
    "a comment in the line": lambda reply, _: f"{reply}<!-- {_TEXT} -->",
    "a comment before": lambda reply, _: f"<!--\n- {_TEXT}\n\n# {_TEXT}\n-->\n\n{reply}",
    "a hidden paragraph": lambda reply, _: f"{reply}\n\n{_HTML}",
    "a hidden span": lambda reply, _: f'{reply}<span style="display: none">{_TEXT}</span>',
    "a script": lambda reply, _: f"{reply}\n\n<script>let words = '{_TEXT}';</script>",
    "a reference definition": lambda reply, _: f"{reply}\n\n[//]: # (Hidden words so many)",
    "an entity": lambda reply, _: f"{reply}&#8203;&zwj;&ZeroWidthSpace;",
}
"""What Markdown and HTML do not show."""

WRAPPED: Mapping[str, Filler] = {
    "indented": lambda reply, _: "\n".join(f"    {line}" if line else "" for line in reply.split("\n")),
    "indented by a tab": lambda reply, _: "\n".join(f"\t{line}" if line else "" for line in reply.split("\n")),
    "fenced": lambda reply, _: f"``````\n{reply}\n``````",
    "fenced as text": lambda reply, _: f"~~~~~~text\n{reply}\n~~~~~~",
    "quoted": lambda reply, _: "\n".join(f"> {line}".rstrip() for line in reply.split("\n")),
}
"""What leaves a reply to be seen, otherwise."""

_WRITTEN = "a fence's label is written, and shown above what it holds: its letters count"
_LABELLED = frozenset(("fenced as text",))
_FENCED = frozenset(("fenced", "fenced as text"))
SEEN_OTHERWISE: Mapping[str, tuple[frozenset[str], str]] = {
    "detectable_format:indentation": (
        frozenset(("indented", "indented by a tab")),
        "an indentation is what is asked for",
    ),
    "length_constraints:number_characters": (frozenset(WRAPPED), "the marks of a wrapping are characters of the reply"),
    "detectable_format:heading_depth": (
        _FENCED,
        "a fence within a fence of prose is text like the rest, headings included",
    ),
    "change_case:lowercase": (_LABELLED, _WRITTEN),
    "change_case:case_ratio": (_LABELLED, _WRITTEN),
    "change_case:vowel_consonant_balance": (_LABELLED, _WRITTEN),
    "keywords:letter_frequency": (_LABELLED, _WRITTEN),
    "keywords:vowel_count": (_LABELLED, _WRITTEN),
    "keywords:consonant_count": (_LABELLED, _WRITTEN),
}
"""For a check the wrappings after which a reply that failed may pass, and why a reader agrees."""

AS_WRITTEN: Mapping[str, str] = {
    "detectable_format:json_format": "JSON is read by programs, which stumble over every character that does not "
    "belong: it may fail"
}
"""For a check why a reply that passed may fail with what does not show."""


def own_and_shared() -> Iterator[dict[str, Any]]:
    """Yield rows of one form: language, instruction_id, arguments, response."""
    yield from rows(OWN / "vectors.jsonl")
    for reply in rows(OWN / "replies.jsonl"):
        for check in reply["checks"]:
            yield {**check, "language": reply["language"], "response": reply["response"]}
    if SHARED.is_dir():
        for name in ("cases.jsonl", "defects.jsonl"):
            for row in rows(SHARED / name):
                yield {**row, "arguments": row["kwargs"]}


@pytest.fixture(scope="module")
def graded() -> list[tuple[dict[str, Any], bool]]:
    """Return the rows that have a verdict, and which."""
    found = [
        (row, verdict(row["response"], row["instruction_id"], row["arguments"], row["language"]))
        for row in own_and_shared()
    ]
    return [(row, passed) for row, passed in found if isinstance(passed, bool) and row["response"].strip()]


def changed(
    graded: list[tuple[dict[str, Any], bool]], fillers: Mapping[str, Filler], marks: list[str]
) -> list[tuple[Any, ...]]:
    """Return what had another verdict with a filler."""
    found = []
    for number, (row, passed) in enumerate(graded):
        for place in range(PER_ROW if len(marks) > 1 else 1):
            mark = marks[(number * PER_ROW + place) % len(marks)]
            names = list(fillers)
            for name in names if len(marks) == 1 else [names[(number + place) % len(names)]]:
                text = fillers[name](row["response"], mark)
                now = verdict(text, row["instruction_id"], row["arguments"], row["language"])
                if now is not passed:
                    found.append(
                        (
                            row["instruction_id"],
                            name,
                            hex(ord(mark)),
                            row["language"],
                            row["arguments"],
                            text,
                            passed,
                            now,
                        )
                    )
    return found


_WORDS = regex.compile(r"[\p{Han}\p{Hiragana}\p{Katakana}]{2}|\p{L}[\p{L}\p{M}]*+")
"""A single word in a fence is code, whatever it is."""


def _unlike(found: list[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    """Leave out replies that passed as they were written and no longer do."""
    return [one for one in found if not (one[0] in AS_WRITTEN and one[-2] is True)]


def test_every_check_is_tried_both_ways(graded: list[tuple[dict[str, Any], bool]]) -> None:
    assert {(row["instruction_id"], passed) for row, passed in graded} == {
        (name, way) for name in FAST for way in (True, False)
    }
    assert len(graded) * PER_ROW >= len(HIDDEN)


def test_characters_that_do_not_show_change_no_verdict(graded: list[tuple[dict[str, Any], bool]]) -> None:
    assert _unlike(changed(graded, INVISIBLE, HIDDEN)) == []


def test_what_markdown_and_html_do_not_show_changes_no_verdict(graded: list[tuple[dict[str, Any], bool]]) -> None:
    assert _unlike(changed(graded, UNSEEN, ["."])) == []


def test_a_reply_that_fails_fails_however_it_is_wrapped(graded: list[tuple[dict[str, Any], bool]]) -> None:
    failing = [(row, passed) for row, passed in graded if not passed and len(_WORDS.findall(row["response"])) > 1]
    found = changed(failing, WRAPPED, ["."])
    assert [one for one in found if one[1] not in SEEN_OTHERWISE.get(one[0], (frozenset(), ""))[0]] == []


ENCLOSED: Mapping[str, Filler] = {
    "quotation marks": lambda reply, _: f"“{reply}”",
    "straight ones": lambda reply, _: f'"{reply}"',
    "guillemets": lambda reply, _: f"«{reply}»",
    "brackets": lambda reply, _: f"({reply})",
}
SENTENCE_CHECKS = frozenset(
    f"{group}:{name}"
    for group, names in {
        "detectable_format": ("sentence_count", "sentences_per_paragraph", "sentence_endings"),
        "punctuation": ("end_rule",), "length_constraints": ("sentence_length",), "change_case": ("first_letter_sentence",),  # noqa: E501
    }.items()
    for name in names
)  # fmt: skip


def test_quotation_marks_and_brackets_around_a_reply_hide_no_sentence(
    graded: list[tuple[dict[str, Any], bool]],
) -> None:
    checked = [(row, passed) for row, passed in graded if row["instruction_id"] in SENTENCE_CHECKS]
    plain = [(row, passed) for row, passed in checked if row["response"][0].isalpha() and "“" not in row["response"]]
    assert len(plain) > 100
    assert changed(plain, ENCLOSED, ["."]) == []
