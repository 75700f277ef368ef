"""What Markdown finds in a reply besides prose: code, tables, headings and rules.

markdown-it decides, but sees only what could hold any of these. A reply is cut where nothing of what stands before can
reach on: at headings, fences and rules without indentation, which are read here, and at lines without indentation or
marker behind a blank one, which end every list and quotation. A piece in which no line could begin such a block is
prose, whatever lists it holds.
"""

from __future__ import annotations

import re
import string
from collections.abc import Iterator, Sequence
from functools import lru_cache

from markdown_it import MarkdownIt
from markdown_it.token import Token

from gavel.envs.instruction_following.block import Block
from gavel.envs.instruction_following.code_text import is_code, is_prose
from gavel.envs.instruction_following.languages import END_MARKS
from gavel.envs.instruction_following.text import begins_seen, extract_visible, is_seen

_PARSER = MarkdownIt("commonmark").enable("table").disable(["html_block", "reference"])
_PARSER.core.ruler.enableOnly(
    ["normalize", "block"]
)  # what stands within lines is none of its business: a third of the time

HEADING = re.compile(r"(#{1,6})(?=[ \t]|$)")
RULE = re.compile(r"([-*_])(?:[ \t]*\1){2,}[ \t]*$")
_FENCE = re.compile(r"(`{3,}(?!.*`)|~{3,})(.*)")
_INDENTED_FENCE = re.compile(r" {1,3}(?:```|~~~)")
_MARKS = r"[ \t>*+\-\d.)]"
_LIKELY = re.compile(
    rf"{_MARKS}*(?:#|```|~~~)"  # a heading or a fence, perhaps in a list or a quotation
    r"|[-*_=:|>+\d.) \t]+$"  # a rule, a line under a heading, the second line of a table, an item without text
    rf"|{_MARKS}*\t|{_MARKS}*[>*+\-.)] {{5}}"  # code within an item, perhaps
)
"""Lines that could begin or make code, a table, a heading or a rule, wherever they stand."""
_PLAIN_ITEM = re.compile(r"(?:[-*+]|[0-9]{1,9}[.)]) [^\W\d_]")
"""The most common item: none of the above, and no rule."""
_LETTERS = frozenset(string.ascii_letters)
_BARE = re.compile(r" *(?:[-*+]|\d{1,9}[.)])$")
_ITEM = re.compile(r" {0,3}(?:[-*+]|\d{1,9}[.)]) +(?=[^\s>*+\-\d])")
_DEEP = "    "
_TABLE_RULE = re.compile(r"\|(?:[ \t]*:?-+:?[ \t]*\|)+$")
_OPENERS = frozenset(" \t-+*>0123456789")
"""What a line may begin with that goes on with a list or a quotation, or begins one."""


def read_structure(lines: Sequence[str]) -> Iterator[Block]:
    """Yield code, tables, headings and rules of a reply, in order. ``lines`` have no blanks at their ends."""
    done = 0
    for place in _list_odd_lines(lines):
        if place < done:
            continue
        line, after_blank = lines[place], place == done or not lines[place - 1]
        if (block := read_plain_block(lines, place, after_blank)) is not None:
            found, done = block
            yield from found
        elif _opens_fence(line) or _is_likely(line, "" if after_blank else lines[place - 1]):
            first, done = _find_piece_start(lines, done, place), _find_piece_end(lines, place)
            yield from _parse_lines(lines, first, done)


def _list_odd_lines(lines: Sequence[str]) -> list[int]:
    """Return the lines that are neither blank nor prose at first sight."""
    return [place for place, line in enumerate(lines) if line and line[0] not in _LETTERS and not _is_prose_line(line)]


def _is_prose_line(line: str) -> bool:
    """Tell whether a line begins like most: with a letter, or as an item of words."""
    return line[0].isalpha() or _PLAIN_ITEM.match(line) is not None


def _opens_fence(line: str) -> bool:
    """Tell whether a line opens a fence that could go on to the end."""
    return line[0] == " " and _INDENTED_FENCE.match(line) is not None


def _find_piece_start(lines: Sequence[str], done: int, place: int) -> int:
    """Return the last line up to a place that no list and no quotation before it can reach."""
    for start in range(place, done, -1):
        if not lines[start - 1] and lines[start] and lines[start][0] not in _OPENERS:
            return start
    return done


def _find_piece_end(lines: Sequence[str], place: int) -> int:
    """Return the next line behind a place that begins something of its own."""
    if _opens_fence(lines[place]):
        return len(lines)
    after_blank = False
    for end in range(place + 1, len(lines)):
        line = lines[end]
        if line:
            if after_blank and line[0] not in _OPENERS:
                return end
            if not _is_prose_line(line):
                if read_plain_block(lines, end, after_blank) is not None:
                    return end
                if _opens_fence(line):
                    return len(lines)
        after_blank = not line
    return len(lines)


def _is_likely(line: str, before: str) -> bool:
    """Tell whether a line could begin or make anything but prose; ``before`` is the line before it, empty where that is
    blank.
    """
    if _BARE.match(line):  # an item without text, unless it underlines what stands before
        return line[-1] == "-" and bool(before) and not (_BARE.match(before) or _is_deeper(before, line))
    if _LIKELY.match(line):
        return True
    return (line.startswith(_DEEP) and not before) or (line[0] == " " and _BARE.match(before) is not None)


def _is_deeper(before: str, line: str) -> bool:
    """Tell whether a line opens an item whose text is indented more than the next line."""
    item = _ITEM.match(before)
    return item is not None and item.end() > len(line) - len(line.lstrip(" "))


def read_plain_block(lines: Sequence[str], place: int, after_blank: bool) -> tuple[list[Block], int] | None:
    """Return what a line without indentation begins, whatever stands before, and where it ends; None where it begins
    nothing.
    """
    line = lines[place]
    match line[0]:
        case "#":
            if heading := HEADING.match(line):
                level = len(heading[1])
                return [_make_heading(_extract_heading(line, level), place, place + 1, level)], place + 1
        case "`" | "~":
            if fence := _FENCE.match(line):
                return _read_fence(lines, place, fence[1], fence[2])
        case "-" | "*" | "_":
            if after_blank and RULE.match(line):
                return [Block("rule", "", place, place + 1)], place + 1
        case "|":
            if after_blank:
                return _read_table(lines, place)
    return None


def _read_table(lines: Sequence[str], start: int) -> tuple[list[Block], int] | None:
    """Return a table up to the next blank line, as plain as most are: as many cells in each row, between bars, no
    backslash.

    None for anything else, which markdown-it reads: this spares nine tenths of the time that it takes for a whole
    reply.
    """
    if start + 1 == len(lines) or not _TABLE_RULE.match(lines[start + 1]):
        return None
    bars, rows, end, seen = lines[start + 1].count("|"), [], start, 0
    while end < len(lines) and lines[end]:
        line = lines[end]
        if line.count("|") != bars or line[0] != "|" or line[-1] != "|" or "\\" in line:
            return None
        if end != start + 1:
            rows.append(line[1:-1].replace("|", "\n"))
            seen += end != start and is_seen(rows[-1].strip())
        end += 1
    cells = "\n".join([cell.strip() for cell in "\n".join(rows).split("\n")])
    return [Block("table", cells, start, end, 0, "", True, seen, bars - 1)], end


def _extract_heading(line: str, level: int) -> str:
    text = line[level:]
    bare = text.rstrip(" \t").rstrip("#")
    return (bare if bare[-1:] in (" ", "\t") else text).strip()


@lru_cache(maxsize=64)
def _make_closing(mark: str) -> re.Pattern[str]:
    """Return what closes a fence that this mark opens."""
    return re.compile(rf" {{0,3}}{mark[0]}{{{len(mark)},}}[ \t]*$")


def _read_fence(lines: Sequence[str], start: int, mark: str, label: str) -> tuple[list[Block], int]:
    closing = _make_closing(mark)
    for end in range(start + 1, len(lines)):
        if mark in lines[end] and closing.match(lines[end]):
            whole = start == 0 and end + 1 == len(lines)
            return list(_make_fence(lines, start, end + 1, lines[start + 1 : end], label, mark, whole=whole)), end + 1
    return list(_make_fence(lines, start, len(lines), lines[start + 1 :], label, mark, whole=start == 0)), len(lines)


def _parse_lines(lines: Sequence[str], first: int, end: int) -> Iterator[Block]:
    """Yield what markdown-it finds in a range of lines."""
    part = lines[first:end]
    closing = "\n" if end < len(lines) else ""
    for block in _parse_tokens(_PARSER.parse("\n".join(part) + closing), part):
        block.line += first
        block.end += first
        yield block


def _parse_tokens(tokens: Sequence[Token], lines: Sequence[str]) -> Iterator[Block]:
    """Yield code, tables, headings and rules, in order."""
    for place, token in enumerate(tokens):
        if token.map is None:
            continue
        start, end = token.map
        match token.type:
            case "code_block":
                if is_code(token.content.split("\n")):
                    yield Block("code", token.content, start, end)
            case "fence":
                yield from _make_fence(lines, start, end, token.content.split("\n"), token.info, token.markup)
            case "hr":
                yield Block("rule", "", start, end)
            case "heading_open":
                content = tokens[place + 1].content
                if token.markup[0] == "#" or _is_title(content) or not is_seen(extract_visible(content).strip("#*_ ")):
                    yield _make_heading(content, start, end, int(token.tag[1]))
                else:
                    yield Block("rule", "", end - 1, end)
            case "table_open":
                yield _make_table(tokens, place, lines)


def _make_heading(content: str, start: int, end: int, level: int) -> Block:
    """Return a heading; one without a word shows nothing, and is a rule."""
    if begins_seen(content) or is_seen(extract_visible(content).strip("#*_ ")):
        return Block("heading", content, start, end, level)
    return Block("rule", "", start, end)


def _make_fence(
    lines: Sequence[str], start: int, end: int, content: Sequence[str], label: str, mark: str, *, whole: bool = False
) -> Iterator[Block]:
    """Yield a fence as code; of one that holds prose its two marks, so that what stands between them is read as
    prose.
    """
    if not is_prose(content, label, whole=whole):
        yield Block("code", "\n".join(content), start, end)
        return
    yield Block("rule", "", start, start + 1)
    if lines[end - 1].strip().startswith(mark[:3]) and end - 1 > start:
        yield Block("rule", "", end - 1, end)


def _is_title(content: str) -> bool:
    """Whether text over a line of ``---`` is a heading: what ends like a sentence, or fills several lines, was meant as
    a paragraph.
    """
    return "\n" not in content and content[-1:] not in END_MARKS


def _make_table(tokens: Sequence[Token], place: int, lines: Sequence[str]) -> Block:
    start, end = tokens[place].map or (0, 0)
    while end > start + 2 and "|" not in lines[end - 1]:  # text right below a table would be a row by Markdown's rule
        end -= 1
    columns, cells, seen = 0, [], set()
    for token in tokens[place:]:
        if token.type == "table_close":
            break
        columns += token.type == "th_open"
        if token.type == "inline" and token.map and token.map[0] < end:
            cells.append(token.content)
            if token.map[0] > start and is_seen(extract_visible(token.content)):
                seen.add(token.map[0])
    return Block("table", "\n".join(cells), start, end, rows=len(seen), columns=columns)
