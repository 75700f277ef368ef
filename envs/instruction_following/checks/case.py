"""Checks of letter case, for the languages that have it.

ª and º are letters without case: they only look like small ones.
"""

from __future__ import annotations

import math
import re
import string
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from itertools import pairwise
from types import MappingProxyType

from gavel.envs.instruction_following.checks.letters import count_vowels_and_consonants
from gavel.envs.instruction_following.document import Document
from gavel.envs.instruction_following.languages import END_MARKS
from gavel.envs.instruction_following.matching import find_occurrences
from gavel.envs.instruction_following.text import count_ascii
from gavel.envs.instruction_following.verdicts import (
    Arguments,
    CheckFunction,
    CheckVerdict,
    check_between,
    check_none_wrong,
    make_count_check,
)

_NEUTRAL = str.maketrans({"ª": "", "º": "", "ß": "SS"})
_ORDINALS = str.maketrans({"ª": "", "º": ""})
_CLOSERS = "\"'”“’»›」』)]}）］>*_`~ \u00a0\u202f\n"
_ELIDED = frozenset(
    (
        "qu",
        "jusqu",
        "lorsqu",
        "puisqu",
        "quoiqu",
        "un",
        "all",
        "dall",
        "dell",
        "nell",
        "sull",
        "coll",
        "quell",
        "quest",
        "bell",
        "sant",
    )
)
_RUN = re.compile(r"[^\W\d_]+")
_TOKEN = re.compile(r"\S+")


def _is_all_upper(text: str) -> bool:
    return text.isupper() if text.isascii() else text.translate(_NEUTRAL).isupper()


def _is_all_lower(text: str) -> bool:
    return text.islower() if text.isascii() else text.translate(_ORDINALS).islower()


def _is_alternating_run(run: str) -> bool:
    """Whether the letters of a run take turns; letters without case do not count."""
    cased = [letter.isupper() for letter in run if letter.isupper() or letter.islower()]
    return all(one != other for one, other in pairwise(cased))


def _is_alternating(text: str) -> bool:
    return any(letter.isupper() or letter.islower() for letter in text) and all(
        _is_alternating_run(run[0]) for run in _RUN.finditer(text)
    )


def _is_capitalised(token: str) -> bool:
    """Whether the first letter is upper-case and the others are not, unless a mark stands right before them
    (Well-Known, L'Ami).
    """
    before = ""
    seen = token[:1].isdigit()
    for letter in token:
        if letter.isalpha() and letter not in "ªº":
            if not seen and letter.islower():
                return False
            if seen and letter.isupper() and (before.isalnum() or token[:1].isdigit()):
                return False
            seen = True
        before = letter
    return True


def _is_target_capitalised(found: str) -> bool:
    return any(letter.isupper() for letter in found) and all(_is_strictly_capitalised(token) for token in found.split())


def _is_strictly_capitalised(token: str) -> bool:
    return all(_is_capital_start(part) for part in re.split(r"[-‐‑/]", token))


def _is_capital_start(part: str) -> bool:
    """Whether a part of a compound has its capital in front; another may follow an elision or a name's particle (L'Ami,
    O'Brien).
    """
    before, apostrophe, after = part.partition("'")
    if (
        apostrophe
        and (len(_keep_letters(before)) == 1 or _keep_letters(before).lower() in _ELIDED)
        and len(_keep_letters(after)) > 1
    ):
        return _is_capital_start(before) and (_is_capital_start(after) or after.islower())
    letters = _keep_letters(part)
    return not letters or (letters[0] == letters[0].upper() and letters[1:] == letters[1:].lower())


def _keep_letters(part: str) -> str:
    return "".join(letter for letter in part if letter.isalpha())


def _make_target_check(fits: Callable[[str], bool], what: str) -> CheckFunction:
    def check(document: Document, arguments: Arguments) -> CheckVerdict:
        found = find_occurrences(document, arguments["target_string"])
        if not found:
            return CheckVerdict(False, f"{arguments['target_string']} does not occur")
        return check_none_wrong((one for one in found if not fits(one)), f"{what} every time")

    return check


def _make_whole_check(fits: Callable[[str], bool], what: str) -> CheckFunction:
    def check(document: Document, arguments: Arguments) -> CheckVerdict:  # noqa: ARG001
        passed = fits(document.text)
        return CheckVerdict(passed, what if passed else f"not {what}")

    return check


def _check_first_letter_cap(document: Document, arguments: Arguments) -> CheckVerdict:  # noqa: ARG001
    text = document.text
    if text == text.lower() if text.isascii() else not any(map(str.isupper, set(text))):
        return CheckVerdict(False, "no upper-case letter")
    return check_none_wrong(
        (token[0] for token in _TOKEN.finditer(document.prose) if not _is_capitalised(token[0])),
        "every word capitalised",
    )


def _check_case_ratio(document: Document, arguments: Arguments) -> CheckVerdict:
    if document.text.isascii():
        lower, upper = (
            count_ascii(document.text, letters.encode()) for letters in (string.ascii_lowercase, string.ascii_uppercase)
        )
        return _check_ratio(lower, upper, arguments, "lower-case to upper-case letters")
    letters = Counter(document.text)
    lower = sum(times for letter, times in letters.items() if letter.islower() and letter not in "ªº")
    upper = sum(times for letter, times in letters.items() if letter.isupper())
    return _check_ratio(lower, upper, arguments, "lower-case to upper-case letters")


def _check_vowel_balance(document: Document, arguments: Arguments) -> CheckVerdict:
    return _check_ratio(*count_vowels_and_consonants(document), arguments, "vowels to consonants")


def _check_ratio(above: int, below: int, arguments: Arguments, unit: str) -> CheckVerdict:
    if above + below == 0:
        return CheckVerdict(False, "no letters")
    return check_between(
        above / below if below else math.inf, arguments["min_fraction"], arguments["max_fraction"], unit
    )


def _check_first_letter_sentence(document: Document, arguments: Arguments) -> CheckVerdict:  # noqa: ARG001
    return check_none_wrong(_find_small_starts(document), "every sentence starts with a capital")


def _find_small_starts(document: Document) -> Iterator[str]:
    if not document.sentences and not document.words:
        yield "no words"
    for sentence in document.sentences:
        first = next((character for character in sentence if character.isalnum()), "")
        if first.islower() and first not in "ªº":
            yield sentence


def _check_last_letter(document: Document, arguments: Arguments) -> CheckVerdict:
    kind: str = arguments["case"]
    last = (
        document.text.rstrip(END_MARKS + _CLOSERS).removesuffix("](").rstrip(END_MARKS + _CLOSERS)[-1:]
    )  # a link without its target
    if kind == "special" and not last:
        return CheckVerdict(False, "nothing but closing marks")
    return CheckVerdict(_LAST[kind](last), f"the last character is {last!r}; wanted: {kind}")


_LAST: Mapping[str, Callable[[str], bool]] = MappingProxyType(
    {
        "uppercase": str.isupper,
        "lowercase": str.islower,
        "digit": str.isdigit,
        "special": lambda last: not last.isalnum(),
    }
)


def _count_upper_words(document: Document, arguments: Arguments) -> int:  # noqa: ARG001
    if document.prose.isascii():
        return sum(map(str.isupper, document.words))
    return sum(map(_is_all_upper, document.words))


def _count_lower_words(document: Document, arguments: Arguments) -> int:  # noqa: ARG001
    if document.prose.isascii():
        return sum(map(str.islower, document.words))
    return sum(map(_is_all_lower, document.words))


CASE: Mapping[str, CheckFunction] = MappingProxyType(
    {
        "change_case:all_caps": _make_whole_check(_is_all_upper, "all letters upper-case"),
        "change_case:lowercase": _make_whole_check(_is_all_lower, "all letters lower-case"),
        "change_case:alternating": _make_whole_check(_is_alternating, "letters alternating in case"),
        "change_case:first_letter_cap": _check_first_letter_cap,
        "change_case:capital_word_frequency": make_count_check(
            _count_upper_words, "capital_frequency", "upper-case words", "capital_relation"
        ),
        "change_case:lowercase_word_frequency": make_count_check(
            _count_lower_words, "lowercase_frequency", "lower-case words", "lowercase_relation"
        ),
        "change_case:all_caps_target": _make_target_check(_is_all_upper, "upper-case"),
        "change_case:lowercase_target": _make_target_check(_is_all_lower, "lower-case"),
        "change_case:alternating_target": _make_target_check(_is_alternating, "alternating"),
        "change_case:first_letter_cap_target": _make_target_check(_is_target_capitalised, "capitalised"),
        "change_case:case_ratio": _check_case_ratio,
        "change_case:first_letter_sentence": _check_first_letter_sentence,
        "change_case:last_letter": _check_last_letter,
        "change_case:vowel_consonant_balance": _check_vowel_balance,
    }
)
