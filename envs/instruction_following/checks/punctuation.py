"""Checks of punctuation, of every script in every language; code is left out where marks are counted."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Mapping
from functools import lru_cache
from types import MappingProxyType

from gavel.envs.instruction_following.document import Document
from gavel.envs.instruction_following.languages import BRACKETS, COMMAS, PERIODS, QUESTION_EXCLAIM, QUOTES, Language
from gavel.envs.instruction_following.text import normalise_text
from gavel.envs.instruction_following.verdicts import Arguments, CheckFunction, CheckVerdict, make_count_check

_CLOSE_TO_OPEN: Mapping[str, frozenset[str]] = MappingProxyType(
    {
        close: frozenset(one for one, other in (*BRACKETS, *QUOTES) if other == close)
        for _, close in (*BRACKETS, *QUOTES)
    }
)
_OPENERS = frozenset(opener for opener, _ in (*BRACKETS, *QUOTES))
_LABEL = re.compile(r"(?:\A|[\s:;,.*_\[({])(?:\d{1,3}|[^\W\d_]|[ivx]{2,4})\.?\Z")
"""What stands before the ``)`` of a label (``1)``, ``a)``), which closes nothing."""
_ASCII_MARKS = "".join(mark for mark in map(chr, range(128)) if unicodedata.category(mark).startswith("P"))
_PAIRED = re.compile(f"[{re.escape(''.join(sorted(_OPENERS | frozenset(_CLOSE_TO_OPEN))))}]")


def _make_none_of(marks: str, what: str) -> CheckFunction:
    def check(document: Document, arguments: Arguments) -> CheckVerdict:  # noqa: ARG001
        found = [mark for mark in marks if mark in document.text]
        return CheckVerdict(not found, f"found {' '.join(found)}" if found else f"no {what}")

    return check


def _count_question_exclaim(document: Document, arguments: Arguments) -> int:  # noqa: ARG001
    return sum(map(document.prose_without_code.count, QUESTION_EXCLAIM + document.language.marks))


@lru_cache(maxsize=1024)
def _normalise_marks(run: str, language: Language) -> str:
    """Return a run of end marks in its plain form: one width, each mark once in a row; in Korean 。 is a full stop."""
    plain = unicodedata.normalize("NFKC", normalise_text(run).strip())
    if language.joined:
        plain = plain.replace("。", ".")
    return "".join(mark for place, mark in enumerate(plain) if place == 0 or plain[place - 1] != mark)


def _find_endings(document: Document) -> set[str]:
    return {_normalise_marks(marks, document.language) for marks in document.endings}


def _check_end_rule(document: Document, arguments: Arguments) -> CheckVerdict:
    allowed = {_normalise_marks(marks, document.language) for marks in arguments["allowed"]}
    wrong = sorted(
        run for run in _find_endings(document) if run not in allowed and not all(mark in allowed for mark in run)
    )
    return CheckVerdict(not wrong, f"sentences end in {' '.join(wrong)}" if wrong else "all sentence endings allowed")


def _check_variants(document: Document, arguments: Arguments) -> CheckVerdict:
    found = _find_endings(document)
    return CheckVerdict(len(found) >= arguments["min_variants"], f"endings: {' '.join(sorted(found)) or 'none'}")


def _count_frequency(document: Document, arguments: Arguments) -> int:
    return document.prose_without_code.count(normalise_text(arguments["punctuation"]).strip())


def _check_balance(document: Document, arguments: Arguments) -> CheckVerdict:  # noqa: ARG001
    open_marks: list[str] = []
    text = document.prose_without_code
    for found in _PAIRED.finditer(text):
        mark = found[0]
        if open_marks and open_marks[-1] in _CLOSE_TO_OPEN.get(mark, ()):
            open_marks.pop()
        elif mark in _OPENERS:
            open_marks.append(mark)
        elif mark not in ")）" or not _LABEL.search(text[max(0, found.start() - 5) : found.start()]):
            return CheckVerdict(False, f"{mark} closes nothing")
    return CheckVerdict(
        not open_marks, f"{open_marks[-1]} is not closed" if open_marks else "all pairs closed and nested"
    )


def _check_variety(document: Document, arguments: Arguments) -> CheckVerdict:
    text = document.prose_without_code
    found = [mark for mark in _ASCII_MARKS if mark in text]
    if not text.isascii():
        found += sorted(mark for mark in set(text) if mark > "\x7f" and unicodedata.category(mark).startswith("P"))
    return CheckVerdict(len(found) >= arguments["min_types"], f"{len(found)} kinds: {' '.join(found)}")


PUNCTUATION: Mapping[str, CheckFunction] = MappingProxyType(
    {
        "punctuation:no_comma": _make_none_of(COMMAS, "comma"),
        "punctuation:no_period": _make_none_of(PERIODS, "full stop"),
        "punctuation:question_exclaim": make_count_check(
            _count_question_exclaim, "num_marks", "question and exclamation marks"
        ),
        "punctuation:end_rule": _check_end_rule,
        "detectable_format:sentence_endings": _check_variants,
        "punctuation:frequency": make_count_check(_count_frequency, "frequency", "occurrences"),
        "punctuation:balance": _check_balance,
        "punctuation:variety": _check_variety,
    }
)
