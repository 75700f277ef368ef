"""What holds of the checks whatever the reply: no exception, and the same verdict however the same text is stored."""

from __future__ import annotations

import os
import subprocess
import sys
import time
import unicodedata
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gavel.envs.instruction_following.arguments import (
    COUNT,
    FRACTION,
    LETTER,
    LEVELS,
    LIMIT,
    NUMBER,
    RELATION,
    SPLITTER,
    TEXT,
    TEXTS,
    Argument,
    ArgumentKind,
)
from gavel.envs.instruction_following.checking import CHECKS, check_document, check_instruction
from gavel.envs.instruction_following.document import Document
from gavel.envs.instruction_following.instructions import INSTRUCTIONS
from gavel.envs.instruction_following.languages import LANGUAGES

PIECES = [
    "# ", "- ", "  - ", "1. ", "１．", "・", "1、", "\n", "\n\n", "\r\n", "|", "---\n", "| a | b |\n|---|---|\n| 1 | 2 |\n",  # noqa: E501
    "```\n", "`", "**", "*", "_", "__", "~~", "<<", "T>>", ">", "> ", "[", "](x)", "]", "{", "}", "«", "»", "“", "”", "„", '"', "'",  # noqa: E501
    "’", ".", "!", "?", "。", "！", "？", "؟", "।", "…", "3.14", "Dr. ", "z. B. ", "etc. ", "No. ", "P.S. ", "A", "b", "é", "e\u0301",  # noqa: E501
    "ß", "İ", "ª", "क्", "षि", "漢", "字", "か", "가", "م", "\u200d", "\u00ad", "😀", "👨‍👩‍👧", "\ud800", "\x00", " ", "\t",  # noqa: E501
    "\u3000", "\u00a0", "\\", "$", "C++", "https://x.y/z", "a-b", "l'a", "\u0301", "a) ", "\ufeff",
]  # fmt: skip
TEXTS_OF_ANY_KIND = st.one_of(
    st.text(st.characters(), max_size=60), st.lists(st.sampled_from(PIECES), max_size=30).map("".join)
)
WORDS = st.lists(st.sampled_from(PIECES), min_size=1, max_size=3).map("".join)
WORDS = WORDS.filter(lambda words: any(unicodedata.category(character)[0] not in "CMZ" for character in words))
COUNTS = st.integers(0, 12)

VALUES: dict[int, st.SearchStrategy[Any]] = {
    id(RELATION): st.sampled_from(["at least", "equal_to", "less than"]),
    id(COUNT): COUNTS,
    id(LIMIT): st.integers(1, 12),
    id(NUMBER): st.floats(0, 9) | COUNTS,
    id(FRACTION): st.sampled_from(["1/3", "inf", "2.5", 1, 0.25]),
    id(TEXT): WORDS,
    id(TEXTS): st.lists(WORDS, min_size=1, max_size=3),
    id(LETTER): st.sampled_from(["a", "É", "ñ", "#", "ß", "e\u0301", "क"]),
    id(LEVELS): st.lists(st.integers(1, 7), min_size=1, max_size=3),
    id(SPLITTER): st.sampled_from(["Part", "Abschnitt (neu)", "章", "C++"]),
}


def values(argument: Argument) -> st.SearchStrategy[Any]:
    kind: ArgumentKind = argument.kind
    return st.sampled_from(kind.allowed.split(" | ")) if kind.name == "choice" else VALUES[id(kind)]


@st.composite
def jobs(draw: st.DrawFn) -> tuple[str, str, list[tuple[str, dict[str, Any]]]]:
    """A reply, a language, and valid arguments for every instruction that exists in it."""
    language = draw(st.sampled_from(sorted(LANGUAGES)))
    items = []
    for name in CHECKS:
        entry = INSTRUCTIONS[name]
        if not entry.is_in_language(LANGUAGES[language]):
            continue
        arguments = {argument.name: draw(values(argument)) for argument in entry.arguments}
        if entry.ordered is not None:
            arguments[entry.ordered[0]] = 0
        items.append((name, arguments))
    return draw(TEXTS_OF_ANY_KIND), language, items


def verdicts(reply: str, language: str, items: list[tuple[str, dict[str, Any]]]) -> list[bool | None]:
    document = Document(reply, LANGUAGES[language])
    return [check_document(document, name, arguments).passed for name, arguments in items]


RELAXED = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])


@RELAXED
@given(jobs())
def test_no_text_and_no_valid_arguments_raise_anything(job: tuple[str, str, list[tuple[str, dict[str, Any]]]]) -> None:
    assert all(passed in (True, False) for passed in verdicts(*job))


REWRITES: dict[str, Callable[[str], str]] = {
    "NFC": lambda text: unicodedata.normalize("NFC", text),
    "NFD": lambda text: unicodedata.normalize("NFD", text),
    "CRLF": lambda text: text.replace("\r\n", "\n").replace("\r", "\n").replace("\n", "\r\n"),
    "blanks at the end": lambda text: text + "  \n \t\n",
    "blanks at the ends of lines": lambda text: "  \n".join(text.replace("\r\n", "\n").replace("\r", "\n").split("\n")),
}


@RELAXED
@given(jobs(), st.sampled_from(sorted(REWRITES)))
def test_the_verdict_does_not_depend_on_how_a_text_is_stored(
    job: tuple[str, str, list[tuple[str, dict[str, Any]]]], how: str
) -> None:
    reply, language, items = job
    assert verdicts(REWRITES[how](reply), language, items) == verdicts(reply, language, items)


@RELAXED
@given(jobs())
def test_the_verdict_does_not_depend_on_how_the_arguments_are_composed(
    job: tuple[str, str, list[tuple[str, dict[str, Any]]]],
) -> None:
    reply, language, items = job
    decomposed = [(name, {key: _decompose(value) for key, value in arguments.items()}) for name, arguments in items]
    assert verdicts(reply, language, decomposed) == verdicts(reply, language, items)


def _decompose(value: Any) -> Any:
    if isinstance(value, list):
        return [_decompose(item) for item in value]
    return unicodedata.normalize("NFD", value) if isinstance(value, str) else value


def test_checks_that_share_a_document_say_what_each_says_alone() -> None:
    reply = "# Über\n\n- Öl\n- Essig\n\nDas reicht. Oder?"
    document = Document(reply, LANGUAGES["de"])
    for name in (
        "detectable_format:sentence_endings",
        "change_case:first_letter_sentence",
        "punctuation:no_comma",
        "punctuation:balance",
    ):
        arguments = {"min_variants": 2} if name.endswith("endings") else {}
        assert check_document(document, name, arguments) == check_instruction(reply, name, arguments, "de")


_PROGRAM = """
from gavel.envs.instruction_following import check_instruction
text = "Il prof. Rossi e la dott.ssa Verdi, ecc. Poi il sig. Neri. L'avv. Bianchi arriva alle 9.30!"
counts = [{"relation": "equal to", "num_sentences": number} for number in range(9)]
print([check_instruction(text, "detectable_format:sentence_count", count, "it").passed for count in counts])
"""


def test_the_verdict_does_not_depend_on_the_hash_seed() -> None:
    said = {
        subprocess.run(
            [sys.executable, "-c", _PROGRAM],
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("0", "1", "8")
    }
    assert len(said) == 1
    assert said.pop().count("True") == 1


DEGENERATE = {
    "newlines": "\n" * 100_000,
    "brackets": "[" * 20_000,
    "hyphens": "é-" * 10_000,
    "stars": "*" * 20_000,
    "dots": "a." * 10_000,
}
ALSO: dict[str, dict[str, Any]] = {
    "detectable_format:sentence_count": {"relation": "at least", "num_sentences": 1},
    "detectable_format:nested_list": {"min_depth": 1, "num_subitems": 1},
    "startend:end_checker": {"end_phrase": "the end"},
    "keywords:existence": {"keywords": ["a", "the end"]},
    "length_constraints:word_repetition": {"max_repeats": 3},
    "punctuation:balance": {},
}


@pytest.mark.parametrize("shape", DEGENERATE)
@pytest.mark.parametrize("language", ["en", "it", "zh", "ko"])
def test_degenerate_replies_take_no_quadratic_time(shape: str, language: str) -> None:
    """CPU seconds, with room for a slow machine: what is quadratic takes minutes over the first of them."""
    start = time.process_time()
    for name, arguments in ALSO.items():
        check_instruction("a" + DEGENERATE[shape] + "b", name, arguments, language)
    assert time.process_time() - start < 4.0
