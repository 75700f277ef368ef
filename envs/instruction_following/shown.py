"""What a reader sees of the HTML and the comments in a reply: tags become the Markdown they stand for, comments and
hidden parts go.

Code, in fences and in spans, is shown as it stands. A block's tag counts where its closing tag stands in the reply as
well; a name in angle brackets that HTML does not know (``<name>``) is text. Entities become their characters; a mark
that Markdown would read gets a backslash, so that ``&lt;b&gt;`` is shown as ``<b>``.
"""

from __future__ import annotations

import html
import re
from collections import defaultdict
from collections.abc import Callable, Mapping

from gavel.models.texts.quoting import find_code_spans, find_fences

_LINK_SIGN = re.compile(r"\][(:]")
_COMMENT = re.compile(r"<!--.*?(?:-->|\Z)", re.DOTALL)
_DEFINITION = re.compile(
    r"^ {0,3}\[(?!\^)([^\[\]\n]{1,200})\]:[ \t]+(?:#|<[^<>\n]*>|[a-z][a-z0-9+.-]{1,20}:|//?[\w.-]|www\.)\S*"
    r"""(?:[ \t]+(?:"[^"\n]*"|'[^'\n]*'|\([^()\n]*\)))?[ \t]*(?:\n|\Z)""",
    re.MULTILINE | re.IGNORECASE,
)
"""A link reference definition, Markdown's way to write a comment (``[//]: # (…)``): it is never shown."""
_REFERENCE = re.compile(r"(?<=[^\[\]\n])\]\[([^\[\]\n]{1,200})\]")
_TARGET = re.compile(
    r"(?<=\]\()[ \t]*(?:<[^<>\n]*>|(?:[^()\s<>]|\([^()\s]*\))+)(?:[ \t]+(?:\"[^\"\n]*\"|'[^'\n]*'))?[ \t]*(?=\))"
)
"""Where a link goes, and its title: a reader sees neither."""
_ENTITY = re.compile(r"&(?:#[0-9]{1,7}|#[xX][0-9a-fA-F]{1,6}|[A-Za-z][A-Za-z0-9]{1,31});")
_MARKUP = re.compile(r"[\\`*_\[\]<>#+\-|~&]")
_UNSHOWN = re.compile(
    r"<(script|style|template|head|title|noscript|iframe|datalist|dialog|audio|video|canvas)\b[^<>]*>", re.IGNORECASE
)
_DECLARATION = re.compile(r"<(?:!(?=[a-z\[])|\?(?=[a-z]))[^<>]*>", re.IGNORECASE)
_ATTRIBUTES = r"(?:\s(?:[^<>\"']|\"[^\"]*\"|'[^']*'){0,500}+|/)?"
_STYLED_AWAY = re.compile(
    r"<([a-z][a-z0-9]{0,9})\b(?=[^<>]*(?:\shidden[\s>=/]|display\s*:\s*none|visibility\s*:\s*hidden|(?:font-size|opacity|height)\s*:\s*0[;\"'\s>p]"
    r"|color\s*:\s*transparent|(?:left|top|text-indent)\s*:\s*-\d{3}))",
    re.IGNORECASE,
)
"""The start of an opening tag whose attributes hide what it holds."""
_TAG = re.compile(rf"<(/?)([a-zA-Z][a-zA-Z0-9]{{0,9}}){_ATTRIBUTES}>")

_HEADINGS = {f"h{level}": "\n\n" + "#" * level + " " for level in range(1, 7)}
_PARAGRAPHS = ("p", "div", "section", "article", "header", "footer", "main", "nav", "aside", "address", "form", "fieldset", "pre", "dl",  # noqa: E501
               "details", "figure")  # fmt: skip
_OPENING: Mapping[str, str] = {
    **_HEADINGS, **dict.fromkeys(_PARAGRAPHS, "\n\n"), **dict.fromkeys(("ul", "ol", "dt", "dd", "menu", "summary", "figcaption"), "\n"),  # noqa: E501
    "blockquote": "\n\n> ", "html": "", "body": "",
}  # fmt: skip
"""What an opening tag of a block becomes; its closing tag ends the line, or the paragraph where the opening one began
one.
"""
_TABLE, _TABLE_END = re.compile(r"<table\b[^<>]*>", re.IGNORECASE), re.compile(r"</table\s*>", re.IGNORECASE)
_ROW = re.compile(r"<tr\b[^<>]*>", re.IGNORECASE)
_CELL = re.compile(r"<t[hd]\b[^<>]*>((?:[^<]|<(?!/?t[hdr]\b))*)", re.IGNORECASE)
_VOID: Mapping[str, str] = {
    "br": "\n",
    "hr": "\n\n---\n\n",
    "img": "",
    "wbr": "",
    "input": "",
    "meta": "",
    "link": "",
    "source": "",
    "embed": "",
}
_INLINE = frozenset((
    "a", "abbr", "b", "bdi", "bdo", "big", "cite", "code", "data", "del", "dfn", "em", "font", "i", "ins", "kbd", "label",  # noqa: E501
    "mark", "nobr", "q", "rp", "rt", "ruby", "s", "samp", "small", "span", "strike", "strong", "sub", "sup", "time", "tt", "u",  # noqa: E501
    "var", "center", "thead", "tbody", "tfoot", "caption", "button", "legend", "output",
))  # fmt: skip


def show_html(text: str) -> str:
    """Return what a reader sees of a reply's HTML, as Markdown; a reply without any is returned as it is."""
    if "<" not in text and "&" not in text:
        close = text.find("]")
        if close < 0 or not _LINK_SIGN.search(text, close):
            return text
    return _change_outside_code(text, _show_markup)


def _change_outside_code(text: str, change: Callable[[str], str]) -> str:
    """Apply a change to everything but code: fenced blocks, and code spans within the rest."""
    if "`" not in text and "~~~" not in text:
        return change(text)
    parts: list[str] = []
    kept: list[str] = []
    fences, spans, position = find_fences(text), find_code_spans(text), 0
    regions = sorted([*zip(fences.starts, fences.ends, strict=True), *zip(spans.starts, spans.ends, strict=True)])
    for start, end in regions:
        if start < position:
            continue  # a span within a fence
        parts.append(text[position:start])
        kept.append(text[start:end])
        position = end
    parts.append(text[position:])
    # One text with a mark in the place of each piece of code, so that a tag may close behind it. NUL shows nowhere
    # else: it is hidden.
    changed = change("\0".join(parts)).split("\0")
    if len(changed) != len(
        parts
    ):  # code within a comment, or in what is not shown, is gone with it: look at each part alone
        changed = [change(part) for part in parts]
    return "".join(piece for pair in zip(changed, [*kept, ""], strict=True) for piece in pair)


def _show_markup(text: str) -> str:
    if "](" in text:
        text = _TARGET.sub("", text)
    if "]:" in text and (names := {found[1].lower() for found in _DEFINITION.finditer(text)}):
        text = _REFERENCE.sub(lambda found: "]()" if found[1].lower() in names else found[0], _DEFINITION.sub("", text))
    if "<" in text:
        text = _show_tags(_show_tables(_drop_hidden(_drop_unshown(_DECLARATION.sub("", _COMMENT.sub("", text))))))
    return _ENTITY.sub(_decode_entity, text) if "&" in text else text


def _drop_unshown(text: str) -> str:
    """Drop scripts, styles and the like with their content, where they are closed."""
    parts: list[str] = []
    position, lower = 0, ""
    while (opening := _UNSHOWN.search(text, position)) is not None:
        lower = lower or text.lower()
        closing = lower.find(f"</{opening[1].lower()}", opening.end())
        end = text.find(">", closing) if closing >= 0 else -1
        if end < 0:
            break
        parts.append(text[position : opening.start()])
        position = end + 1
    return "".join([*parts, text[position:]])


def _drop_hidden(text: str) -> str:
    """Drop elements that their attributes hide, with all they hold, where they are closed."""
    hidden = {found.start() for found in _STYLED_AWAY.finditer(text)}
    if not hidden:
        return text
    open_tags: defaultdict[str, list[int]] = defaultdict(list)
    ends: dict[int, int] = {}
    for tag in _TAG.finditer(text):
        if not tag[1]:
            open_tags[tag[2].lower()].append(tag.start())
        elif started := open_tags[tag[2].lower()]:
            ends[started.pop()] = tag.end()
    parts: list[str] = []
    position = 0
    for start in sorted(hidden & ends.keys()):
        if start >= position:
            parts.append(text[position:start])
            position = ends[start]
    return "".join([*parts, text[position:]])


def _show_tables(text: str) -> str:
    """Return a page's tables as Markdown's, where they are closed."""
    parts: list[str] = []
    position = 0
    while (opening := _TABLE.search(text, position)) is not None:
        end = _TABLE_END.search(text, opening.end())
        if end is None:
            break
        rows = [_CELL.findall(row) for row in _ROW.split(text[opening.end() : end.start()])]
        lines = [
            "| " + " | ".join(" ".join(cell.split()).replace("|", "\\|") for cell in row) + " |" for row in rows if row
        ]
        width = next((len(row) for row in rows if row), 0)
        parts += [
            text[position : opening.start()],
            "\n\n",
            "\n".join([*lines[:1], "|---" * width + "|", *lines[1:]] if lines else []),
            "\n\n",
        ]
        position = end.end()
    return "".join([*parts, text[position:]])


def _decode_entity(found: re.Match[str]) -> str:
    decoded = html.unescape(found[0])
    return "\\" + decoded if _MARKUP.fullmatch(decoded) else decoded


def _show_tags(text: str) -> str:
    closed = {found[2].lower() for found in _TAG.finditer(text) if found[1]}
    if not closed and not any(f"<{name}" in text.lower() for name in _VOID):
        return text
    lists: list[str] = []

    def show_tag(found: re.Match[str]) -> str:
        name = found[2].lower()
        if name in _VOID:
            return _VOID[name]
        if name not in closed:
            return "\n" + _start_item(lists) if name == "li" and lists and not found[1] else found[0]
        if name in _INLINE:
            return ""
        if found[1]:
            return _close_tag(name, lists, found[0])
        return _open_tag(name, lists, found[0])

    return _TAG.sub(show_tag, text)


def _open_tag(name: str, lists: list[str], tag: str) -> str:
    if name == "li":
        return "\n" + _start_item(lists)
    if name in ("ul", "ol"):
        lists.append(name)
    return _OPENING.get(name, tag)


def _close_tag(name: str, lists: list[str], tag: str) -> str:
    if name == "li":
        return ""
    if name not in _OPENING:
        return tag
    if name in ("ul", "ol"):
        if lists:
            lists.pop()
        return "\n\n" if not lists else "\n"
    return "\n\n" if _OPENING[name].startswith("\n\n") else "\n" if _OPENING[name] == "\n" else _OPENING[name]


def _start_item(lists: list[str]) -> str:
    depth = max(0, len(lists) - 1)
    return "  " * depth + ("1. " if lists and lists[-1] == "ol" else "- ")
