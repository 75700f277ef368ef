"""The structure of a reply: markdown-it finds code, tables, headings and rules; what is left is prose, read line by
line.

Prose is read here because replies use list markers that Markdown does not know (``・``, ``１．``, ``1、``, ``١-``), and
because readers take an item that is indented by two blanks for a subitem, whatever Markdown's rule for numbered lists
says.
"""

from __future__ import annotations

import re
import string
from collections.abc import Sequence
from dataclasses import dataclass, field

import regex

from gavel.envs.instruction_following.block import Block, Marker
from gavel.envs.instruction_following.code_text import is_code
from gavel.envs.instruction_following.languages import BULLETS, TIGHT_BULLETS, Language
from gavel.envs.instruction_following.line_marks import settle_marks
from gavel.envs.instruction_following.structure import HEADING, RULE, read_structure
from gavel.envs.instruction_following.text import begins_seen, extract_visible, is_seen

_LOOSE = re.escape("".join(mark for mark in BULLETS if mark not in TIGHT_BULLETS))
_BULLET = re.compile(
    rf"(?:[{_LOOSE}](?=\s)|[{re.escape(TIGHT_BULLETS)}](?=[^\s{re.escape(TIGHT_BULLETS)}]|\s))\s*(?=\S)"
)
_NUMBER = regex.compile(
    r"(?P<bold>[*_]{1,3})?(?:"
    r"\p{Nd}{1,3}(?:\.\p{Nd}{1,3}){1,3}[.)](?=\s)|[(（]?\p{Nd}{1,3}(?:(?:\.\)|[.)])(?=[^\p{Nd}.)]|$)|(?!\.\.)[.)\-–ـº°ª]{1,4}(?=\s|$)|[．）](?=.)|[、،](?=\D)|\uFE0F?\u20E3)"
    r"|[\u2460-\u249B\u24EA-\u24FF\u2776-\u2793]|[一二三四五六七八九十]{1,3}、|[(（][一二三四五六七八九十]{1,3}[)）]"
    r")(?(bold)[*_]{0,3}|(?![*_]{1,3}(?:\s|$)))\s*"
)
"""A number that opens an item; emphasis that closes behind it must have opened before it."""
_PLAIN_ITEM = re.compile(r"( *)(?:([-*+])|[0-9]{1,3}[.)]) +(?=[A-Za-z0-9])")
"""The most common items."""
_CHECK_BOX = re.compile(r"\[[ xX✓✔]\](?:\s+|$)")
_NUMBER_STARTS = "0123456789(*_"
"""What of ASCII a number begins with."""
_ORNAMENTS = f" {BULLETS}"
_PLAIN_STARTS = frozenset(string.ascii_letters) - frozenset("ivx")
"""Letters that open an item only where a mark stands right behind them."""
_QUOTE = re.compile(r"(?: {0,3}+> ?+)++")
_TITLE = re.compile(r"[#*_\s]*<<(.*)>>[*_\s]*")
_INDENT = re.compile(r"[ \t\u3000\u00a0]*")
_CODE_INDENT = 4
"""Columns from which on an indentation is code to Markdown."""
_WIDTHS = {"\t": 4, "\u3000": 2}

_LETTER = re.compile(r"(?:[a-z]|[ivx]{2,5})[.)]\s+(?=\S)")


def read_layout(text: str) -> tuple[list[str], list[Block]]:
    """Return the lines of a reply, and the code, tables, headings and rules on them.

    ``text`` has plain line ends; its first line may be indented.
    """
    lines = _dedent_lines(text.split("\n"))
    return lines, list(read_structure(lines))


def parse_blocks(lines: list[str], found: Sequence[Block], language: Language) -> list[Block]:
    """Return all blocks of a reply in order, by what ``read_layout`` returns."""
    prose, position = _Prose(), 0
    for block in found:
        prose.read_lines(lines, position, block.line)
        prose.add_block(block)
        position = block.end
    prose.read_lines(lines, position, len(lines))
    prose.end_block()
    settle_marks(prose.blocks, lines, language)
    return _drop_empty_items(prose.blocks)


def _dedent_lines(lines: list[str]) -> list[str]:
    """Return the lines of a reply that is indented as a whole without that indentation, unless it is code."""
    if not lines[0][:1].isspace():
        return lines
    indents = [_INDENT.match(line) for line in lines if line]
    if not all(indent and _count_columns(indent[0]) >= _CODE_INDENT for indent in indents):
        return lines
    if is_code(lines, whole=True):
        return lines
    width = min(len(indent[0]) for indent in indents if indent)
    return [line[width:] for line in lines]


def _drop_empty_items(found: list[Block]) -> list[Block]:
    """Make items without any visible text rules: nothing of them is read.

    One that holds only a list of its own stays.
    """
    for place, block in enumerate(found):
        if block.kind == "item" and not (begins_seen(block.text) or is_seen(extract_visible(block.text))):
            below = found[place + 1] if place + 1 < len(found) else None
            if below is None or below.kind != "item" or below.level <= block.level:
                block.kind, block.text, block.marker = "rule", "", ""
    return found


@dataclass(slots=True)
class _Prose:
    """Reads lines of prose into paragraphs and list items.

    ``indents`` are the columns at which the lists around the current line start, outermost first; ``rest`` are the
    lines of the current block behind its first, joined at its end: line by line, a megabyte would be copied for each of
    them.
    """

    blocks: list[Block] = field(default_factory=list)
    current: Block | None = None
    indents: list[int] = field(default_factory=list)
    fresh: bool = True
    rest: list[str] = field(default_factory=list)

    def add_block(self, block: Block) -> None:
        """Take a block that is not prose."""
        if block.kind == "heading":
            mark_title(block)
            self.indents.clear()
        self.end_block()
        self.blocks.append(block)

    def end_block(self) -> None:
        """Take what comes next for a new block."""
        self._join_rest()
        self.current, self.fresh = None, True

    def _join_rest(self) -> None:
        if self.current is not None and self.rest:
            self.current.text = "\n".join([self.current.text, *self.rest])
            self.rest.clear()

    def read_lines(self, lines: list[str], start: int, end: int) -> None:
        """Read some lines."""
        for number in range(start, end):
            line = lines[number]
            if not line:
                self.end_block()
            elif _is_plain_start(line):
                self._add_text(line, line, number)
            elif item := _PLAIN_ITEM.match(line):
                self._start_item(line[item.end() :], number, item.end(1), "bullet" if item[2] else "number")
            else:
                if ">" in line and (quote := _QUOTE.match(line)):
                    line = line[quote.end() :]
                if content := line.lstrip():
                    self._read_line(line, content, number)
                else:
                    self.end_block()

    def _read_line(self, line: str, content: str, number: int) -> None:
        first = content[0]
        plain = first.isalpha() and first not in BULLETS
        if not plain and (block := _read_mark(content, number)) is not None:  # within a fence of prose
            self.add_block(block)
        elif (marker := _match_marker(content, first)) is not None:
            kind, width = marker
            if content.startswith("[", width) and (box := _CHECK_BOX.match(content, width)) is not None:
                width = box.end()
            indent = len(line) - len(content)
            self._start_item(content[width:], number, _count_columns(line[:indent]) if indent else 0, kind)
        else:
            self._add_text(line, content, number)

    def _add_text(self, line: str, content: str, number: int) -> None:
        if self.current is not None:
            self.current.end = number + 1
            if self.current.text:
                self.rest.append(content)
            else:
                self.current.text = content
        else:
            if self.indents and _count_columns(line[: len(line) - len(content)]) == 0:
                self.indents.clear()
            self._start_block(Block("paragraph", content, number, number + 1))

    def _start_block(self, block: Block) -> None:
        self._join_rest()
        block.first, self.fresh = self.fresh, False
        self.blocks.append(block)
        self.current = block

    def _start_item(self, text: str, number: int, indent: int, marker: Marker) -> None:
        self._start_block(Block("item", text, number, number + 1, self._compute_depth(indent), marker))

    def _compute_depth(self, indent: int) -> int:
        while self.indents and indent < self.indents[-1]:
            self.indents.pop()
        if not self.indents or indent >= self.indents[-1] + 2:
            self.indents.append(indent)
        return len(self.indents)


def _is_plain_start(line: str) -> bool:
    """Tell whether a line begins with a letter of ASCII that opens no item, the most common."""
    return line[0] in _PLAIN_STARTS and line[1:2] not in ".)"


def _is_ornament(content: str) -> bool:
    """Tell whether a line is nothing but marks that open items (• • •): it separates what stands around it."""
    return content[0] in BULLETS and content[-1] in BULLETS and len(content) > 2 and not content.strip(_ORNAMENTS)


def _read_mark(content: str, number: int) -> Block | None:
    """Return the rule, heading or title that a line is; None for prose."""
    first = content[0]
    if (first in "-*_" and content.count(first) > 2 and RULE.match(content)) or _is_ornament(content):
        return Block("rule", "", number, number + 1)
    if first == "#" and (heading := HEADING.match(content)):
        return Block("heading", content[heading.end() :].strip(), number, number + 1, heading.end())
    if "<<" in content[:6] and _TITLE.fullmatch(content):
        return Block("title", content, number, number + 1)
    return None


def mark_title(block: Block) -> None:
    """Make a heading that holds ``<<…>>`` a title as well: it keeps its level."""
    if block.kind == "heading" and "<<" in block.text and _TITLE.fullmatch(block.text):
        block.kind = "title"


def _count_columns(blanks: str) -> int:
    return len(blanks) if not blanks.strip(" ") else sum(_WIDTHS.get(blank, 1) for blank in blanks)


def _match_marker(content: str, first: str) -> tuple[Marker, int] | None:
    """Return what kind of item a line opens, by its first character too, and the width of its marker; None where it
    opens none.
    """
    if first.isalpha() and not "一" <= first <= "鿿" and first not in BULLETS:
        letter = _LETTER.match(content)
        return None if letter is None else ("letter", letter.end())
    if len(content) == 1 and first in BULLETS:
        return "bullet", 1  # empty, or its text is on the next line
    if first in BULLETS and (bullet := _BULLET.match(content)):
        return "bullet", bullet.end()
    number = None if first.isascii() and first not in _NUMBER_STARTS else _NUMBER.match(content)
    return None if number is None else ("number", number.end())


def extract_title(block: Block) -> str:
    """Return what stands between ``<<`` and ``>>``."""
    found = _TITLE.fullmatch(block.text)
    return found[1].strip() if found else ""
