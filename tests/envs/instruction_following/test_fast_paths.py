"""Short cuts for plain text read it as the long way does, on random and hostile texts."""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest

from gavel.envs.instruction_following import structure, text
from gavel.envs.instruction_following.languages import LANGUAGES
from gavel.envs.instruction_following.stops import is_abbreviation, is_ordinary

ENGLISH = LANGUAGES["en"]
PIECES = (
    "a",
    "B",
    "cat",
    "The",
    "7",
    "12",
    "_",
    "'",
    "-",
    ".",
    "@",
    "&",
    ",",
    ":",
    "/",
    "*",
    "**",
    "`",
    "~~",
    "~",
    "[",
    "](",
    ")",
    "(",
    '"',
    "!",
    "<b>",
    "|",
    "\\",
    " ",
    " ",
    " ",
    "\n",
    "\t",
    ". ",
    ", ",
    "://",
    "www.",
    "e.g.",
    "Dr.",
    "#",
    "---",
    "étè",
    "好",
    "’",
)


def texts(seed: int, *, ascii_only: bool = False) -> Iterator[str]:
    draw = random.Random(seed)
    pieces = [piece for piece in PIECES if piece.isascii() or not ascii_only]
    for _ in range(3000):
        yield "".join(draw.choice(pieces) for _ in range(draw.randrange(16)))


def test_words_of_plain_text_are_those_of_the_pattern() -> None:
    for written in texts(1, ascii_only=True):
        pieces = written.split("\n")
        assert text._ascii_words(text._SEPARATED.join(pieces)) == [text._ASCII_WORD.findall(piece) for piece in pieces]
        if not text._is_unusual(written):
            assert text.split_words(written, ENGLISH) == text._WORD.findall(written)


@pytest.mark.parametrize("code", ["en", "ko", "zh"])
def test_texts_read_together_are_read_as_each_alone(code: str) -> None:
    language, draw = LANGUAGES[code], random.Random(2)
    alone = list(texts(3))
    while alone:
        together = [alone.pop() for _ in range(min(len(alone), draw.randrange(1, 30)))]
        assert text.words_of_each(together, language) == [text.split_words(one, language) for one in together]
        assert text.visible_of_each(together) == [text.extract_visible(one) for one in together]


def test_a_plain_table_is_read_as_markdown_reads_it() -> None:
    draw, read = random.Random(5), 0
    cells = ("a", "", " ", "b c", "**d**", "-", "---", ":", "1", "é", "`", "&", " x\t")
    for _ in range(1500):
        columns = draw.randrange(1, 4)
        rows = [
            [draw.choice(cells) for _ in range(columns + (draw.random() < 0.02))] for _ in range(draw.randrange(1, 5))
        ]
        lines = [f"|{'|'.join(row)}|" for row in rows]
        lines.insert(1, "|" + "|".join(draw.choice(("---", " :-: ", "-:", ":--")) for _ in range(columns)) + "|")
        found = structure._read_table(lines, 0)
        if found is not None:
            read += 1
            assert found[0] == list(structure._parse_lines(lines, 0, len(lines)))
            assert found[1] == len(lines)
    assert read > 500


def test_a_full_stop_behind_an_ordinary_word_is_never_part_of_it() -> None:
    draw = random.Random(6)
    for language in LANGUAGES.values():
        for word in ("house", "Tuesday", "ab", "q", "II", "Dr", "bzw", "str", "Bahnhofstr", "mich", "USA", "cap", "é"):
            for after in ("The end", "5 more", "small", "“Quoted”", "II. more", "Mai", "B. more", ")", ""):
                if is_ordinary(word, language):
                    before = [draw.choice(("der", "am", "44", "J.", "see")), word]
                    assert not is_abbreviation(before, f"{' '.join(before)}.", after, language)
