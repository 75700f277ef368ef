"""Whether a full stop belongs to the word before it: abbreviations, initials, ordinals, dates; ``abbreviations`` has
the lists.
"""

from __future__ import annotations

import re
from functools import lru_cache

import regex

from gavel.envs.instruction_following.abbreviations import (
    COUNTED,
    HINDI_LETTERS,
    LETTERED,
    ORDINAL_BEFORE,
    ORDINAL_NOUNS,
    STARTS,
)
from gavel.envs.instruction_following.languages import Language, Stop

OPENERS = "\"'“‘«»„‚([（「『"
_LETTER = r"(?:\p{L}\p{M}*)"
_DOTTED = regex.compile(rf"{_LETTER}{{1,3}}(?:\.[-‐‑]?{_LETTER}{{1,3}})+")
_NAME = regex.compile(r"(?!J.-C)\p{Lu}\p{Ll}?\.[-‐‑]\p{Lu}\p{Ll}?")
_ABBREVIATION = re.compile(r"(\w+)\.")
_ROMAN, _NUMERAL = re.compile(r"[IVXLC]{2,}(?![\w'’])"), re.compile(r"[IVXLC](?![\w'’])")
_DOUBLED = regex.compile(r"(\p{Lu})\1\.")
_FIRST_WORD = regex.compile(r"[\p{L}\p{M}]+['’]?")
_LATIN_END = regex.compile(r"[\p{Latin}\p{M}.'’-]+\Z")
_INITIALS = regex.compile(r"\p{Lu}(?:\.\p{Lu}){0,3}")
_AUTHORED = frozenset(("by", "par", "por", "von", "di"))
_YEAR = re.compile(r"\((?:19|20)\d\d")
_KOREAN_DATE = re.compile(r"(?<!\d)\d{4}\.(?: ?\d{1,2}\.){2}\Z")
_KOREAN_DATE_PART = re.compile(r"(?<!\d)\d{4}\.(?: ?\d{1,2}\.)?\Z")
_STRONGEST_FIRST: tuple[Stop, ...] = ("never", "names", "small")


def is_abbreviation(words: list[str], tail: str, after: str, language: Language) -> bool:
    """Tell whether the full stop behind the last of some words belongs to the word, by what follows."""
    word, before = (
        _strip_prefix(words[-1].lstrip(OPENERS), language),
        words[-2].lstrip(OPENERS) if len(words) > 1 else "",
    )
    follows, first = after.lstrip(OPENERS)[:1], _FIRST_WORD.match(after.lstrip(OPENERS))
    starts = first is not None and _is_start(first[0], language)
    stop = _stop_of((*words[-3:-1], word), language)
    if stop == "never":
        return not (starts and word.isupper() and len(word) > 2)
    if language.names and _NAME.fullmatch(word):
        return True
    if language.ordinals and ((len(word) < 3 and word.isdigit()) or _ROMAN.fullmatch(word)):
        return follows.islower() or follows.isdigit() or _is_ordinal(tail, after)
    if language.dates and _is_date(tail, follows):
        return True
    if follows.islower():
        return bool(stop) or (len(word) == 1 and word.isalpha()) or _DOTTED.fullmatch(word) is not None
    known = bool(stop) or (len(word) == 1 and "a" <= word <= "z")
    if first is None:
        known = (
            known
            or f"+{word.lower()}" in language.abbreviations
            or (_INITIALS.fullmatch(word) is not None and _YEAR.match(after) is not None)
        )
        return known and (follows.isdigit() or follows == "+")
    if (stop == "names" and not starts) or _is_in_row(word, after, language):
        return True
    if known and _is_counted(word, after, language):
        return True
    joined = bool(stop) and (len(word) > 1 or not _stop_of((word,), language))  # S.A.; 44 a. C.
    return not joined and _is_initial(word, before, follows, starts=starts, language=language)


@lru_cache(maxsize=8192)
@lru_cache(maxsize=16_384)
def is_ordinary(word: str, language: Language) -> bool:
    """Tell whether a word is one of plain letters that no abbreviation ends in: ``is_abbreviation`` is false, whatever
    stands around it.
    """
    letters = word
    if not word.isalpha():
        letters = word.replace("-", "") if language.elides else word.replace("-", "").replace("'", "")
    if not (letters.isascii() and letters.isalpha() and language.cased) or len(word) == 1 or word.isupper():
        return False
    return word.lower() not in language.last_parts and not word.endswith(language.compounds)


@lru_cache(maxsize=4096)
def _stop_of(words: tuple[str, ...], language: Language) -> Stop:
    """Return what is listed of the last of some words, or of the last two or three; see ``abbreviations`` for how they
    are compared.
    """
    word, before = words[-1], words[-2] if len(words) > 1 else ""
    small, listed = word.lower(), language.abbreviations
    if small.rpartition(".")[2] not in language.last_parts:
        return ""
    forms = [small, word, f"={word if before else small}"]
    if word.isupper():
        forms.append(word.capitalize())
    if before[-1:].isdigit():
        forms.append(f"#{small}")
    parts = [part.lstrip(OPENERS).rstrip(".").lower() for part in words]
    forms += [".".join(parts[-number:]) for number in (2, 3) if number <= len(parts)]
    found: set[Stop] = {listed[form] for form in forms if form in listed}
    return next((stop for stop in _STRONGEST_FIRST if stop in found), "")


def _strip_prefix(word: str, language: Language) -> str:
    """Return a word without what is written in one with it: an article (l'avv.), the rest of a compound (Bahnhofstr.),
    or Chinese.
    """
    if not language.spaced:
        latin = _LATIN_END.search(word)
        return latin[0] if latin else word
    if word.endswith(language.compounds):
        return next(abbreviation for abbreviation in language.compounds if word.endswith(abbreviation))
    last = re.split("['’]", word)[-1] if language.elides else word
    return last if len(last) > 1 else word


def _is_start(word: str, language: Language) -> bool:
    word = (word.capitalize() if word.rstrip("'’").isupper() else word).replace("’", "'")
    return word in language.starts or word.rstrip("'") in language.starts


def _is_in_row(word: str, after: str, language: Language) -> bool:
    """Tell whether an abbreviation is one of several that belong together: z. B., J. R. R., EE. UU., v. Chr."""
    if _DOUBLED.fullmatch(f"{word}."):
        return _DOUBLED.match(after) is not None
    if len(word) != 1:
        return False
    other = _ABBREVIATION.match(after)
    return other is not None and (len(other[1]) == 1 or f"{word}.{other[1]}".lower() in language.abbreviations)


def _is_initial(word: str, before: str, follows: str, *, starts: bool, language: Language) -> bool:
    """Tell whether a single letter with a full stop begins a name; in "vitamin C." it does not."""
    if not (word in HINDI_LETTERS if language.code == "hi" and not word.isascii() else _INITIALS.fullmatch(word)):
        return False
    if not before:
        return True
    if starts or (follows.upper() != follows.lower() and not follows.isupper()):
        return False
    if before[-1] == ".":
        return True
    if word == "I" and language.code == "en":
        return False
    named = not language.ordinals and before[0].isupper() and before[1:].islower()
    if len(word) > 1:  # by J.K. Rowling, but: to D.C. Mary went
        return before in _AUTHORED
    return word.isascii() and (before in language.initial_before or (named and before not in LETTERED))


def _is_counted(word: str, after: str, language: Language) -> bool:
    """Tell whether what follows a known abbreviation is a Roman numeral, or another abbreviation (Mon. Tue. Fri.)."""
    if _ROMAN.match(after) or (word.lower() in COUNTED and _NUMERAL.match(after)):
        return True
    other = _ABBREVIATION.match(after)
    return other is not None and bool(_stop_of(("-", other[1]), language))


def _is_ordinal(tail: str, after: str) -> bool:
    """Tell whether a German number with a full stop goes with the capitalised word behind it."""
    follows = regex.match(r"\w+", after)
    noun = follows[0] if follows else ""
    if noun in ORDINAL_NOUNS:
        return True
    before = tail.split()[-2:-1]
    return (
        bool(before) and before[0].lstrip(OPENERS).lower() in ORDINAL_BEFORE and bool(noun) and noun not in STARTS["de"]
    )


def _is_date(tail: str, follows: str) -> bool:
    """Tell whether a full stop stands in a Korean date (2024. 5. 3.), or at its end."""
    return _KOREAN_DATE.search(tail) is not None or (follows.isdigit() and _KOREAN_DATE_PART.search(tail) is not None)
