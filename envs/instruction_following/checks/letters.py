"""Counts of letters: one letter, vowels, consonants, initials."""

from __future__ import annotations

import string
from collections.abc import Mapping
from types import MappingProxyType

from gavel.envs.instruction_following.document import Document
from gavel.envs.instruction_following.languages import LANGUAGES, Language
from gavel.envs.instruction_following.text import count_ascii, strip_accent
from gavel.envs.instruction_following.verdicts import Arguments, CheckFunction, make_count_check

ASCII_LETTERS = string.ascii_letters.encode()
_VOWELS: Mapping[str, bytes] = MappingProxyType(
    {
        code: bytes(letter for letter in ASCII_LETTERS if chr(letter).lower() in language.vowels)
        for code, language in LANGUAGES.items()
    }
)
"""The vowels of each language that ASCII has."""


def _is_same_letter(letter: str, wanted: str, language: Language) -> bool:
    """Whether a letter counts as the wanted one, both in lower case: an accent matters except where the language says
    so.
    """
    return letter == wanted or (wanted in language.folds and strip_accent(letter) == wanted)


def count_vowels_and_consonants(document: Document) -> tuple[int, int]:
    """Return how many letters are vowels (by their base letter) and how many are not."""
    if document.text.isascii():
        vowels = count_ascii(document.text, _VOWELS[document.language.code])
        return vowels, count_ascii(document.text, ASCII_LETTERS) - vowels
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
    if len(wanted) > 1 or document.text.isascii():  # several: a letter with marks that has no code point of its own
        return document.text.lower().count(wanted)
    return sum(
        times for letter, times in document.letters.items() if _is_same_letter(letter, wanted, document.language)
    )


def _count_initials(document: Document, arguments: Arguments) -> int:
    wanted: str = arguments["target_letter"].lower()
    if wanted not in document.language.folds:
        return "\n".join(["", *document.words]).lower().count(f"\n{wanted}")
    return sum(_is_same_letter(word[:1], wanted, document.language) for word in map(str.lower, document.words))


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
