"""Finding words and phrases: whole words, in any case, whatever the typography, in every script."""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache

import regex

from gavel.envs.instruction_following import text as texts
from gavel.envs.instruction_following.document import Document
from gavel.envs.instruction_following.languages import Language

_EASTERN = r"\p{Han}\p{Hiragana}\p{Katakana}ー々"
_UNSPACED = regex.compile(rf"[{_EASTERN}]")
_HANGUL = regex.compile(r"\p{Hangul}")
_LETTER_BEFORE, _LETTER_AFTER = r"(?<!\p{L}')", r"(?!'(?!s(?!\w))\p{L})"
"""An apostrophe joins what stands beside it, but for a possessive (company's); so it's has it, can't no can."""


def count_occurrences(document: Document, phrase: str) -> int:
    """Return how often a word or phrase occurs in the whole reply, code included.

    Both sides are folded; emphasis is ignored; blanks in the phrase match any white space. A match must not begin or
    end within a word; a hyphen ends a word, an apostrophe does where the language elides, and before a possessive s. In
    Chinese and Japanese a word that the dictionary knows must not straddle the dictionary's words.
    """
    wanted = " ".join(texts.fold_phrase(texts.extract_visible(phrase)).split()) or texts.fold_phrase(phrase).strip()
    haystack = document.folded if texts.extract_visible(phrase).strip() else texts.fold_text(document.literal)
    if wanted not in haystack:
        return 0
    found = _make_pattern(wanted, document.language).finditer(haystack)
    if document.language.spaced or not _UNSPACED.search(wanted) or not _is_word(wanted, document.language):
        return sum(1 for _ in found)
    return sum(1 for _ in _keep_aligned(found, document))


def find_occurrences(document: Document, phrase: str) -> list[str]:
    """Return each occurrence of a phrase in its own case, code included; matched as ``count_occurrences`` does, in any
    case (ß as ss).
    """
    first, pattern = _cased_pattern(phrase, document.language)
    text = document.typeset
    if pattern is None:
        return []
    if not (text.isascii() and first.isascii()):
        return [match[0] for match in pattern.finditer(text)]
    found: list[str] = []
    lower = text.lower()
    place = lower.find(first)
    while place >= 0:  # ten times as fast as a search whatever the case
        if match := pattern.match(text, place):
            found.append(match[0])
        place = lower.find(first, match.end() if match else place + 1)
    return found


@lru_cache(maxsize=4096)
def _cased_pattern(phrase: str, language: Language) -> tuple[str, regex.Pattern[str] | None]:
    """Return the first part of a phrase in lower case, and what finds all of it in any case; None where nothing of it
    is left.
    """
    parts = texts.to_plain_text(texts.extract_visible(texts.normalise_text(phrase))).split()
    if not parts:
        return "", None
    bounded = _add_bounds(r"\s+".join(map(regex.escape, parts)), "".join(map(regex.escape, parts)), language)
    return parts[0].lower(), regex.compile(bounded, regex.IGNORECASE | regex.FULLCASE | regex.VERSION1)


@lru_cache(maxsize=4096)
def _make_pattern(wanted: str, language: Language) -> regex.Pattern[str]:
    return regex.compile(_add_bounds(regex.escape(wanted), wanted, language))


@lru_cache(maxsize=4096)
def _is_word(wanted: str, language: Language) -> bool:
    """Whether the dictionary takes a phrase for one word."""
    return len(list(texts.find_spans(wanted, language))) == 1


def _add_bounds(pattern: str, wanted: str, language: Language) -> str:
    return _make_before(wanted[0], wanted, language) + pattern + _make_after(wanted, language)


def _make_before(first: str, wanted: str, language: Language) -> str:
    """Return what must stand before a match that begins with a character."""
    if not _is_word_character(first) or _UNSPACED.match(first):
        return ""
    start = rf"(?<![\w--[{_EASTERN}]])"
    if not language.elides:
        start += _LETTER_BEFORE
    if first.isdigit():
        start += r"(?<!\d[.,])"
    if language.conjunctions and len(wanted) > 2:
        start = rf"(?:{start}|(?<=(?<!\w)[{language.conjunctions}]))"
    return f"(?V1:{start})"


def _make_after(wanted: str, language: Language) -> str:
    """Return what must stand after a match of a phrase."""
    last = wanted[-1]
    if not _is_word_character(last) or _UNSPACED.match(last):
        return ""
    if language.endings and _HANGUL.match(last):
        endings = f"{language.endings}|{language.vowel_endings}" if _is_vowel_end(wanted) else language.endings
        return rf"(?!(?!{endings})\w)"
    outside = rf"(?V1:(?![\w--[{_EASTERN}\p{{Hangul}}]]))" if not _HANGUL.match(last) else r"(?!\w)"
    if not language.elides:
        outside += _LETTER_AFTER
    if last.isdigit():
        outside += r"(?![.,]\d)"
    return outside


def _is_vowel_end(wanted: str) -> bool:
    """Tell whether a phrase ends in two Korean syllables or more, the last of them without a consonant behind its
    vowel.
    """
    last = wanted[-2:]
    return (
        len(last) == 2 and all("가" <= syllable <= "힣" for syllable in last) and (ord(last[1]) - ord("가")) % 28 == 0
    )


def _is_word_character(character: str) -> bool:
    return regex.match(r"\w", character) is not None


def _keep_aligned(found: Iterator[regex.Match[str]], document: Document) -> Iterator[regex.Match[str]]:
    """Yield the matches that lie within one dictionary word, or start and end at the borders of words."""
    borders: list[int] | None = None
    for match in found:
        if borders is None:
            borders = [start for start, _ in texts.find_spans(document.folded, document.language)] + [
                len(document.folded)
            ]
            edges = set(borders)
        start, end = match.span()
        if (start in edges and end in edges) or not any(border in edges for border in range(start + 1, end)):
            yield match
