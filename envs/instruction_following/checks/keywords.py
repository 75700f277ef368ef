"""Checks of words that must, must not, or may occur so often, and of where a word stands."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import MappingProxyType

import regex

from gavel.envs.instruction_following.document import Document
from gavel.envs.instruction_following.matching import count_occurrences
from gavel.envs.instruction_following.text import fold_phrase, fold_text, split_graphemes, split_words
from gavel.envs.instruction_following.verdicts import (
    Arguments,
    CheckFunction,
    CheckVerdict,
    check_none_wrong,
    make_count_check,
)

_LETTERS = regex.compile(r"[\p{L}\p{M}]+")


def _check_existence(document: Document, arguments: Arguments) -> CheckVerdict:
    return check_none_wrong(
        (word for word in arguments["keywords"] if not count_occurrences(document, word)), "all keywords there"
    )


def _check_forbidden(document: Document, arguments: Arguments) -> CheckVerdict:
    return check_none_wrong(
        (word for word in arguments["forbidden_words"] if count_occurrences(document, word)),
        "free of the forbidden words",
    )


def _check_positioning(document: Document, arguments: Arguments) -> CheckVerdict:
    wanted = split_words(fold_phrase(arguments["keyword"]), document.language) or [
        fold_phrase(arguments["keyword"]).strip()
    ]
    position: int = arguments["position"]
    found = [fold_text(word) for word in document.words[position : position + len(wanted)]]
    return CheckVerdict(found == wanted, f"at {position}: {' '.join(found) or 'nothing'}; wanted: {' '.join(wanted)}")


def _check_palindrome(document: Document, arguments: Arguments) -> CheckVerdict:
    minimum: int = arguments["min_length"]
    likely = [
        word
        for word in dict.fromkeys(_iter_candidates(document))
        if len(word) >= minimum and (word[0] == word[-1] or not word.isascii())
    ]
    found = next((word for word in likely if _is_palindrome(word, minimum)), None)
    return CheckVerdict(found is not None, found or f"no palindrome of {minimum} characters or more")


def _iter_candidates(document: Document) -> Iterator[str]:
    """Yield the words; where no blanks separate words also whole runs of letters, which a reader may take for one."""
    yield from document.folded_words
    if not document.language.spaced:
        yield from _LETTERS.findall(document.folded)


def _is_palindrome(word: str, minimum: int) -> bool:
    if word.isascii():
        return word == word[::-1]
    if word[0] != word[-1] and not regex.search(r"\p{M}", word):
        return False
    characters = split_graphemes(word)
    return len(characters) >= minimum and characters == characters[::-1]


KEYWORDS: Mapping[str, CheckFunction] = MappingProxyType(
    {
        "keywords:existence": _check_existence,
        "keywords:frequency": make_count_check(
            lambda document, arguments: count_occurrences(document, arguments["keyword"]), "frequency", "occurrences"
        ),
        "keywords:forbidden_words": _check_forbidden,
        "keywords:positioning": _check_positioning,
        "keywords:palindrome_word": _check_palindrome,
    }
)
