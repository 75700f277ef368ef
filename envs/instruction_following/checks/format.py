"""Checks of structure: JSON, titles, headings, sections, lists, tables, paragraphs, indentation."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from types import MappingProxyType

import orjson
import regex

from gavel.envs.instruction_following.block import Block, Marker
from gavel.envs.instruction_following.blocks import extract_title
from gavel.envs.instruction_following.document import Document
from gavel.envs.instruction_following.json_grammar import is_json
from gavel.envs.instruction_following.text import extract_visible, fold_phrase, fold_text, is_seen
from gavel.envs.instruction_following.verdicts import (
    Arguments,
    CheckFunction,
    CheckVerdict,
    check_none_wrong,
    compare_each,
    make_count_check,
)

_LABEL = regex.compile(r"\A(?:[ \t]*+[\w.+-]++(?![=\w]))?+(?:[ \t]++\w++=\S++)*+(?:[ \t]*+[^\S \t]|[ \t]++)")
"""A fence's language and attributes; possessive throughout, as spaces could belong to each part."""
_TITLE_END = r"(?:\s*(?:/|\p{L}{1,4})\s*\p{Nd}{1,3}(?=$|\W))?(?:$|\s*[:.)\-–—|،、。，\]}=~#*+»】」』》）>]|\s+\()"
"""A number may be of a total: Section 1 of 3, Teil 1/3."""
_DECORATION = r"[\[({=~#*+:\-–—_|>«【「『《（\s]*"
_SECTION_NUMBER = r"(?:\p{Nd}+|[ivx]{1,5}(?!\w)|[一二三四五六七八九十]{1,3})"


def _check_json(document: Document, arguments: Arguments) -> CheckVerdict:  # noqa: ARG001
    text = _strip_fence(document.literal)
    try:
        structured = isinstance(orjson.loads(text), dict | list)
    except ValueError as failed:  # also for what is well-formed, but too large or too deep to be read
        structured = is_json(text) and text.lstrip()[0] in "{["
        return CheckVerdict(structured, "JSON" if structured else f"not JSON: {failed}")
    return CheckVerdict(structured, "JSON" if structured else "a single JSON value, neither object nor array")


def _strip_fence(text: str) -> str:
    """Return what stands in the code fence around a whole reply; what is no JSON within it is not looked for."""
    for fence in ("```", "~~~"):
        if text.startswith(fence) and text.endswith(fence) and len(text) > 2 * len(fence):
            return _LABEL.sub("", text.strip(fence[0]), count=1)
    return text


def _check_title(document: Document, arguments: Arguments) -> CheckVerdict:  # noqa: ARG001
    first = document.blocks[0] if "<<" in document.source and document.blocks else None
    title = extract_title(first) if first is not None and first.kind == "title" else ""
    return CheckVerdict(
        is_seen(extract_visible(title).strip("*_# ")),
        f"title: {title}" if title else "the first line is no title in << and >>",
    )


def _list_headings(document: Document) -> list[Block]:
    return [block for block in document.list_blocks("heading", "title") if block.level]


def _check_heading_depth(document: Document, arguments: Arguments) -> CheckVerdict:
    found = {block.level for block in _list_headings(document)}
    return check_none_wrong(
        (str(level) for level in arguments["levels"] if level not in found), "a heading of every level"
    )


def _count_sections(document: Document, arguments: Arguments) -> int:
    splitter = " ".join(fold_phrase(arguments["section_splitter"]).split())
    first = splitter.partition(" ")[0]
    in_heading, in_line = _make_section_patterns(splitter)
    heads = sum(1 for block in _list_headings(document) if in_heading.match(fold_text(extract_visible(block.text))))
    return heads + sum(
        1 for line in fold_text(document.said).split("\n") if first in line and in_line.match(line.strip())
    )


@lru_cache(maxsize=1024)
def _make_section_patterns(splitter: str) -> tuple[regex.Pattern[str], regex.Pattern[str]]:
    """Return what a heading and what a line of its own must begin with: there the number must end the title or its
    label.
    """
    word = r"\s+".join(map(regex.escape, splitter.split()))
    start = rf"(?:{word}\s*(?:#|№|nº|no\.?(?=\s))?\s*{_SECTION_NUMBER}|[第제]\s*{_SECTION_NUMBER}\s*{word})"
    return regex.compile(rf"\W*{start}"), regex.compile(_DECORATION + start + _TITLE_END)


def _make_items_check(marker: Marker, number: str) -> CheckFunction:
    return make_count_check(
        lambda document, _: [block.marker for block in document.blocks].count(marker), number, f"{marker} items"
    )


def _check_nested(document: Document, arguments: Arguments) -> CheckVerdict:
    depth, wanted = arguments["min_depth"], arguments["num_subitems"]
    deepest, longest = 0, 0
    lengths: list[int] = []  # of the lists around the current item
    for item in document.list_blocks("item"):
        lengths = [*lengths[: item.level], *[0] * (item.level - len(lengths))]
        lengths[-1] += 1
        deepest = max(deepest, item.level)
        if item.level >= depth:
            longest = max(longest, lengths[-1])
    return CheckVerdict(
        longest >= wanted, f"depth {deepest}, most items at depth {depth} or deeper: {longest}; wanted: {wanted}"
    )


def _check_table(document: Document, arguments: Arguments) -> CheckVerdict:
    tables = document.list_blocks("table")
    passed = any(table.rows >= arguments["min_rows"] and table.columns >= arguments["min_cols"] for table in tables)
    return CheckVerdict(
        passed, f"tables: {', '.join(f'{table.rows} x {table.columns}' for table in tables[:5]) or 'none'}"
    )


def _check_paragraph_size(document: Document, arguments: Arguments) -> CheckVerdict:
    if not document.paragraphs:
        return CheckVerdict(False, "no paragraph")
    limit: int = arguments["max_chars"]
    return check_none_wrong(
        (text for text in document.list_paragraph_texts() if len(text) > limit),
        f"paragraphs of {limit} characters at most",
    )


def _check_sentences_each(document: Document, arguments: Arguments) -> CheckVerdict:
    counts = [max(1, found) for found in document.sentences_of_paragraphs]
    return compare_each(counts, arguments, "num_sentences", "paragraphs by sentences")


def _check_indentation(document: Document, arguments: Arguments) -> CheckVerdict:
    blank = "\t" if arguments["indent_type"] == "tab" else " "
    size: int = arguments["size"]
    indents = [line[: len(line) - len(line.lstrip())] for line in document.lines]
    used = [indent for indent in indents if indent]
    wrong = sum(1 for indent in used if indent.strip(blank) or len(indent) % size)
    return CheckVerdict(bool(used) and not wrong, f"{len(used)} indented lines, {wrong} of them otherwise")


def _check_section_balance(document: Document, arguments: Arguments) -> CheckVerdict:
    bullets, wanted = arguments["element_type"] == "bullets", arguments["count"]
    counts = [
        _count_bullets(document, *part) if bullets else document.count_sentences(*part)
        for part in document.list_sections()
    ]
    wrong = [str(found) for found in counts if found != wanted]
    return CheckVerdict(
        bool(counts) and not wrong, f"{len(counts)} sections; {', '.join(wrong[:5]) or 'all'}; wanted: {wanted} each"
    )


def _count_bullets(document: Document, first: int, end: int) -> int:
    return sum(block.marker == "bullet" for block in document.blocks[first:end])


FORMAT: Mapping[str, CheckFunction] = MappingProxyType(
    {
        "detectable_format:json_format": _check_json,
        "detectable_format:title": _check_title,
        "detectable_format:heading_depth": _check_heading_depth,
        "detectable_format:multiple_sections": make_count_check(_count_sections, "num_sections", "sections"),
        "detectable_format:numbered_list": _make_items_check("number", "num_numbered_items"),
        "detectable_format:number_bullet_lists": _make_items_check("bullet", "num_bullets"),
        "detectable_format:nested_list": _check_nested,
        "detectable_format:table": _check_table,
        "detectable_format:number_paragraphs": make_count_check(
            lambda document, _: len(document.paragraphs), "num_paragraphs", "paragraphs"
        ),
        "detectable_format:max_paragraph_length": _check_paragraph_size,
        "detectable_format:sentences_per_paragraph": _check_sentences_each,
        "detectable_format:sentence_count": make_count_check(
            lambda document, _: len(document.sentences), "num_sentences", "sentences"
        ),
        "detectable_format:indentation": _check_indentation,
        "detectable_format:section_balance": _check_section_balance,
    }
)
