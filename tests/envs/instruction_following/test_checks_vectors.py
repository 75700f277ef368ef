"""The checks agree with verdicts worked out by hand: our own vectors and replies, and the shared ones where they are at
hand.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import orjson
import pytest

from gavel.envs.instruction_following import LanguageUnsupported, TaskError, check_instruction, supported_instructions
from gavel.envs.instruction_following.instructions import INSTRUCTIONS
from gavel.envs.instruction_following.languages import LANGUAGES

OWN = Path(__file__).parents[2] / "fixtures" / "instruction_following"
SHARED = Path(__file__).parents[4] / "shared" / "data" / "instruction_following"
needs_shared = pytest.mark.skipif(
    not SHARED.is_dir(), reason="the shared vectors are not here (../shared/data/instruction_following)"
)

KNOWN_DEVIATIONS = {
    (
        "hi",
        "length_constraints:number_characters",
    ): "a character is a code point, vowel signs too: the unit of task writers' tools",
    (
        "ja",
        "keywords:letter_frequency",
    ): "instructions about letters stay off where letters have no case, as in the peer's data",
    ("hi", "keywords:alliteration"): "the same",
}
"""Rows of low confidence that we decide otherwise, with the reason; docs/instruction_following.md says more."""

FAST = [name for name, entry in INSTRUCTIONS.items() if entry.kind == "fast"]


def rows(path: Path) -> list[dict[str, Any]]:
    return [orjson.loads(line) for line in path.read_bytes().splitlines()]


def verdict(response: str, instruction_id: str, arguments: Mapping[str, Any], language: str) -> bool | str | None:
    try:
        return check_instruction(response, instruction_id, arguments, language).passed
    except LanguageUnsupported:
        return "unsupported"
    except TaskError:
        return "schema_error"


def test_every_own_vector_gets_its_verdict() -> None:
    wrong = [
        row
        for row in rows(OWN / "vectors.jsonl")
        if verdict(row["response"], row["instruction_id"], row["arguments"], row["language"]) != row["verdict"]
    ]
    assert wrong == []


@pytest.mark.parametrize("language", LANGUAGES)
def test_ten_replies_of_each_language_get_the_verdicts_worked_out_by_hand(language: str) -> None:
    replies = [row for row in rows(OWN / "replies.jsonl") if row["language"] == language]
    wrong = [
        (row["response"], check)
        for row in replies
        for check in row["checks"]
        if verdict(row["response"], check["instruction_id"], check["arguments"], language) != check["verdict"]
    ]
    assert (len(replies), wrong) == (10, [])


def test_our_vectors_cover_every_fast_instruction_both_ways_and_every_language() -> None:
    vectors = rows(OWN / "vectors.jsonl")
    both = Counter({(row["instruction_id"], row["verdict"]) for row in vectors if isinstance(row["verdict"], bool)})
    both.update(
        {(check["instruction_id"], check["verdict"]) for row in rows(OWN / "replies.jsonl") for check in row["checks"]}
    )
    assert len(vectors) >= 300
    assert {row["language"] for row in vectors} == set(LANGUAGES)
    assert {name for name in FAST if not (both[name, True] and both[name, False])} == set()


@needs_shared
def test_every_agreed_case_gets_its_verdict() -> None:
    wrong = [
        row
        for row in rows(SHARED / "cases.jsonl")
        if verdict(row["response"], row["instruction_id"], row["kwargs"], row["language"]) != row["right_verdict"]
    ]
    assert wrong == []


@needs_shared
def test_the_defects_of_the_peer_are_right_here_but_for_the_deviations_we_name() -> None:
    found = rows(SHARED / "defects.jsonl")
    wrong = [
        row
        for row in found
        if verdict(row["response"], row["instruction_id"], row["kwargs"], row["language"]) != row["right_verdict"]
    ]
    high = [row for row in wrong if row["confidence"] == "high"]
    assert len(high) <= 0.05 * sum(row["confidence"] == "high" for row in found), high
    assert {(row["language"], row["instruction_id"]) for row in wrong} <= set(KNOWN_DEVIATIONS), wrong


@pytest.mark.parametrize("language", LANGUAGES)
def test_instructions_of_case_and_letters_exist_only_where_letters_have_case(language: str) -> None:
    missing = set(INSTRUCTIONS) - set(supported_instructions(language))
    assert len(missing) == (0 if LANGUAGES[language].cased else 18)
    for name in missing:
        assert name.startswith("change_case:") or name in {f"keywords:{what}" for what in LETTERS}
        with pytest.raises(LanguageUnsupported):
            check_instruction("text", name, SAMPLE[name], language)


UNSEEN = "\u200b\u00ad\u2060\u200d\x00\x07\u3164\u115f\u2800\ufe0f\u202e\u034f\ufeff"
"""Zero-width, control and filler characters, and marks without a letter."""
LETTERS = ("letter_frequency", "alliteration", "vowel_count", "consonant_count")
SAMPLE: dict[str, dict[str, Any]] = {
    **{check["instruction_id"]: check["arguments"] for row in rows(OWN / "replies.jsonl") for check in row["checks"]},
    **{
        row["instruction_id"]: row["arguments"]
        for row in rows(OWN / "vectors.jsonl")
        if isinstance(row["verdict"], bool)
    },
}


@pytest.mark.parametrize("name", FAST)
def test_a_reply_without_visible_text_fails_every_instruction(name: str) -> None:
    for blank in ("", " \n\t\r\n", "\u3000", *UNSEEN, UNSEEN):
        assert check_instruction(blank, name, SAMPLE[name]).passed is False


@pytest.mark.parametrize(("alias", "code"), [("fr", "fre"), ("pt", "pt-BR"), ("zh-CN", "zh")])
def test_an_alias_is_the_language_it_stands_for(alias: str, code: str) -> None:
    assert supported_instructions(alias) == supported_instructions(code)


@pytest.mark.parametrize("code", ["EN", "nl", "", "en-US", None, ["en"]])
def test_an_unknown_language_is_refused_whatever_the_instruction(code: Any) -> None:
    with pytest.raises(LanguageUnsupported, match="not supported"):
        check_instruction("text", "punctuation:no_comma", {}, code)


def test_a_bad_argument_comes_before_a_bad_language_and_is_named_with_what_is_allowed() -> None:
    with pytest.raises(TaskError) as refused:
        check_instruction("text", "length_constraints:number_words", {"relation": "at most", "num_words": 3}, "nl")
    error = refused.value
    assert not isinstance(error, LanguageUnsupported)
    assert (error.field, error.found) == ("relation", "'at most'")
    assert "at least | equal to | less than" in error.allowed
    assert "number_words" in error.problem
