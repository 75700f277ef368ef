"""Whether a question stands in a set that training must not see: by normalised text, and by any 13 words in a row in
common.
"""

from __future__ import annotations

import hashlib
import unicodedata
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import regex

from gavel.envs.rows import check_file, read_rows, read_text_lines
from gavel.models.codec import record
from gavel.models.errors import InputError

GRAM = 13
"""Words in a row that must not be shared; the usual length for decontamination (Brown et al.

2020, arXiv:2005.14165, appendix C).
"""

_UNSPACED = r"\p{Han}\p{Hiragana}\p{Katakana}\p{Thai}\p{Lao}\p{Khmer}\p{Myanmar}々〆ー"
"""Scripts that write no blanks between words: there a character (with its marks) counts as a word."""
_WORDS = regex.compile(rf"[{_UNSPACED}]\p{{M}}*|(?:(?![{_UNSPACED}])[\w\p{{M}}])+")
_FIELDS = ("question", "problem", "prompt", "query", "text")


def split_words(text: str) -> tuple[str, ...]:
    """Return the words of a text after NFKC and case folding; punctuation and blanks are gone.

    Where a script writes no blanks between words (Chinese, Japanese, Thai, Lao, Khmer, Burmese) each character is a
    word.
    """
    return tuple(_WORDS.findall(unicodedata.normalize("NFKC", text).casefold()))


def normalise_text(text: str) -> str:
    """Return a text as its words joined by blanks; one without any word is only trimmed."""
    return " ".join(split_words(text)) or text.strip()


def compute_question_share(question: str) -> float:
    """Return a number in [0, 1) that depends on the normalised text only, so that equal questions stay on one side of a
    split.
    """
    return int.from_bytes(hashlib.sha256(normalise_text(question).encode(errors="surrogatepass")).digest()[:8]) / 2**64


def _iter_grams(text: str) -> Iterator[tuple[str, ...]]:
    found = split_words(text)
    return (found[start : start + GRAM] for start in range(len(found) - GRAM + 1))


@record
class ProtectedFile:
    """A protected set as it goes into the manifest."""

    path: str
    sha256: str
    questions: int


class Protected:
    """The questions of all protected files."""

    def __init__(self, paths: Iterable[str]) -> None:
        self._texts: set[str] = set()
        self._grams: set[tuple[str, ...]] = set()
        self.files = tuple(self._add_file(Path(path)) for path in paths)

    def _add_file(self, path: Path) -> ProtectedFile:
        check_file(path)
        questions = list(_read_questions(path))
        for question in questions:
            self._texts.add(normalise_text(question))
            self._grams.update(_iter_grams(question))
        return ProtectedFile(str(path), compute_file_sha256(path), len(questions))

    def match_question(self, question: str) -> str | None:
        """Return how a question matches: ``text``, ``13-gram``, or None."""
        if normalise_text(question) in self._texts:
            return "text"
        return f"{GRAM}-gram" if any(gram in self._grams for gram in _iter_grams(question)) else None


def _read_questions(path: Path) -> Iterator[str]:
    """Yield the questions of a ``.txt`` file (one a line), or of rows that hold one in a known field.

    Raises:
        InputError: a row without a question; a protected set must not be read in part.
    """
    if path.suffix == ".txt":
        yield from (line for _, line in read_text_lines(path))
        return
    for line in read_rows(path):
        if line.error is not None:
            raise line.error
        question = _find_question(line.row)
        if question is None:
            raise InputError(
                "this row holds no question",
                where=f"{path}:{line.number}",
                found=f"the fields {', '.join(sorted(line.row))}",
                allowed=f"target.question, or one of {', '.join(_FIELDS)}",
                remedy="give a .txt file with one question a line",
            )
        yield question


def _find_question(row: Mapping[str, Any]) -> str | None:
    target = row.get("target")
    places = [target.get("question")] if isinstance(target, Mapping) else []
    places += [row.get(field) for field in _FIELDS]
    return next((place for place in places if isinstance(place, str) and place.strip()), None)


def compute_file_sha256(path: Path) -> str:
    """Return ``sha256:<hex>`` of a file's bytes."""
    with path.open("rb") as file:
        return f"sha256:{hashlib.file_digest(file, 'sha256').hexdigest()}"
