"""The eleven languages as data: what differs between them stands here and nowhere else.

Everything the checks need beyond Unicode itself: letters that are vowels, marks, quotation marks, list markers, and whether the
language has case. Marks common to all languages are named once and shared, because replies mix scripts.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

ALIASES: Mapping[str, str] = MappingProxyType({"fr": "fre", "pt": "pt-BR", "zh-CN": "zh"})

QUOTES: tuple[tuple[str, str], ...] = (
    ('"', '"'), ("“", "”"), ("„", "“"), ("„", "”"), ("«", "»"), ("»", "«"), ("‹", "›"), ("「", "」"), ("『", "』"), ("《", "》"), ("〈", "〉"),
    ("＂", "＂"), ("〝", "〟"), ("‘", "’"), ("‚", "‘"),
)  # fmt: skip
"""Pairs that quote a whole reply; the German one closes with what opens elsewhere."""

END_MARKS = ".!?…。．！？｡‼⁉⁈⁇।॥؟۔"
"""Characters that can end a sentence, in any of the languages."""

COMMAS = ",，、،､﹐﹑"
PERIODS = ".。．｡۔।॥"
QUESTION_EXCLAIM = "?!？！؟‼⁉⁈⁇﹖﹗"
BULLETS = "-*+•◦▪▫‣⁃–—・·●○■□►➤"
"""Characters that open an item of a bulleted list."""


@dataclass(frozen=True, slots=True)
class Language:
    """One language.

    ``code`` is the code used in tasks; ``icu`` and ``sentencex`` the codes of the libraries. ``cased`` says whether letters have upper
    and lower case, ``spaced`` whether blanks separate words (else a dictionary does). ``vowels`` are lower-case, without accents: a
    letter counts as a vowel if its base letter is one. ``end_marks`` are those that end a sentence here, ``extra_marks`` what
    ``punctuation:question_exclaim`` counts besides the common ones. ``accents_distinct`` are letters that are not variants of their
    base letter (ñ is not n). ``abbreviations`` complete those of the sentence library; ``never`` are its entries that are words too.
    """

    code: str
    name: str
    icu: str
    sentencex: str
    cased: bool = True
    spaced: bool = True
    vowels: str = "aeiou"
    accents_distinct: str = ""
    extra_marks: str = ""
    prefix_match: bool = False
    abbreviations: frozenset[str] = frozenset()
