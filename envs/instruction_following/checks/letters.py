"""Counts of letters: one letter, vowels, consonants, initials."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from gavel.envs.instruction_following.document import Document
from gavel.envs.instruction_following.languages import Language
from gavel.envs.instruction_following.text import strip_accent
from gavel.envs.instruction_following.verdicts import Arguments, CheckFunction, make_count_check


def _is_same_letter(letter: str, wanted: str, language: Language) -> bool:
    """Whether a letter counts as the wanted one, both in lower case: an accent matters except where the language says
    so.
    """
    return letter == wanted or (wanted in language.folds and strip_accent(letter) == wanted)


def count_vowels_and_consonants(document: Document) -> tuple[int, int]:
    """Return how many letters are vowels (by their base letter) and how many are not."""
    vowels = consonants = 0
    for letter, times in document.letters.items():
        if letter.isalpha() and letter not in "ªº":
            if strip_accent(letter) in document.language.vowels:
                vowels += times
            else:
                consonants += times
    return vowels, consonants


def _count_letter(document: Document, arguments: Arguments) -> int:
    wanted: str = arguments["letter"].lower()
    if len(wanted) > 1:  # a letter with marks that has no code point of its own
        return document.text.lower().count(wanted)
    return sum(
        times for letter, times in document.letters.items() if _is_same_letter(letter, wanted, document.language)
    )


def _count_initials(document: Document, arguments: Arguments) -> int:
    wanted: str = arguments["target_letter"].lower()
    if wanted not in document.language.folds:
        return sum([word.startswith(wanted) for word in document.lower_words])
    return sum(_is_same_letter(word[:1], wanted, document.language) for word in document.lower_words)


LETTERS: Mapping[str, CheckFunction] = MappingProxyType(
    {
        "keywords:letter_frequency": make_count_check(_count_letter, "let_frequency", "occurrences", "let_relation"),
        "keywords:alliteration": make_count_check(_count_initials, "num_alliteration", "words with this initial"),
        "keywords:vowel_count": make_count_check(
            lambda document, _: count_vowels_and_consonants(document)[0], "num_vowels", "vowels"
        ),
        "keywords:consonant_count": make_count_check(
            lambda document, _: count_vowels_and_consonants(document)[1], "num_consonants", "consonants"
        ),
    }
)
