"""Short cuts for plain text read it as the long way does, on random and hostile texts."""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest

from gavel.envs.instruction_following import blocks, plain_blocks, sentences, structure, text
from gavel.envs.instruction_following.checking import check_document
from gavel.envs.instruction_following.checks import startend
from gavel.envs.instruction_following.document import Document
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


STOPPED = (
    "cat", "The", "Dr", "etc", "no", "No", "I", "A", "mich", "so", "Yum", "Yahoo", "don't", "it's", "'", "(",
    "[", ")", "]", "...", "?!", "!", "?", ".", ". ", ". ", ". ", ". ", "! ", "? ", " ", " ", " ", "A ", "The ",
    "Then ", "we ", "Go", "x", ",", "-", "3", "3.14", "e.g.", "U.S.", "*", "_", "/", ":", "Bahnhofstr",
    "Art", "kg", "TV", "am", "Mon", "well-known", "J-P", "l'avv", "dell'art", "P.S. ", "D.C. ", "p.m. ", "ASP.NET",
)  # fmt: skip


@pytest.mark.parametrize("code", [code for code, language in LANGUAGES.items() if language.cased])
def test_sentences_of_plain_text_are_those_that_the_library_finds(code: str) -> None:
    language, draw, plain = LANGUAGES[code], random.Random(7), 0
    for _ in range(2500):
        written = "".join(draw.choice(STOPPED) for _ in range(draw.randrange(2, 16))).strip()
        found = sentences._split_plain(written, language) if text.has_word(written) else None
        if found is not None:
            plain += len(found) > 1
            assert found == sentences._cut_text(written, sentences._find_ends(written, language))
    assert plain > 20


@pytest.mark.parametrize("mark", "*_`~")
def test_emphasis_of_one_mark_is_read_as_that_of_any(mark: str) -> None:
    draw = random.Random(11)
    for _ in range(1000):
        written = "".join(
            draw.choice((mark, mark * 2, "a", "7", " ", "\n", "\\", ".")) for _ in range(draw.randrange(12))
        )
        seen = text._EMPHASIS.sub(text._resolve_emphasis, written)
        assert text.extract_visible(written) == text._ESCAPE.sub(r"\1", seen)


@pytest.mark.parametrize("code", ["en", "fre", "zh", "ar"])
def test_the_start_of_a_reply_is_found_in_its_head_as_in_all_of_it(code: str, monkeypatch: pytest.MonkeyPatch) -> None:
    draw, passed = random.Random(12), 0
    for _ in range(1500):
        written = "".join(
            f"{draw.choice(PIECES)}{draw.choice(('', ' ', chr(10)))}" for _ in range(draw.randrange(1, 40))
        )
        document = Document(written, LANGUAGES[code])
        phrase = document.text[draw.randrange(3) :][: draw.randrange(1, 30)].strip()
        if not phrase:
            continue
        verdicts = []
        for size in (1, 10**9):
            monkeypatch.setattr(startend, "_START", size)
            verdicts.append(check_document(document, "startend:start_checker", {"start_phrase": phrase}).passed)
        assert verdicts[0] == verdicts[1], (written, phrase)
        passed += bool(verdicts[0])
    assert passed > 300


LINES = (
    "word", "Word two", "The end.", "", "", "", "- item", "* a", "1. x", "2) y", "  - sub", "    - deep",
    "    code", "# H", "## <<T>>", "---", "***", "| a | b |\n|---|---|\n| c | d |", "```py\nx = 1\n```", "```",
    "> q", ">", "  text", "-", "1.", "5 apples", "é", "好", "一、x", "“q”", "¿x", '"Q', "[x] y", "(a) b", "*em*",
    "**Bold** x", "**1. a**", "- **b** c", "- 5 apples", "1. 5# x", "-     x", "a. b", "I. d", "P.S. x",
    "3. Oktober", "• • •", "— oh", "- [ ] c", "<<t>>",
)  # fmt: skip


@pytest.mark.parametrize("code", ["en", "de", "fre", "zh"])
def test_blocks_of_plain_replies_are_those_of_the_long_way(code: str) -> None:
    language, draw, read = LANGUAGES[code], random.Random(8), 0
    plain = [line for line in LINES if plain_blocks.read_plain_blocks(["word", "", *line.split("\n")], language)]
    for number in range(4000):
        lines = "\n".join(draw.choice(plain if number % 2 else LINES) for _ in range(draw.randrange(1, 14))).strip("\n")
        found = plain_blocks.read_plain_blocks(lines.split("\n"), language)
        if found is not None:
            read += 1
            assert found == blocks.parse_blocks(*blocks.read_layout(lines), language), lines
    assert read > 1000


def test_a_title_in_a_heading_ends_the_lists_above_it() -> None:
    for written in ("- a\n## <<T>>\n  - b", "> - a\n\n- a\n## <<T>>\n  - b"):
        found = blocks.parse_blocks(*blocks.read_layout(written), ENGLISH)
        assert found[-1].level == 1
