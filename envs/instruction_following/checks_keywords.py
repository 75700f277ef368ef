"""Checks of words that must, must not, or may occur so often, and of where a word stands."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import MappingProxyType

import regex

from gavel.envs.instruction_following.document import Document
from gavel.envs.instruction_following.matching import count
from gavel.envs.instruction_following.text import folded, graphemes, words
from gavel.envs.instruction_following.verdicts import Arguments, CheckFunction, Verdict, counted, every

_LETTERS = regex.compile(r"[\p{L}\p{M}]+")


def _existence(document: Document, arguments: Arguments) -> Verdict:
    return every((word for word in arguments["keywords"] if not count(document, word)), "all keywords there")


def _forbidden(document: Document, arguments: Arguments) -> Verdict:
    return every((word for word in arguments["forbidden_words"] if count(document, word)), "free of the forbidden words")


def _positioning(document: Document, arguments: Arguments) -> Verdict:
    wanted = words(folded(arguments["keyword"]), document.language) or [folded(arguments["keyword"]).strip()]
    position: int = arguments["position"]
    found = document.folded_words[position : position + len(wanted)]
    return Verdict(found == wanted, f"at {position}: {' '.join(found) or 'nothing'}; wanted: {' '.join(wanted)}")


def _palindrome(document: Document, arguments: Arguments) -> Verdict:
    minimum: int = arguments["min_length"]
    likely = [word for word in _candidates(document) if len(word) >= minimum and (word[0] == word[-1] or not word.isascii())]
    found = next((word for word in likely if _is_palindrome(word, minimum)), None)
    return Verdict(found is not None, found or f"no palindrome of {minimum} characters or more")


def _candidates(document: Document) -> Iterator[str]:
    """Yield the words; where no blanks separate words also whole runs of letters, which a reader may take for one."""
    yield from document.folded_words
    if not document.language.spaced:
        yield from _LETTERS.findall(document.folded)


def _is_palindrome(word: str, minimum: int) -> bool:
    if word.isascii():
        return word == word[::-1]
    if word[0] != word[-1] and not regex.search(r"\p{M}", word):
        return False
    characters = graphemes(word)
    return len(characters) >= minimum and characters == characters[::-1]


KEYWORDS: Mapping[str, CheckFunction] = MappingProxyType(
    {
        "keywords:existence": _existence,
        "keywords:frequency": counted(lambda document, arguments: count(document, arguments["keyword"]), "frequency", "occurrences"),
        "keywords:forbidden_words": _forbidden,
        "keywords:positioning": _positioning,
        "keywords:palindrome_word": _palindrome,
    }
)
